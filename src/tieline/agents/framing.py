"""Framing: a message as an agent is shown it, apart from what its user says.

Above: the MCP server, which pushes `channel_params`; the Codex runner and the hooks, which print `channel_text`. Below:
what protocols declare; it does no I/O.

A body is other people's words, often a model's, and so are names, titles and data. None of them may close the frame,
open another one, or add to what the hub says about the message. So in a body every `<` is written `&lt;`, and an `&`
that would then be read so is written `&amp;`: what is left is text, can be turned back exactly, and commands such as
`make && make test` stay as they are. In an attribute `"` and line ends are written out as well. What a terminal would
obey is made visible (`contract.text`). Whoever reads the frame need not know any of this to be safe from it.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tieline.client import Message
from tieline.contract import lifecycle
from tieline.contract.identifiers import GENERAL
from tieline.contract.message import Kind, Priority, Signature
from tieline.contract.text import neutral
from tieline.protocols import protocols
from tieline.wire.protocol import Protocol

BODY_CHARS_MAX = 65_536
"""Of a body in a frame: as much as the wires of agents take, and already a good part of a model's attention."""

ATTRIBUTE_CHARS_MAX = 512
"""Of an attribute: a label, never a document."""

DATA_MAX = 32
"""Attributes made of a message's data; more are left out, as what is no scalar is, and counted."""

RESERVED = frozenset(
    {
        *("from", "thread", "level", "msg_id", "ts", "ts_ms", "title", "target", "channel", "source", "content"),
        *("kind", "age", "via", "verified", "signature", "priority", "reply_to", "conversation", "scope"),
        *("refs", "attachments", "notes", "data_left_out", "self", "supersedes"),
    }
)
"""Attributes that only the hub may say; data under such a name, in whatever case, is not shown."""

_AMPERSAND = re.compile(r"&(?=(?:lt|amp|quot);)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z", re.ASCII)
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9_]", re.ASCII)

_NATIVE = "tieline"
_NO_IDS: Mapping[str, str] = {}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def channel_params(
    message: Message, *, member: str, now_ms: int, channels: Mapping[str, str] = _NO_IDS
) -> dict[str, Any]:
    """The parameters of `notifications/claude/channel`: what was said, and what the hub says about it.

    `channels` has the ids of channels by name; a channel that is not in it is named by its name.
    """
    meta = dict(_attributes(message, member, now_ms, channels))
    if message.kind is not Kind.CHAT:
        meta["kind"] = kind_of(message)
    return {"content": content(message), "meta": meta}


def channel_text(
    message: Message, *, member: str, now_ms: int, channels: Mapping[str, str] = _NO_IDS, whole: bool = False
) -> str:
    """The same as text, for programs that have no such notification; `whole` does not cut a long body."""
    attributes = {"kind": kind_of(message), **dict(_attributes(message, member, now_ms, channels))}
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<channel {written}>\n{content(message, whole=whole)}\n</channel>"


def content(message: Message, *, whole: bool = False) -> str:
    """The body, as text that no frame ends in; cut when it is longer than an agent should be given unasked."""
    return escape(neutral(message.body if whole else shortened(message.body)))


def shortened(body: str) -> str:
    """A body as far as an agent is given it; one that is cut says so."""
    if len(body) <= BODY_CHARS_MAX:
        return body
    rest = f"[{len(body) - BODY_CHARS_MAX:,} more characters: 'tieline history --json' has the whole message]"
    return f"{body[:BODY_CHARS_MAX]}\n{rest}"


def escape(text: str) -> str:
    """Text in which nothing opens or closes a frame."""
    return _AMPERSAND.sub("&amp;", text).replace("<", "&lt;")


def attribute(text: str) -> str:
    """Text that stays within the quotes of an attribute, on one line."""
    short = text if len(text) <= ATTRIBUTE_CHARS_MAX else f"{text[:ATTRIBUTE_CHARS_MAX]}…"
    line = neutral(short).replace("\n", "\\n").replace("\t", "\\t")
    return escape(line).replace('"', "&quot;")


