"""The record of an agent as JSON: its name, its channels, and when it was last seen.

Used by: the spool, the relay. Uses: nothing. Other programs write these files too and may store keys that are unknown
here. So a record is changed key by key, and never replaced by a new one.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct


class BadRecord(Exception):
    """Exception: bytes are not the record of this agent. The text says why."""


class AgentRecord(Struct, frozen=True):
    """The record of one agent (`agents/<name>.json`): its name, its channels, and when it was last seen."""

    name: str
    subscriptions: tuple[str, ...]
    """Names of the agent's channels, with their `#`."""
    created_at: str
    last_seen: str
    document: dict[str, Any]
    """The whole JSON object of the record's file, with unknown keys, in the order of the file."""

    def seen_at(self, ts: str) -> "AgentRecord":
        """Return a copy of the record in which `lastSeen` is the time `ts`."""
        return _record(self.name, {**self.document, "lastSeen": ts})

    def subscribed(self, channel: str) -> "AgentRecord":
        """Return a copy of the record with this channel added."""
        if channel in self.subscriptions:
            return self
        return _record(self.name, {**self.document, "subscriptions": [*self.subscriptions, channel]})

    def unsubscribed(self, channel: str) -> "AgentRecord":
        """Return a copy of the record without this channel."""
        left = [each for each in self.subscriptions if each != channel]
        return _record(self.name, {**self.document, "subscriptions": left})

    def in_channels(self, channels: Sequence[str]) -> "AgentRecord":
        """Return a copy of the record whose channels are replaced by `channels`."""
        return _record(self.name, {**self.document, "subscriptions": list(channels)})


def new_record(name: str, ts: str) -> AgentRecord:
    """Return the record of a new agent. `ts` is the time at which the agent was created and last seen."""
    return _record(name, {"name": name, "subscriptions": [], "createdAt": ts, "lastSeen": ts})


def encode_record(record: AgentRecord) -> bytes:
    """Return a record as JSON bytes, for the record's file."""
    return msgspec.json.format(msgspec.json.encode(record.document), indent=2)


def decode_record(name: str, data: bytes) -> AgentRecord:
    """Return the record of the agent `name` from the bytes of its file.

    Raise `BadRecord` if the bytes are not a record of this agent.
    """
    try:
        return _record(name, msgspec.json.decode(data, type=dict[str, Any]))
    except RecursionError as error:
        raise BadRecord("it is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord(str(error)) from error


class _Known(Struct, rename="camel"):
    """JSON shape with the keys of an agent record that this module reads. A record may have other keys too."""

    name: str | None = None
    subscriptions: list[str] | None = None
    created_at: str | None = None
    last_seen: str | None = None


def _record(name: str, document: dict[str, Any]) -> AgentRecord:
    known = msgspec.convert(document, _Known)
    if known.name not in (None, name):
        raise BadRecord(f"it says that it is {known.name!r}")
    channels = tuple(dict.fromkeys(known.subscriptions or ()))
    return AgentRecord(name, channels, known.created_at or "", known.last_seen or "", document)
