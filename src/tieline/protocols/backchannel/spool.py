"""The spool: one folder in which agents leave each other messages as files. Other programs may use the same folder.

    config.json                     the name under which commands act here
    agents/<name>.json              the record of an agent
    spool/<agent>/tmp/<id>.json     being written
    spool/<agent>/new/<id>.json     unread
    spool/<agent>/cur/              claimed, or kept

Used by: the command line, the hub. Uses: the disk. A spool works without a server: only file permissions protect it,
and the first reader that renames a file gets the message. A message is accepted once its file in `new/` is durable:
synced to the disk, with its name. A file that is not a valid message is skipped here, and `upkeep` reports it.
"""

import contextlib
import difflib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.claims import SUFFIX, Claims, abandoned, give_back, read_message
from tieline.protocols.backchannel.codec import (
    NORMAL,
    SpoolMessage,
    agent_of,
    channel_of,
    check_message,
    check_name,
    encode,
    is_channel,
    is_id,
    moment,
    timestamp,
)
from tieline.protocols.backchannel.record import AgentRecord, BadRecord, decode_record, encode_record, new_record
from tieline.wire.folder import own_folder

_BOXES = ("tmp", "new", "cur")
_RECORD_BYTES_MAX = 1024 * 1024
"""Most bytes of an agent record's file. A record has only a name and a list of channels."""
_SEEN_MS = 10_000
"""Age of an agent's `lastSeen` after which it is updated.

An update for every message would cost as much as the message itself.
"""
_READ_TRIES = 20
_READ_PAUSE_SECONDS = 0.01
"""Pause before an unreadable agent record is read again.

Other programs overwrite the file of a record, so a reader may see an incomplete record for a moment.
"""
_OPEN_MAX = 256
"""Largest number of files that one batch of messages has open at the same time.

On many systems, a process may have only 1024 open files.
"""
_NEAR_MAX = 3  # so many names help


class SpoolError(Exception):
    """Base class of all errors of the spool."""