def thread_of(message: Message, channels: Mapping[str, str] = _NO_IDS) -> str:
    """Where it was said: `general`, `chan:<id>`, `obj:<id>` or `dm`."""
    target = message.target
    if target.startswith("@"):
        return "dm"
    if target in ("*", f"#{GENERAL}"):
        return str(GENERAL)
    if not target.startswith("#"):
        return target
    protocol = _protocol_of(message)
    kept = protocol.thread_of(message.data or {}) if protocol is not None and protocol.thread_of is not None else None
    return kept or f"chan:{channels.get(target[1:], target[1:])}"


def age(seconds: int) -> str:
    """How long ago, in at most two units."""
    if seconds < _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE}m"
    return f"{seconds // _DAY}d {seconds % _DAY // _HOUR}h"


def kind_of(message: Message) -> str:
    """What sort of saying it is: `chat`, `status`, `event`, or `objective` for what happened to one."""
    return lifecycle.KIND if is_lifecycle(message) else message.kind.value


def is_lifecycle(message: Message) -> bool:
    """Whether it tells what happened to an objective."""
    return lifecycle.is_lifecycle(message.kind, message.target, message.data)


def _protocol_of(message: Message) -> Protocol | None:
    """The protocol it was said by, if that is there and not the hub's own."""
    return next((protocol for protocol in protocols() if protocol.name == message.protocol), None)


def _attributes(message: Message, member: str, now_ms: int, channels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in _said_by_the_hub(message, member, now_ms, channels):
        if value:
            yield name, attribute(value)
    yield from _of_data(_told(message))


def _told(message: Message) -> Mapping[str, Any]:
    """The data, but for what the body of a lifecycle message says in words."""
    data = message.data or {}
    return {name: value for name, value in data.items() if name != "event"} if is_lifecycle(message) else data


def _said_by_the_hub(
    message: Message, member: str, now_ms: int, channels: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    yield "from", message.sender
    yield "thread", thread_of(message, channels)
    yield "title", message.title or ""
    yield "self", "yes" if message.sender == member else ""
    if message.target.startswith("@"):
        yield "target", message.target[1:]
    elif message.target.startswith("#"):
        yield "channel", message.target[1:]
    yield "level", message.level.value
    yield "ts", datetime.fromtimestamp(message.sent_at_ms / 1000, UTC).strftime("%m/%d/%y %H:%M:%S UTC")
    yield "age", age((now_ms - message.sent_at_ms) // 1000)
    yield "msg_id", message.id
    yield "priority", "" if message.priority is Priority.NORMAL else message.priority.value
    protocol = _protocol_of(message)
    framed = message.protocol == _NATIVE or (protocol is not None and protocol.is_framed)
    yield "via", "" if framed else message.protocol
    yield "verified", "" if message.verified else "no"
    yield "signature", "" if message.signature is Signature.VERIFIED else message.signature.value
    yield "reply_to", message.reply_to or ""
    yield "supersedes", message.supersedes or ""
    yield "conversation", message.thread or ""
    yield "scope", message.scope or ""
    yield "refs", ", ".join(message.refs)
    yield "attachments", ", ".join(attachment.path for attachment in message.attachments)
    yield "notes", "; ".join(message.notes)


def _of_data(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Scalars of the data under names that every reader takes; what is left out is counted."""
    taken: set[str] = set()
    left_out = 0
    for name, value in data.items():
        key = _NOT_IN_KEY.sub("_", name)
        # `from_` would be read as `from`, and `From` as well.
        if key.strip("_").lower() in RESERVED or value is None:
            continue
        is_scalar = isinstance(value, str | int | float | bool)
        if not is_scalar or not _KEY.match(key) or key.lower() in taken or len(taken) == DATA_MAX:
            left_out += 1
            continue
        taken.add(key.lower())
        yield key, attribute(_scalar(value))
    if left_out:
        yield "data_left_out", str(left_out)


def _scalar(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
