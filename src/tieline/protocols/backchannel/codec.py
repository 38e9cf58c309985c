"""The message of backchannel as JSON, and the rules for its names and ids.

Used by: the spool, the relay. Uses: nothing. This module knows nothing about files and sockets. `to` is the target as
the sender wrote it: `@agent`, a bare name, or `#channel`. Names and ids are checked here, because they become parts of
file paths later.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.refusal import Code, Refusal

# spec, Message: a priority is one of these two.
NORMAL = "normal"
URGENT = "urgent"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_ID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_CHANNEL_MAX = 200
"""Most characters of a channel's name, so that it fits in one line of a list."""


class BadMessage(Exception):
    """Exception: bytes are not a message of backchannel. The text says why."""


class SpoolMessage(Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One message of backchannel.

    The sender's name is proven only if the message came through the HTTP server (relay).
    """

    id: str
    sender: str
    to: str
    body: str
    ts: str
    """Time at which the message was sent: ISO 8601, UTC, with milliseconds."""
    priority: str = NORMAL
    """`normal` or `urgent`. Any other word is stored unchanged."""
    scope: str | None = None
    thread: str | None = None
    """Id of the message that this message answers."""
    refs: tuple[str, ...] = ()

    @property
    def urgent(self) -> bool:
        """True if the priority is `urgent`: the message asks to wake the recipient."""
        return self.priority == URGENT


def document_of(message: SpoolMessage) -> dict[str, Any]:
    """Return a message as a JSON object, with the keys in the order of the protocol.

    Empty optional keys are left out.
    """
    # spec, Message: scope, thread and refs are optional.
    document: dict[str, Any] = {
        "id": message.id,
        "from": message.sender,
        "to": message.to,
        "body": message.body,
        "priority": message.priority,
    }
    if message.scope:
        document["scope"] = message.scope
    if message.thread:
        document["thread"] = message.thread
    if message.refs:
        document["refs"] = message.refs
    document["ts"] = message.ts
    return document


def encode(message: SpoolMessage) -> bytes:
    """Return a message as JSON bytes, for a file of a spool or an answer over HTTP."""
    return msgspec.json.encode(document_of(message))


def decode(data: bytes) -> SpoolMessage:
    """Return the message in JSON bytes. Keys that are null or unknown are ignored.

    Raise `BadMessage` if it is invalid.
    """
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
        # spec, Trust model: anybody who can write to a spool can forge a message, so every key is checked.
        said = {key: value for key, value in document.items() if value is not None}
        return msgspec.convert(said, SpoolMessage)
    except RecursionError as error:
        raise BadMessage("it is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(str(error)) from error


def check_message(message: SpoolMessage) -> Refusal | None:
    """Return a refusal if a message cannot be sent, because it is empty, too large or not encodable.

    Return `None` if the message is valid.
    """
    if not message.body:
        return Refusal(Code.INVALID_MESSAGE, "the body is empty: say something")
    try:
        size = len(encode(message))
    except UnicodeEncodeError:
        return Refusal(Code.INVALID_MESSAGE, "the text holds half a surrogate pair, which no file can carry")
    if size > DEFAULT_LIMITS.message_bytes_max:
        limit = DEFAULT_LIMITS.message_bytes_max
        return Refusal(Code.MESSAGE_TOO_LARGE, f"the message is larger than {limit} bytes")
    return None


# Names, ids and targets.


def check_name(name: str) -> Refusal | None:
    """Return a refusal if no agent can have this name, else `None`. Existing clients rely on the refusal's wording."""
    if _NAME.match(name):
        return None
    return Refusal(Code.INVALID_NAME, f'invalid agent name "{name[:140]}" (use letters, digits, . _ -)')


def is_id(text: str) -> bool:
    """True if this text can be the id of a message: a UUID. Every client makes ids in this form."""
    return _ID.match(text) is not None


def is_channel(target: str) -> bool:
    """True if a target names a channel. Any other target names an agent."""
    # spec, Message: to is the original target, @agent or #channel.
    return target.startswith("#")


def agent_of(target: str) -> str:
    """Return the agent's name in a target. `target` is `@agent` or only the name."""
    return target.removeprefix("@")


def channel_of(text: str) -> str | Refusal:
    """Return a channel's name with its `#`, or a refusal if the name is invalid. `text` may come without the `#`."""
    name = text if text.startswith("#") else f"#{text}"
    if name == "#" or len(name) > _CHANNEL_MAX or not name.isprintable():
        return Refusal(Code.INVALID_NAME, f"{text[:_CHANNEL_MAX]!r} cannot be a channel's name")
    return name


# Time.


def timestamp(at_ms: int) -> str:
    """Return a time in milliseconds as ISO 8601 text, the format in messages and agent records."""
    # spec, Message: ts is written in milliseconds and UTC.
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    # Cached, because an inbox often has many messages of the same second.
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def moment(ts: str) -> int | None:
    """Return the time in an ISO 8601 text as milliseconds. Return `None` if the text is not a time."""
    try:
        found = datetime.fromisoformat(ts)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)