class SpoolRefused(SpoolError):
    """Exception: the spool refused the operation. `refusal` has the code and the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class SpoolBroken(SpoolError):
    """Exception: a file that the spool needs is unreadable or invalid. The text names the file."""


class SpoolDraft(Struct, frozen=True, kw_only=True):
    """A message that is not sent yet. When it is sent, the spool adds an id and a time."""

    sender: str
    to: str
    body: str
    priority: str = NORMAL
    scope: str | None = None
    thread: str | None = None
    refs: tuple[str, ...] = ()


class Sent(Struct, frozen=True):
    """A message that the spool accepted, and the names of its recipients."""

    message: SpoolMessage
    recipients: tuple[str, ...]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return str(uuid.uuid4())


class Spool:
    """One spool folder. This object keeps no file open, so any number of processes may use the same folder."""

    def __init__(self, root: Path, *, now_ms: Callable[[], int] = _now_ms, new_id: Callable[[], str] = _new_id) -> None:
        self.root = root
        self._now_ms = now_ms
        self._new_id = new_id

    def folder(self, agent: str) -> Path:
        """Return the folder that holds an agent's messages."""
        _refuse(check_name(agent))
        return self.root / "spool" / agent

    # Agents.

    def register(self, name: str) -> AgentRecord:
        """Register the agent `name`, or update the time when a known agent was last seen. Return the agent's record."""
        _refuse(check_name(name))
        own_folder(self.root)
        with self._locked():
            known = self.record(name)
            if known is None:
                twin = next((other for other in self.names() if other.lower() == name.lower()), None)
                if twin is not None:
                    _refuse(Refusal(Code.NAME_TAKEN, f'"{name}" differs only in case from the agent "{twin}"'))
                known = new_record(name, timestamp(self._now_ms()))
                self._write(known)
            else:
                known = self._refresh(known)
        for box in _BOXES:
            disk.make_folder(self.folder(name) / box)
        return known

    def touch(self, name: str) -> None:
        """Update the time when an agent was last seen. Do nothing if the agent is not registered."""
        known = self.record(name)
        if known is None or not self._is_stale(known):
            return
        with self._locked():
            known = self.record(name)
            if known is not None:
                self._refresh(known)

    def names(self) -> list[str]:
        """Return the names of the agents that have a record, sorted."""
        try:
            found = os.listdir(self.root / "agents")  # noqa: PTH208 - names are all we want
        except FileNotFoundError:
            return []
        names = (name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
        return sorted(name for name in names if check_name(name) is None)

    def record(self, name: str) -> AgentRecord | None:
        """Return the record of an agent; `None` if the agent has no record."""
        _refuse(check_name(name))
        path = self.root / "agents" / f"{name}{SUFFIX}"
        problem = "it is no plain file, or too large"
        for tries in range(_READ_TRIES):
            if tries:
                time.sleep(_READ_PAUSE_SECONDS)
            try:
                data = disk.read(path, _RECORD_BYTES_MAX)
                if data is not None:
                    return decode_record(name, data)
            except FileNotFoundError:
                return None
            except BadRecord as error:
                problem = str(error)
        raise SpoolBroken(f"the record {path} cannot be used: {problem}")

    def agents(self) -> list[AgentRecord]:
        """Return the records of all agents, sorted by name."""
        records = (self.record(name) for name in self.names())
        return [record for record in records if record is not None]

    def describe(self, channels: Mapping[str, Sequence[str]]) -> None:
        """Write the channels of these agents into their records. `channels` has all channels of each agent.

        The files are not synced to disk. After a power failure, the caller must write them again.
        """
        with self._locked():
            for name, said in channels.items():
                try:
                    known = self.record(name)
                except SpoolBroken:
                    known = None
                record = (known or new_record(name, timestamp(self._now_ms()))).in_channels(said)
                disk.replace(self.root / "agents" / f"{name}{SUFFIX}", encode_record(record), durably=False)

    def remove_record(self, name: str) -> None:
        """Remove the record of an agent. Its messages stay."""
        _refuse(check_name(name))
        with self._locked():
            (self.root / "agents" / f"{name}{SUFFIX}").unlink(missing_ok=True)

    # Channels.

    def subscribe(self, agent: str, channel: str) -> None:
        """Add an agent to a channel. A channel exists as long as it has a subscriber."""
        name = _channel(channel)
        with self._changing(agent) as record:
            if record is None:
                text = f'unknown agent "{agent}" — run `bch init {agent}` first'
                raise SpoolRefused(Refusal(Code.UNKNOWN_MEMBER, text))
            self._write(record.subscribed(name))

    def unsubscribe(self, agent: str, channel: str) -> None:
        """Remove an agent from a channel. Do nothing if the agent is unknown or not in the channel."""
        name = _channel(channel)
        with self._changing(agent) as record:
            if record is not None and name in record.subscriptions:
                self._write(record.unsubscribed(name))

    def channels(self) -> list[str]:
        """Return the names of the channels that have subscribers, with their `#`, sorted."""
        return sorted({channel for record in self.agents() for channel in record.subscriptions})

    # Sending.

    def send(self, draft: SpoolDraft) -> Sent:
        """Send one message. It is durable when this method returns."""
        (sent,) = self.send_many([draft])
        return sent

    def send_many(self, drafts: Sequence[SpoolDraft]) -> list[Sent]:
        """Send several messages together, because that needs fewer syncs to disk.

        All are durable when this method returns.

        If one message is refused, none is sent. If the disk is full, some messages may be delivered and others not.
        """
        recipients = self._recipients(drafts)
        # Messages of one millisecond are read in the order of their ids, so ids follow the order of the drafts.
        ids = sorted(self._new_id() for _ in drafts)
        sent = []
        for message_id, draft in zip(ids, drafts, strict=True):
            message = SpoolMessage(
                id=message_id,
                sender=draft.sender,
                to=draft.to,
                body=draft.body,
                priority=draft.priority,
                scope=draft.scope or None,
                thread=draft.thread or None,
                refs=draft.refs,
                ts=timestamp(self._now_ms()),
            )
            _refuse(check_name(draft.sender) or check_message(message))
            sent.append(Sent(message, recipients(draft.sender, draft.to)))
        self.deliver([(name, each.message) for each in sent for name in each.recipients])
        for sender in {draft.sender for draft in drafts}:
            self.touch(sender)
        return sent

    def deliver(self, copies: Sequence[tuple[str, SpoolMessage]]) -> None:
        """Write each message as a file into its recipient's folder. `copies` has pairs of recipient and message."""
        for start in range(0, len(copies), _OPEN_MAX):
            self._deliver(copies[start : start + _OPEN_MAX])

    def _deliver(self, copies: Sequence[tuple[str, SpoolMessage]]) -> None:
        encoded: dict[str, bytes] = {}
        written: list[tuple[Path, Path]] = []
        descriptors: list[int] = []
        try:
            for agent, message in copies:
                _refuse(None if is_id(message.id) else Refusal(Code.INVALID_MESSAGE, f"{message.id!r} is no UUID"))
                folder = self.folder(agent)
                name = f"{message.id}{SUFFIX}"
                content = encoded.setdefault(message.id, encode(message))
                # spec, Local spool layout: a file is written in tmp/, and renamed into new/ when it is whole.
                for box in ("tmp", "new"):
                    disk.make_folder(folder / box)
                written.append((folder / "tmp" / name, folder / "new" / name))
                descriptors.append(disk.create(written[-1][0], content))
            # All files are written before the first is synced: one sync of the disk's journal then covers many files.
            while descriptors:
                disk.sync(descriptors.pop())
            for temporary, final in written:
                temporary.rename(final)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            for temporary, _ in written:
                temporary.unlink(missing_ok=True)
            raise
        for folder in {final.parent for _, final in written}:
            disk.sync_folder(folder)

    def find_recipients(self, draft: SpoolDraft) -> tuple[str, ...]:
        """Return the names of the agents that a message would go to. Raise `SpoolRefused` if there is none."""
        return self._recipients([draft])(draft.sender, draft.to)

    def _recipients(self, drafts: Sequence[SpoolDraft]) -> Callable[[str, str], tuple[str, ...]]:
        """Return a function that finds the recipients for a sender and a target.

        The function is only for these drafts, because the agent records are read once for all drafts.
        """
        subscribers: dict[str, list[str]] = {}
        if any(is_channel(draft.to) for draft in drafts):
            for record in self.agents():
                for channel in record.subscriptions:
                    subscribers.setdefault(channel, []).append(record.name)
        known: set[str] = set()

        def find(sender: str, to: str) -> tuple[str, ...]:
            if is_channel(to):
                others = tuple(name for name in subscribers.get(to, ()) if name != sender)
                if not others:
                    text = f"channel {to} has no other subscribers — nothing to deliver"
                    raise SpoolRefused(Refusal(Code.NO_RECIPIENTS, text))
                return others
            name = agent_of(to)
            if name not in known:
                if self.record(name) is None:
                    raise SpoolRefused(self._unknown(name))
                known.add(name)
            return (name,)

        return find

    def _unknown(self, name: str) -> Refusal:
        by_lower = {other.lower(): other for other in self.names()}
        near = difflib.get_close_matches(name.lower(), by_lower, n=_NEAR_MAX)
        text = f'unknown agent "{name}" — they must `bch init {name}` first'
        return Refusal(Code.UNKNOWN_MEMBER, text, tuple(by_lower[each] for each in near))

    # Reading.

    def waiting(self, agent: str) -> list[str]:
        """Return the ids of an agent's unread messages, in no order. Ignore files in `new/` whose name is not an id."""
        try:
            names = os.listdir(self.folder(agent) / "new")  # noqa: PTH208 - names are all we want
        except FileNotFoundError:
            return []
        ids = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return [each for each in ids if is_id(each)]

    def peek(self, agent: str, message_id: str) -> SpoolMessage | None:
        """Return one unread message without claiming it.

        Return `None` if there is no valid unread message with this id.
        """
        if not is_id(message_id):
            return None
        message = read_message(self.folder(agent) / "new" / f"{message_id}{SUFFIX}", message_id)
        return message if isinstance(message, SpoolMessage) else None

    def inbox(self, agent: str) -> list[SpoolMessage]:
        """Return an agent's unread messages, oldest first, without claiming them.

        Also update the agent's `lastSeen`.
        """
        self.touch(agent)
        return self.unread(agent)

    def unread(self, agent: str) -> list[SpoolMessage]:
        """Return an agent's unread messages, oldest first. Do not update the agent's `lastSeen`."""
        found = (self.peek(agent, message_id) for message_id in self.waiting(agent))
        return sorted((message for message in found if message is not None), key=lambda each: (each.ts, each.id))

    def claims(self, agent: str) -> Claims:
        """Return an object with which one reader claims this agent's messages, one by one."""
        return Claims(self.folder(agent))

    def take(self, agent: str, message_id: str, *, keep: bool = False) -> SpoolMessage | None:
        """Claim one message and return it; `None` if another reader was first or there is no such message.

        The file is deleted, or moved to `cur/` if `keep` is set.
        """
        with self.claims(agent) as claims:
            message = claims.claim(message_id)
            if message is not None:
                claims.sync()
                claims.finish(message_id, keep=keep)
            return message

    def recover(self, agent: str) -> int:
        """Make the messages that killed readers had claimed unread again. Return the number of these messages."""
        folder = self.folder(agent)
        return sum(give_back(folder, claim, message_id) for claim, message_id in abandoned(folder))

    # Records on disk.

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Context manager: hold the lock on the agent records.

        Other programs may ignore the lock and change records.
        """
        folder = self.root / "agents"
        disk.make_folder(folder)
        try:
            with disk.locked(folder / ".lock"):
                yield
        except disk.LockBusy as error:
            raise SpoolBroken(str(error)) from error

    @contextlib.contextmanager
    def _changing(self, agent: str) -> Iterator[AgentRecord | None]:
        _refuse(check_name(agent))
        with self._locked():
            yield self.record(agent)

    def _is_stale(self, record: AgentRecord) -> bool:
        seen_ms = moment(record.last_seen)
        return seen_ms is None or not 0 <= self._now_ms() - seen_ms < _SEEN_MS

    def _refresh(self, record: AgentRecord) -> AgentRecord:
        if not self._is_stale(record):
            return record
        fresh = record.seen_at(timestamp(self._now_ms()))
        self._write(fresh)
        return fresh

    def _write(self, record: AgentRecord) -> None:
        disk.replace(self.root / "agents" / f"{record.name}{SUFFIX}", encode_record(record))


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise SpoolRefused(refusal)


def _channel(text: str) -> str:
    name = channel_of(text)
    if isinstance(name, Refusal):
        raise SpoolRefused(name)
    return name
