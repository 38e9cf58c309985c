"""Channels of an adopted spool: keeps the subscriptions in the hub and in the spool's agent records equal.

Used by: `adoption`. Uses: the interface `contract.hub`, and the agent records. For a remote member, the hub decides,
and its channels are copied into the record. For a local agent, both the hub and the record can change. A channel that
was added or removed on one side is then added or removed on the other side too. To find such changes, both sides are
compared with the channels that they had in common last time. The mailbox stores these channels, so that this works
after a restart.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import GENERAL, USERS, ChannelName, MemberName, SessionId, parse_channel_name
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Channels as Listed
from tieline.contract.reply import ChannelView
from tieline.protocols.backchannel.agent_records import AgentRecords
from tieline.protocols.backchannel.mailbox import Mailbox, MailboxInfo
from tieline.protocols.backchannel.record import AgentRecord
from tieline.protocols.backchannel.view import subscriptions
from tieline.wire.sessions import ask_all

EVERYBODY = f"#{GENERAL}"

log = structlog.get_logger(__name__)


class Channels:
    """Keeps the channel subscriptions equal in a hub and in the agent records of one spool (folder of messages)."""

    def __init__(self, hub: Hub, agent_records: AgentRecords) -> None:
        self._hub = hub
        self._agent_records = agent_records
        # True if the hub's channels may have changed since the last refresh.
        self.stale = False
        # Channels of each member in the hub.
        self._joined: dict[str, list[str]] = {}
        # Channels in the record of each remote member; `None` if unknown.
        self._remote: dict[str, tuple[str, ...] | None] = {}
        # Local agents: their mailboxes, the channels that hub and record had in common last time, and their records.
        self._local: dict[str, tuple[Mailbox, MailboxInfo]] = {}
        self._records: dict[str, AgentRecord] = {}
        # Members whose channels in the hub and in the record may differ.
        self.unsettled: set[str] = set()

    def __contains__(self, name: object) -> bool:
        """True if `name` is the name of a local agent (an agent that reads its own mailbox in the spool)."""
        return name in self._local

    def add_remote(self, name: str) -> None:
        """Add a remote member (one that does not read the spool).

        Its channels in the hub are copied to its agent record.
        """
        self._remote.setdefault(name, None)
        self.unsettled.add(name)

    def add_local(self, mailbox: Mailbox, info: MailboxInfo) -> None:
        """Add a local agent (one that reads its own mailbox). Its channels in the hub and in its record are kept equal.

        `info` has the channels that the hub and the record had in common last time.
        """
        self._local[mailbox.name] = (mailbox, info)
        self.unsettled.add(mailbox.name)

    def forget(self, name: str) -> None:
        """Stop handling the channels of the member `name`."""
        self._remote.pop(name, None)
        self._local.pop(name, None)
        self._records.pop(name, None)
        self.unsettled.discard(name)

    def note(self, channels: Sequence[ChannelView]) -> None:
        """Store the hub's current channels. Mark the members whose channels have changed, for the next `reconcile`."""
        joined = subscriptions(channels)
        known = {*self._remote, *self._local}
        self.unsettled |= {name for name in known if joined.get(name, []) != self._joined.get(name, [])}
        self._joined = joined

    async def refresh(self, operator: SessionId) -> None:
        """Ask the hub for all channels and store them in this object. `operator` is the session that asks."""
        # Before the question: a change after the answer makes the channels stale again.
        self.stale = False
        reply = await self._hub.ask(c.ListChannels(operator))
        if isinstance(reply, Listed):
            self.note(reply.channels)

    def read(self, changed: Mapping[str, AgentRecord | None]) -> None:
        """Store agent records that are new or changed, by the agent's name.

        The value is `None` for a record that is gone.
        """
        for name, record in changed.items():
            if name in self._remote:
                self._remote[name] = record.subscriptions if record is not None else None
            elif record is not None:
                self._records[name] = record
            else:
                self._records.pop(name, None)
            self.unsettled.add(name)

    async def reconcile(self, operator: SessionId) -> None:
        """Make the channels in the hub and in the agent records equal, for all members whose channels may differ.

        `operator` is the session that changes the hub's subscriptions.
        """
        unsettled, self.unsettled = self.unsettled, set()
        said = {name: self._said(name) for name in unsettled if name in self._remote}
        wanted = {name: channels for name, channels in said.items() if self._remote[name] != channels}
        if wanted:
            await asyncio.to_thread(self._agent_records.write, wanted)
            self._remote.update(wanted)
        for name in unsettled:
            if name not in self._local:
                continue
            if name in self._records:
                await self._agree(name, operator)
            elif name not in self._agent_records:
                # Every member has a record. To remove the record for good, remove the member.
                await asyncio.to_thread(self._agent_records.write, {name: self._local[name][1].channels})

    def _said(self, name: str) -> tuple[str, ...]:
        return (EVERYBODY, *sorted(self._joined.get(name, ())))

    async def _agree(self, name: str, operator: SessionId) -> None:
        """Make the channels of the local agent `name` equal in the hub and in its agent record.

        `operator` is the session that changes the hub's subscriptions.
        """
        mailbox, info = self._local[name]
        record = self._records[name]
        before = set(info.channels)
        here = {channel for channel in record.subscriptions if _is_shared(channel)}
        there = set(self._joined.get(name, ()))
        agreed = (before | here | there) - (before - here) - (before - there)
        joins, leaves = sorted(agreed - there), sorted(there - agreed)
        if joins or leaves:
            member = MemberName(name)
            commands: list[c.Command] = [
                c.Subscribe(operator, channel=_name(channel), member=member) for channel in joins
            ]
            commands += [c.Unsubscribe(operator, channel=_name(channel), member=member) for channel in leaves]
            replies = await ask_all(self._hub, commands)
            for channel, reply in zip(joins, replies, strict=False):
                if isinstance(reply, Refusal):
                    # The record may keep the channel all the same: only local senders read it.
                    log.warning("a local agent cannot join a channel", member=name, channel=channel, code=reply.code)
                    agreed.discard(channel)
                    here.discard(channel)
        if agreed != here:
            said = [channel for channel in record.subscriptions if channel in agreed or channel not in here]
            said += sorted(agreed.difference(said))
            await asyncio.to_thread(self._agent_records.write, {name: said})
            self._records[name] = record.in_channels(said)
        if agreed != before:
            info = replace(info, channels=tuple(sorted(agreed)))
            await asyncio.to_thread(mailbox.write_info, info, durably=True)
            self._local[name] = (mailbox, info)
        self._joined[name] = sorted(agreed)


def _is_shared(channel: str) -> bool:
    """True if subscriptions to this channel are kept equal in the hub and in the agent records.

    False if the channel's name is invalid, or if the hub itself decides which members are in the channel.
    """
    name = parse_channel_name(channel.removeprefix("#"))
    return channel.startswith("#") and not isinstance(name, Refusal) and name not in (GENERAL, USERS)


def _name(channel: str) -> ChannelName:
    return ChannelName(channel.removeprefix("#"))
