"""`tieline import peerbus`: imports the peers of a peerbus broker and their unacknowledged messages.

Above: the command line. Below: the broker's own rules over the home's store, while no hub runs, and the database that
is read. The importer sends each message in its sender's own session, with the sender's signed bytes, under the key with
which the recipient acknowledges it. So a second import creates no duplicates.
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
    from tieline.contract.command import Command
    from tieline.contract.identifiers import SessionId
    from tieline.contract.reply import Reply
    from tieline.core.broker import Broker
    from tieline.core.outcome import Deferred
    from tieline.protocols.peerbus.database import Source, Waiting

_BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
"""Messages in one transaction, and the total size of their envelopes."""


@dataclass
class ImportCounts:
    """Counts and problems of one import."""

    peers: int = 0
    messages: int = 0
    known: int = 0
    """Messages that an earlier import had already brought."""
    audit: str = "intact"
    """The state of the broker's audit chain."""
    left: list[str] = field(default_factory=list)
    """Everything that could not be imported, with the reason."""


def import_peerbus(
    database: Annotated[Path, typer.Argument(metavar="DB", help="The broker's database, e.g. peerbus.db.")],
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="The hub's folder; else TIELINE_HOME.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="The token that the names will belong to; else the first of PEERBUS_TOKENS or tieline.toml.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Bring the peers of a peerbus broker, and what they have not acknowledged, into a hub that does not run.

    Stop both first. Envelopes are kept byte for byte, so that their signatures hold. Doing it twice brings nothing
    twice. What was acknowledged, and the broker's audit chain, stay where they are.
    """
    ended_by(lambda: _import(database, home, token, json=json))


def _import(database: Path, home: Path | None, token: str | None, *, json: bool) -> None:
    from tieline.protocols.peerbus.database import DatabaseError, Source
    from tieline.protocols.peerbus.settings import PeerbusSettings
    from tieline.server.config import ConfigError, load_config
    from tieline.server.home import Home, HomeBusy
    from tieline.server.hub import open_broker
    from tieline.wire.home import find_home

    folder = find_home(home)
    with contextlib.ExitStack() as stack:
        try:
            source = Source(database)
            stack.callback(source.close)
            held = Home(folder)
            stack.callback(held.release)
            config = load_config(folder)
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
        importer = Importer(broker, source, tokens[0], settings.hmac_secret)
        importer.run()
    _report(importer.counts, json=json)


class Importer:
    """One import of a database into a home."""

    def __init__(self, broker: "Broker", source: "Source", token: str, secret: str) -> None:
        self._broker = broker
        self._source = source
        self._token = token
        self._secret = secret.encode() or None
        self._sessions: dict[str, SessionId | _Problem] = {}
        self.counts = ImportCounts()

    def run(self) -> None:
        """Import all peers and messages."""
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
        """Send one message to its recipient; returns the reason if that failed."""
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
        content, target = codec.content_of(envelope), parse_target(f"@{waiting.recipient}")
        if isinstance(content, Refusal):
            return content.message
        if isinstance(target, Refusal):
            return target.message
        # A copy of a broadcast is for this recipient alone, although its envelope is addressed to everybody.
        content = structs.replace(content, target=target)
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
        """A session under this name, created if needed; or the reason why there cannot be one."""
        if name not in self._sessions:
            self._sessions[name] = self._attach(name)
        return self._sessions[name]

    def _attach(self, name: str) -> "SessionId | _Problem":
        from tieline.contract import command as c
        from tieline.contract.identifiers import MemberName
        from tieline.contract.member import ByShared
        from tieline.contract.reply import Attached
        from tieline.protocols.peerbus.codec import PROTOCOL

        attach = c.Attach(protocol=PROTOCOL, credential=ByShared(self._token), member=MemberName(name))
        reply = self._ask(attach)
        return reply.session if isinstance(reply, Attached) else _Problem(getattr(reply, "message", "refused"))


class _Problem(str):
    """The reason for a failure. It has its own type because a session id is a string too."""

    __slots__ = ()


def _report(counts: ImportCounts, *, json: bool) -> None:
    if json:
        print_json(counts)
    else:
        known = f" ({counts.known} were there already)" if counts.known else ""
        say(f"Brought {counts.peers} new peers, {counts.messages} messages{known}.")
    if counts.audit != "intact":
        warn(f"The broker's audit chain is broken: {counts.audit}.")
    tell_left(counts.left)
