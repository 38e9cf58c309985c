"""`tieline import backchannel`: imports the agents and messages of a spool into a hub's home.

Used by: the command line. Uses: the spool, and a session with the hub for each sender; if no hub runs, `offline` takes
the hub's place. The hub itself sets the sender of a message, so each message is sent in its sender's own session. The
hub also sets the id and the time. So the original id, time and target are stored in the message's data. The original id
is also part of the wire id, so a second import creates no duplicates.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.imports import tell_left
from tieline.cli.members import open_member_admin
from tieline.cli.output import print_json, say
from tieline.cli.session import JsonOption, Link, talks
from tieline.contract.message import Priority

if TYPE_CHECKING:
    from tieline.cli.offline import MemberAdmin
    from tieline.client import Accepted
    from tieline.protocols.backchannel.codec import SpoolMessage
    from tieline.protocols.backchannel.spool import Spool


class Speaker(Protocol):
    """Interface of a sender's session with the hub. If no hub runs, the session works directly on the hub's files."""

    async def send(self, target: str, body: str, *, wire_id: str | None = None, **parts: Any) -> "Accepted":
        """Send a message to `target` in the sender's name. `parts` are further fields of the message."""

    async def subscribe(self, channel: str) -> None:
        """Let the sender join a channel."""


@dataclass
class SpoolImportCounts:
    """Result of one import: numbers of imported members, subscriptions and messages, and the list of failures."""

    members: int = 0
    subscriptions: int = 0
    messages: int = 0
    known: int = 0
    """Number of messages that an earlier import has already brought into the hub."""
    left: list[str] = field(default_factory=list)
    """One line for each agent, subscription or message that could not be imported, with the reason."""


@talks
async def import_spool(
    link: Link,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="Folder of the spool. Default: the spool that commands without a hub use.",
            show_default=False,
        ),
    ] = None,
    move: Annotated[
        bool,
        typer.Option(
            "--move", help="Move imported messages to the spool's cur/, so that nobody reads them there again."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Import the agents, subscriptions and unread messages of a Maildir spool, with the hub running or not.

    A second import adds nothing twice. Each message keeps its sender; its original id and time are in its data.
    """
    from tieline.protocols.backchannel.commands.spool_location import spool_root
    from tieline.protocols.backchannel.spool import Spool

    root = spool_root(replace(link, spool=folder))
    if not root.is_dir():
        raise Failure(Exit.USAGE, f"there is no spool in {root}", "name its folder: tieline import backchannel DIR")
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(await open_member_admin(link, make=True))
        importer = Importer(link, hub, Spool(root), stack)
        await importer.run(move=move)
    _report(importer.counts, json=json)


class Importer:
    """One import of a spool into a hub. Sends each unread message to the hub, in a session of its sender."""

    def __init__(self, link: Link, hub: "MemberAdmin", spool: "Spool", stack: AsyncExitStack) -> None:
        self._link = link
        self._hub = hub
        self._spool = spool
        self._stack = stack
        self._speakers: dict[str, Speaker | str] = {}
        # Names that the hub has.
        self._members: set[str] = set()
        self.counts = SpoolImportCounts()

    async def run(self, *, move: bool) -> None:
        """Import all agents, subscriptions and unread messages. With `move`, move each imported file to `cur/`."""
        from tieline.client import HubRefused

        self._members = {member.name for member in await self._hub.members()}
        for record in self._spool.agents():
            speaker = await self._speaker(record.name)
            if isinstance(speaker, str):
                self.counts.left.append(f"agent {record.name}: {speaker}")
                continue
            for channel in record.subscriptions:
                try:
                    await speaker.subscribe(channel.removeprefix("#"))
                    self.counts.subscriptions += 1
                except HubRefused as error:
                    self.counts.left.append(f"subscription of {record.name} to {channel}: {error}")
        for agent in self._spool.names():
            for message in self._spool.unread(agent):
                problem = await self._bring(agent, message)
                if problem is not None:
                    self.counts.left.append(f"message {message.id} for {agent}: {problem}")
                elif move:
                    self._spool.take(agent, message.id, keep=True)

    async def _bring(self, agent: str, message: "SpoolMessage") -> str | None:
        """Send one message of the spool to the member `agent`, which is one of the message's recipients.

        Return `None`. If the message cannot be sent, return the reason as text.
        """
        from tieline.client import HubRefused
        from tieline.protocols.backchannel.codec import agent_of

        if agent not in self._members:
            return "its recipient is not a member"
        speaker = await self._speaker(message.sender)
        if isinstance(speaker, str):
            return f"its sender {message.sender[:140]!r} cannot speak: {speaker}"
        direct = agent_of(message.to) == agent
        try:
            accepted = await speaker.send(
                f"@{agent}",
                message.body,
                # Every copy of a channel's message has the same id.
                wire_id=message.id if direct else f"{message.id}/{agent}",
                data={"backchannel": {"id": message.id, "to": message.to, "ts": message.ts, "imported": True}},
                priority=Priority.URGENT if message.urgent else Priority.NORMAL,
                scope=message.scope,
                thread=message.thread,
                refs=message.refs,
            )
        except HubRefused as error:
            return str(error)
        if accepted.duplicate:
            self.counts.known += 1
        else:
            self.counts.messages += 1
        return None

    async def _speaker(self, name: str) -> Speaker | str:
        """Return a session for the member `name`, and open the session if needed.

        If that fails, return the reason as text.
        """
        if name not in self._speakers:
            self._speakers[name] = await self._open(name)
        return self._speakers[name]

    async def _open(self, name: str) -> Speaker | str:
        from tieline.cli.offline import OfflineHub
        from tieline.client import HubRefused

        try:
            if name not in self._members:
                await self._hub.add_member(name)
                self._members.add(name)
                self.counts.members += 1
            if isinstance(self._hub, OfflineHub):
                return self._hub.open_session(name)
            client = await self._stack.enter_async_context(await replace(self._link, member=name).open())
            return cast(Speaker, client)
        except HubRefused as error:
            return str(error)


def _report(counts: SpoolImportCounts, *, json: bool) -> None:
    if json:
        print_json(counts)
    else:
        known = f" ({counts.known} were there already)" if counts.known else ""
        brought = f"{counts.members} new members, {counts.subscriptions} subscriptions, {counts.messages} messages"
        say(f"Imported {brought}{known}.")
    tell_left(counts.left)
