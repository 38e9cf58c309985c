"""Framing: turns a message into the frame (the tags `<channel …>` around it) that an agent is shown.

Used by: the MCP servers, which push `channel_params`; the Codex runner and the hooks, which print `channel_text`. Uses:
the declarations of the protocols. It does no I/O. By the frame, an agent can tell a message from the words of its user.

Other people, often models, write the body, the names, the titles and the data of a message. None of these texts may
close the frame, open another frame, or add to the hub's own attributes. So in a body every `<` is escaped as `&lt;`. An
`&` is escaped as `&amp;` only where a reader would take it for the start of an escape. The escaping can be reversed
exactly, and commands such as `make && make test` stay as they are. In an attribute, `"`, line ends and tabs are escaped
as well. Terminal control characters are made visible (`contract.text`). A reader of the frame is safe without knowing
these rules.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tieline.contract import lifecycle
from tieline.contract.identifiers import GENERAL
from tieline.contract.message import Kind, Priority, Signature
from tieline.contract.text import neutral
from tieline.protocols import protocols
from tieline.wire.native.frames import Message
from tieline.wire.protocol import Protocol

BODY_CHARS_MAX = 65_536
"""Largest number of characters of a body that is shown to an agent. Agents' protocols accept no more, and a model
should get more only if it asks for it."""

ATTRIBUTE_CHARS_MAX = 512
"""Largest number of characters of an attribute in the tag around a message. An attribute is a label, never a
document."""

DATA_MAX = 32
"""Largest number of attributes made from the entries of a message's data. Other entries, and values that are no
scalars, are only counted."""

RESERVED = frozenset(
    {
        *("from", "thread", "level", "msg_id", "ts", "ts_ms", "title", "target", "channel", "source", "content"),
        *("kind", "age", "via", "verified", "signature", "priority", "reply_to", "conversation", "scope"),
        *("refs", "attachments", "notes", "data_left_out", "self", "supersedes", "topic", "ttl_ms"),
    }
)
"""Attributes of the tag around a message that only the hub may set. Entries of the message's data with such a name, in
upper or lower case, are not shown."""

_AMPERSAND = re.compile(r"&(?=(?:lt|amp|quot);)")
_ESCAPED = re.compile(r"&(lt|amp);")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z", re.ASCII)
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9_]", re.ASCII)

_NATIVE = "tieline"
_NO_IDS: Mapping[str, str] = {}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def channel_params(
    message: Message, *, member: str, now_ms: int, channels: Mapping[str, str] = _NO_IDS
) -> dict[str, Any]:
    """Return the parameters of Claude Code's `notifications/claude/channel`: the message's body and attributes.

    `member` is the agent that reads the message. `now_ms` is the current time, for the age of the message. `channels`
    maps the names of the hub's channels to their ids. A channel that is not in `channels` is shown by its name.
    """
    meta = dict(_attributes(message, member, now_ms, channels))
    if message.kind is not Kind.CHAT:
        meta["kind"] = kind_of(message)
    return {"content": content(message), "meta": meta}


def channel_text(
    message: Message, *, member: str, now_ms: int, channels: Mapping[str, str] = _NO_IDS, whole: bool = False
) -> str:
    """Return a message as text inside its tags `<channel …>`.

    The text is for programs without Claude Code's channel notifications. `member` is the agent that reads the message.
    `now_ms` is the current time, for the age of the message. `channels` maps names of channels to their ids. With
    `whole`, a long body is not cut.
    """
    attributes = {"kind": kind_of(message), **dict(_attributes(message, member, now_ms, channels))}
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<channel {written}>\n{content(message, whole=whole)}\n</channel>"


def content(message: Message, *, whole: bool = False) -> str:
    """Return the body of a message, escaped so that it cannot close the tag around it.

    Without `whole`, a body over `BODY_CHARS_MAX` is cut.
    """
    return escape(neutral(message.body if whole else shortened(message.body)))


def shortened(body: str) -> str:
    """Return the body of a message, cut at `BODY_CHARS_MAX`. A body that was cut ends with a note about the cut."""
    if len(body) <= BODY_CHARS_MAX:
        return body
    rest = f"[{len(body) - BODY_CHARS_MAX:,} more characters: 'tieline history --json' has the whole message]"
    return f"{body[:BODY_CHARS_MAX]}\n{rest}"


def escape(text: str) -> str:
    """Return a text escaped, so that it cannot open or close a tag `<channel>`."""
    return _AMPERSAND.sub("&amp;", text).replace("<", "&lt;")


def unescape(text: str) -> str:
    """Return the original of a text that `escape` has escaped."""
    return _ESCAPED.sub(lambda found: "<" if found[1] == "lt" else "&", text)


def attribute(text: str) -> str:
    """Return a text shortened and escaped, so that it fits in the quotes of an attribute, on one line."""
    short = text if len(text) <= ATTRIBUTE_CHARS_MAX else f"{text[:ATTRIBUTE_CHARS_MAX]}…"
    line = neutral(short).replace("\n", "\\n").replace("\t", "\\t")
    return escape(line).replace('"', "&quot;")


def thread_of(message: Message, channels: Mapping[str, str] = _NO_IDS) -> str:
    """Return the place to which a message was sent: `general`, `chan:<id>`, `obj:<id>`, or `dm` (direct message)."""
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
    """Return an age in seconds as text, in at most two units, such as hours and minutes."""
    if seconds < _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE}m"
    return f"{seconds // _DAY}d {seconds % _DAY // _HOUR}h"


def kind_of(message: Message) -> str:
    """Return the kind of a message: `chat`, `status`, `event`, or `objective` for an event of an objective."""
    return lifecycle.KIND if is_lifecycle(message) else message.kind.value


def is_lifecycle(message: Message) -> bool:
    """True if the message reports an event of an objective."""
    return lifecycle.is_lifecycle(message.kind, message.target, message.data)


def _protocol_of(message: Message) -> Protocol | None:
    """Return the protocol over which a message was sent.

    Return `None` for the hub's own protocol and for unknown protocols.
    """
    return next((protocol for protocol in protocols() if protocol.name == message.protocol), None)


def _attributes(message: Message, member: str, now_ms: int, channels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in _said_by_the_hub(message, member, now_ms, channels):
        if value:
            yield name, attribute(value)
    yield from _of_data(_told(message))


def _told(message: Message) -> Mapping[str, Any]:
    """Return the entries of a message's data that are shown as attributes.

    If the message reports an event of an objective, the key `event` is left out, because the body describes the event.
    """
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
    yield "topic", message.topic
    yield "scope", message.scope or ""
    yield "ttl_ms", str(message.ttl_ms or "")
    yield "refs", ", ".join(message.refs)
    yield "attachments", ", ".join(attachment.path for attachment in message.attachments)
    yield "notes", "; ".join(message.notes)


def _of_data(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield an attribute (name, text) for each scalar value in the data of a message.

    Values that are no scalars are only counted. Names are changed to a form that every program accepts as the name of
    an attribute.
    """
    taken: set[str] = set()
    left_out = 0
    for name, value in data.items():
        key = _NOT_IN_KEY.sub("_", name)
        # A reader could take `from_` or `From` for `from`.
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
