"""Messages: the content from a sender, and the fields that the hub adds (id, sender, time…).

Messages are trees of plain values and cannot form cycles, so the garbage collector skips them (`gc=False`). A hub holds
hundreds of thousands of messages, and scanning each again and again would cost more than handling it.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from tieline.contract.identifiers import MessageId
from tieline.contract.internal import Internal
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target


class Priority(StrEnum):
    """Priority of a message: `urgent` asks to interrupt the recipient."""

    NORMAL = "normal"
    URGENT = "urgent"


class Level(StrEnum):
    """Severity of a message, set by its sender."""

    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Kind(StrEnum):
    """Kind of a message. `status` and `event` messages do not count in the limit on answers between agents."""

    CHAT = "chat"
    STATUS = "status"
    EVENT = "event"


class Signature(StrEnum):
    """Result of checking the sender's signature, if the protocol signs messages."""

    NONE = ""
    """The message has no signature, because its protocol does not sign messages."""
    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    """The hub has no secret to check the signature with."""
    FAILED = "failed"
    MISNAMED = "misnamed"
    """The signed name differs from the name of the session. The signature itself is right or cannot be checked."""


_CONFINED = frozenset({Signature.FAILED, Signature.MISNAMED})
"""Bad results of the signature check.

A message with such a result is delivered only to sessions of one protocol: the protocol that its sender used.
Recipients on that protocol check the signature themselves.
"""


class Attachment(Struct, frozen=True, omit_defaults=True):
    """Description of an attached file. The file store keeps its bytes."""

    path: str
    name: str = ""
    size: int = 0
    media_type: str = ""


class Content(Struct, frozen=True, omit_defaults=True, gc=False):
    """Content of a message, from its sender. The hub never changes it."""

    target: Target
    body: str
    data: dict[str, Any] | None = None
    """Structured data from the sender. The hub passes it on unchanged."""
    title: str | None = None
    level: Level = Level.INFO
    priority: Priority = Priority.NORMAL
    kind: Kind = Kind.CHAT
    topic: str = ""
    """Topic: any word that the sender chooses. Messages with the same topic, sender and recipient are one stream."""
    scope: str | None = None
    """The project that the message is for, such as a repository. Readers that work in other projects skip the message;
    see `scope.matches`."""
    thread: str | None = None
    reply_to: MessageId | None = None
    refs: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    ttl_ms: int | None = None
    """Time to live: deliveries that are not acknowledged this long after sending expire."""
    original: Internal[bytes | None] = None
    """Data that only the sender's protocol uses. If that protocol signs messages, this is the message as it came."""
    notes: tuple[str, ...] = ()
    """One note for each part of the sender's message that the hub could not translate into this content."""
    supersedes: MessageId | None = None
    """An earlier message of the same sender. Recipients of this message need not handle the earlier one any more."""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message: the content from its sender, and the fields that the hub added. Immutable."""

    id: MessageId
    offset: int
    """Position of the message in the main log, the hub's event log."""
    sender: str
    """A member's name, or `client-N@<channel>` for a sender without an identity."""
    protocol: str
    sent_at_ms: int
    content: Content
    wire_id: str | None = None
    verified: bool = True
    """True if `sender` is an authenticated member."""
    hops: int = 0
    """Number of quick replies between agents that led to this message, one caused by the other; see `core.loops`."""
    cause: MessageId | None = None
    signature: Signature = Signature.NONE

    def reaches(self, protocol: str) -> bool:
        """True if sessions of this protocol may get the message.

        A message with a bad signature reaches only sessions of the protocol that it was sent through.
        """
        return self.signature not in _CONFINED or self.protocol == protocol


def _bytes(text: str) -> int:
    """Return the number of bytes of a text in UTF-8. Raise `UnicodeEncodeError` if it has half a surrogate pair."""
    return len(text) if text.isascii() else len(text.encode())


def _label_problem(content: Content, limits: Limits) -> str | None:
    for label, text in (
        ("title", content.title),
        ("topic", content.topic),
        ("scope", content.scope),
        ("thread", content.thread),
        ("reply_to", content.reply_to),
        ("supersedes", content.supersedes),
    ):
        if text is not None and _bytes(text) > limits.text_bytes_max:
            return f"{label} is longer than {limits.text_bytes_max} bytes"
    if len(content.refs) > limits.refs_max or len(content.attachments) > limits.refs_max:
        return f"more than {limits.refs_max} references or attachments"
    named = [text for item in content.attachments for text in (item.path, item.name, item.media_type)]
    if any(_bytes(text) > limits.text_bytes_max for text in (*content.refs, *named)):
        return f"a reference or attachment is longer than {limits.text_bytes_max} bytes"
    return None


def nested_deeper(value: Any, levels: int) -> bool:
    """True if lists and objects in `value` are nested deeper than this many levels."""
    level = [value]
    for _ in range(levels):
        children = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for nodes in children for child in nodes if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def check_content(content: Content, limits: Limits) -> Refusal | None:
    """Return a refusal if the body of a message is empty, or its content exceeds a limit; otherwise `None`."""
    if not content.body:
        return Refusal(Code.INVALID_MESSAGE, "the body is empty: say something")
    ttl_ms = content.ttl_ms
    if ttl_ms is not None and not 0 < ttl_ms <= limits.ttl_ms_max:
        return Refusal(Code.INVALID_MESSAGE, f"ttl_ms must be between 1 and {limits.ttl_ms_max}")
    if content.data and nested_deeper(content.data, limits.nesting_max):
        return Refusal(Code.INVALID_MESSAGE, f"the data is nested deeper than {limits.nesting_max} levels")
    try:
        if _bytes(content.body) > limits.body_bytes_max:
            return Refusal(Code.MESSAGE_TOO_LARGE, f"the body is larger than {limits.body_bytes_max} bytes")
        if (
            content.title is None
            and not content.topic
            and content.scope is None
            and content.thread is None
            and content.reply_to is None
            and content.supersedes is None
            and not content.refs
            and not content.attachments
        ):
            return None
        problem = _label_problem(content, limits)
    except UnicodeEncodeError:
        return Refusal(Code.INVALID_MESSAGE, "the text holds half a surrogate pair, which no wire can carry")
    return Refusal(Code.INVALID_MESSAGE, problem) if problem else None
