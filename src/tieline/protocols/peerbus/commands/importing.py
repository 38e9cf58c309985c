"""`tieline import peerbus`: imports the peers of a peerbus broker and their unacknowledged messages.

Used by: the command line. Uses: the database of the peerbus broker, and the hub's decision logic (`Broker`) on the
home's store; no hub may run. Each message is sent in its sender's own session, with the sender's signed bytes. Its wire
id is the key with which the recipient acknowledges it, so a second import creates no duplicates.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.imports import tell_left
from tieline.cli.output import print_json, say, warn
from tieline.cli.session import JsonOption, ended_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tieline.contract.command import Command
    from tieline.contract.identifiers import SessionId
    from tieline.contract.reply import Reply
    from tieline.core.broker import Broker
    from tieline.core.outcome import Deferred
    from tieline.protocols.peerbus.database import Source, Waiting

_BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
"""Limits of one transaction of an import: the number of messages, and the total bytes of their envelopes."""


@dataclass
class PeerbusImportCounts:
    """Result of one import: numbers of imported peers and messages, and the list of failures."""

    peers: int = 0
    messages: int = 0
    known: int = 0
    """Number of messages that an earlier import has already brought into the hub."""
    audit: str = "intact"
    """State of the peerbus broker's audit chain: `intact`, or a text about the first wrong row."""
    left: list[str] = field(default_factory=list)
    """One line for each peer or message that could not be imported, with the reason."""


