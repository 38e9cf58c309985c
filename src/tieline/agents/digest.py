"""The digest: sorts the waiting messages of a member into current and obsolete ones.

Used by: `tieline inbox --digest`, `discard` and hooks. Uses: nothing; it does no I/O. The digest only names obsolete
messages. A message is discarded only if somebody asks for that.
"""

from collections.abc import Sequence

from msgspec import Struct

from tieline.client import Item, Message, ReceiptView
from tieline.contract.message import Priority
from tieline.protocols.mcp.framing import age

OLDER_MS = 6 * 3600 * 1000
"""Age in milliseconds at which a message is obsolete if its thread has newer messages. It is about half a working
day."""

EXCERPT_CHARS = 80
_NAMED_MAX = 3  # this many ids fit on a line


class Obsolete(Struct, frozen=True):
    """Result for a waiting message that is probably obsolete: the item and the reason."""

    item: Item
    why: str


class Over(Struct, frozen=True):
    """Result for a message that expired or was superseded before anybody handled it: the message and the reason."""

    message: Message
    why: str


class Digest(Struct, frozen=True):
    """Digest of a member's inbox: the waiting messages (`current` and `obsolete`), and expired messages (`over`)."""

    current: tuple[Item, ...]
    obsolete: tuple[Obsolete, ...]
    over: tuple[Over, ...] = ()
    held: int = 0
    """Number of waiting messages that the hub holds (does not deliver yet), so that they cannot be read."""


def sort_out(
    items: Sequence[Item], past: Sequence[Message] = (), *, now_ms: int, older_ms: int = OLDER_MS
) -> tuple[list[Item], list[Obsolete]]:
    """Return two lists of the waiting `items`: current ones, and obsolete ones with the reason.

    An item is obsolete if it is older than `older_ms` and its thread has a newer message. The newer message is in
    `items` or in `past`, which holds other known messages. A message without a thread is always current, because two
    messages from the same member may have different subjects.
    """
    latest: dict[str, Message] = {}
    for message in (*past, *(item.message for item in items)):
        if message.thread and (message.thread not in latest or message.offset > latest[message.thread].offset):
            latest[message.thread] = message
    current: list[Item] = []
    obsolete: list[Obsolete] = []
    for item in items:
        message = item.message
        last = latest.get(message.thread) if message.thread else None
        seconds = (now_ms - message.sent_at_ms) // 1000
        if last is not None and last.offset > message.offset and seconds * 1000 >= older_ms:
            obsolete.append(Obsolete(item, f"{age(seconds)} old, and its thread went on with {last.id}"))
        else:
            current.append(item)
    return current, obsolete


def suspects(past: Sequence[Message], waiting: Sequence[Item], *, member: str, now_ms: int) -> list[Message]:
    """Return the messages of `past` that may have expired or been superseded before the member handled them.

    `waiting` are the items in the member's inbox. The caller must read the receipts of each message, which show if it
    really expired.
    """
    superseded = {message.supersedes for message in (*past, *(item.message for item in waiting)) if message.supersedes}
    unsettled = {item.message.id for item in waiting}
    return [
        message
        for message in past
        if message.sender != member
        and message.id not in unsettled
        and (message.id in superseded or (message.ttl_ms is not None and message.sent_at_ms + message.ttl_ms <= now_ms))
    ]


def ending(receipts: Sequence[ReceiptView], member: str) -> str | None:
    """Return the reason why a message expired for a member; `None` if it did not expire.

    `receipts` are the receipts of the message.
    """
    for receipt in receipts:
        if receipt.member == member and receipt.state == "expired":
            return receipt.steps[-1].evidence or receipt.state
    return None


def excerpt(message: Message) -> str:
    """Return the beginning of a message's body, on one line."""
    body = " ".join(message.body.split())
    return f"{body[:EXCERPT_CHARS]}…" if len(body) > EXCERPT_CHARS else body


def rest_line(items: Sequence[Item], *, member: str, now_ms: int, how: str) -> str:
    """Return one line about waiting items that are not shown: number, urgency and age.

    The line ends with `how`, which says how to read the items.
    """
    if not items:
        return ""
    oldest = min(item.message.sent_at_ms for item in items)
    urgent = sum(item.message.priority is Priority.URGENT for item in items)
    facts = [f"{urgent} urgent"] if urgent else []
    facts.append(f"oldest {age((now_ms - oldest) // 1000)} ago")
    named = ", ".join(item.message.id for item in items[:_NAMED_MAX])
    more = "…" if len(items) > _NAMED_MAX else ""
    return f"{len(items)} more unread message(s) for {member} ({', '.join(facts)}; {named}{more}): {how}"
