"""The record of an agent as JSON: its name, what it subscribes to, and when it was seen.

Above: the spool, the relay. Below: nothing. Other programs write these files too and may keep more in them than we
know, so a record is changed key by key and never made anew.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct


class BadRecord(Exception):
    """The bytes are no record of this agent; the text says why."""


class AgentRecord(Struct, frozen=True):
    """One agent, as its file describes it."""

    name: str
    subscriptions: tuple[str, ...]
    """Channels with their `#`."""
    created_at: str
    last_seen: str
    document: dict[str, Any]
    """All that the file says, in its order."""

    def seen_at(self, ts: str) -> "AgentRecord":
        """The same agent, seen now."""
        return _record(self.name, {**self.document, "lastSeen": ts})

    def subscribed(self, channel: str) -> "AgentRecord":
        """The same agent, in one more channel."""
        if channel in self.subscriptions:
            return self
        return _record(self.name, {**self.document, "subscriptions": [*self.subscriptions, channel]})

    def unsubscribed(self, channel: str) -> "AgentRecord":
        """The same agent, in one channel less."""
        left = [each for each in self.subscriptions if each != channel]
        return _record(self.name, {**self.document, "subscriptions": left})

    def in_channels(self, channels: Sequence[str]) -> "AgentRecord":
        """The same agent, in just these channels."""
        return _record(self.name, {**self.document, "subscriptions": list(channels)})


def new_record(name: str, ts: str) -> AgentRecord:
    """An agent that nobody knew before."""
    return _record(name, {"name": name, "subscriptions": [], "createdAt": ts, "lastSeen": ts})


def encode_record(record: AgentRecord) -> bytes:
    """A record as its file has it."""
    return msgspec.json.format(msgspec.json.encode(record.document), indent=2)


def decode_record(name: str, data: bytes) -> AgentRecord:
    """The record of the agent whose file it is."""
    try:
        return _record(name, msgspec.json.decode(data, type=dict[str, Any]))
    except RecursionError as error:
        raise BadRecord("it is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord(str(error)) from error


class _Known(Struct, rename="camel"):
    """The keys that we read."""

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