def import_peerbus(
    database: Annotated[Path, typer.Argument(metavar="DB", help="Database of the broker, e.g. peerbus.db.")],
    home: Annotated[
        Path | None,
        typer.Option(
            "--home", metavar="DIR", help="Home folder of the hub. Default: TIELINE_HOME.", show_default=False
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Token that the names will belong to. Default: the first of PEERBUS_TOKENS or tieline.toml.",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW", help="Import a peer under another name, if the hub refuses the old one. Repeatable."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Import the peers of a peerbus broker and their unacknowledged messages into a hub that does not run.

    Stop the broker and the hub first. Envelopes are kept byte for byte, so their signatures stay valid. A second import
    adds nothing twice. Acknowledged messages and the broker's audit chain are not imported. A renamed peer must
    register under its new name, and gets there the messages for the old one.
    """
    ended_by(lambda: _import(database, home, token, rename or (), json=json))


def _import(database: Path, home: Path | None, token: str | None, rename: "Sequence[str]", *, json: bool) -> None:
    from tieline.protocols.peerbus.database import DatabaseError, Source
    from tieline.protocols.peerbus.settings import PeerbusSettings
    from tieline.server.config import ConfigError, load_config
    from tieline.server.home import Home, HomeBusy
    from tieline.server.room import open_broker
    from tieline.wire.home import find_home

    folder = find_home(home)
    with contextlib.ExitStack() as stack:
        try:
            source = Source(database)
            stack.callback(source.close)
            held = Home(folder)
            stack.callback(held.release)
            config = load_config(folder)
            names = new_names(rename, source.peers())
        except (DatabaseError, ConfigError) as error:
            raise Failure(Exit.USAGE, str(error)) from error
        except HomeBusy as error:
            raise Failure(
                Exit.FAILED, f"a hub is running in {folder}", "stop it, import, and start it again"
            ) from error
        settings = config.of(PeerbusSettings)
        tokens = (token,) if token else settings.tokens
        if not tokens:
            hint = "name one with --token, or set [peerbus] tokens"
            raise Failure(Exit.USAGE, "there is no token for the names to belong to", hint)
        broker = open_broker(held, config)
        stack.callback(broker.close)
        importer = Importer(broker, source, tokens[0], settings.hmac_secret, names)
        importer.run()
    _report(importer.counts, json=json)


def new_names(rename: "Sequence[str]", peers: "Sequence[str]") -> dict[str, str]:
    """Parse `--rename` options of the form `OLD=NEW`. Return the new names, by old name.

    `peers` are the names in the database. Raise a `Failure` if an option is not valid.
    """
    from tieline.contract.identifiers import parse_member_name
    from tieline.contract.refusal import Refusal

    names: dict[str, str] = {}
    for text in rename:
        # A new name has no equals sign; an old one may have any character.
        old, equals, new = text.rpartition("=")
        if not equals or old not in peers or old in names:
            why = "names a peer that was named before" if old in names else "is not OLD=NEW for a peer of the database"
            raise Failure(Exit.USAGE, f"--rename {text!r} {why}", f"its peers: {', '.join(peers)}")
        name = parse_member_name(new)
        if isinstance(name, Refusal):
            raise Failure(Exit.USAGE, f"--rename {text!r}: {name.message}")
        names[old] = name
    for old, new in names.items():
        for other in peers:
            # Two peers under one name would read each other's messages.
            if other != old and names.get(other, other).casefold() == new.casefold():
                raise Failure(Exit.USAGE, f"{old!r} and {other!r} would both be called {new!r}")
    return names


class Importer:
    """One import of a peerbus server's database into the home of a hub that does not run."""

    def __init__(self, broker: "Broker", source: "Source", token: str, secret: str, names: "Mapping[str, str]") -> None:
        self._broker = broker
        self._source = source
        self._token = token
        self._secret = secret.encode() or None
        # New names of peers, by old name.
        self._names = names
        self._sessions: dict[str, SessionId | _Problem] = {}
        self.counts = PeerbusImportCounts()

    def run(self) -> None:
        """Import all peers and unacknowledged messages. The result is in `counts`."""
        self.counts.audit = self._source.chain_break() or "intact"
        before = len(self._broker.directory.accounts)
        for name in self._source.peers():
            session = self._session(name)
            if isinstance(session, _Problem):
                self.counts.left.append(f"peer {name}: {session}")
        count = size = 0
        for waiting in self._source.waiting():
            problem = self._bring(waiting)
            if problem is not None:
                self.counts.left.append(f"message {waiting.key} for {waiting.recipient}: {problem}")
            count, size = count + 1, size + len(waiting.envelope)
            if count >= _BATCH or size >= _BATCH_BYTES:
                self._broker.commit()
                count = size = 0
        self._broker.commit()
        self.counts.peers = len(self._broker.directory.accounts) - before

    def _bring(self, waiting: "Waiting") -> str | None:
        """Send one unacknowledged message of the database to its recipient in the hub.

        Return `None`. If the message cannot be sent, return the reason as text.
        """
        from msgspec import structs

        from tieline.contract import command as c
        from tieline.contract.refusal import Refusal
        from tieline.contract.reply import Accepted
        from tieline.contract.target import parse_target
        from tieline.protocols.peerbus import codec

        session = self._session(waiting.sender)
        if isinstance(session, _Problem):
            return f"its sender {waiting.sender[:140]!r} cannot speak: {session}"
        try:
            envelope = codec.decode_envelope(waiting.envelope)
        except codec.FrameError as error:
            return str(error)
        recipient = self._names.get(waiting.recipient, waiting.recipient)
        # The hub may refuse the old name in `to`. The envelope that the recipient gets stays as it was signed.
        content = codec.content_of(structs.replace(envelope, to=self._names.get(envelope.to, envelope.to)))
        target = parse_target(f"@{recipient}")
        if isinstance(content, Refusal):
            return content.message
        if isinstance(target, Refusal):
            return target.message
        # A copy of a broadcast is for this recipient alone, although its envelope is addressed to everybody.
        content = structs.replace(content, target=target)
        # The broker knew the sender by its old name, which is the one that it signed.
        signature = codec.signature_of(envelope, waiting.sender, self._secret)
        command = c.Send(session, content=content, wire_id=waiting.key, shared_id=True, signature=signature)
        reply = self._ask(command)
        if isinstance(reply, Refusal):
            return reply.message
        assert isinstance(reply, Accepted), "a send is answered by these"
        self.counts.known += reply.duplicate
        self.counts.messages += not reply.duplicate
        return None

    def _ask(self, command: "Command") -> "Reply | Deferred":
        outcome = self._broker.handle((command,))
        for fault in outcome.faults:
            # The fault discarded everything that was not committed; another import starts from the committed state.
            raise fault.error
        (reply,) = outcome.replies
        return reply

    def _session(self, name: str) -> "SessionId | _Problem":
        """Return a session that sends in the name of the peer `name`, and open the session if needed.

        If that fails, return the reason.
        """
        if name not in self._sessions:
            self._sessions[name] = self._attach(name)
        return self._sessions[name]

    def _attach(self, name: str) -> "SessionId | _Problem":
        from tieline.contract import command as c
        from tieline.contract.identifiers import MemberName
        from tieline.contract.member import ByShared
        from tieline.contract.reply import Attached
        from tieline.protocols.peerbus.codec import PROTOCOL

        member = MemberName(self._names.get(name, name))
        attach = c.Attach(protocol=PROTOCOL, credential=ByShared(self._token), member=member)
        reply = self._ask(attach)
        return reply.session if isinstance(reply, Attached) else _Problem(getattr(reply, "message", "refused"))


class _Problem(str):
    """Text with the reason why no session could be opened for a peer.

    It is a separate type, because a session id is a string too.
    """

    __slots__ = ()


def _report(counts: PeerbusImportCounts, *, json: bool) -> None:
    if json:
        print_json(counts)
    else:
        known = f" ({counts.known} were there already)" if counts.known else ""
        say(f"Imported {counts.peers} new peers, {counts.messages} messages{known}.")
    if counts.audit != "intact":
        warn(f"The broker's audit chain is broken: {counts.audit}.")
    tell_left(counts.left)
