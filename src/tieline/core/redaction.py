"""Redaction: erases the content of a message that should never have been sent, such as a leaked secret.

The row of the message in the log stays, and so does its hash. A row about the redaction has the hash of the note that
is stored instead. So the audit chain stays whole, and an audit can tell a redaction from a forgery. Parts that keep
copies of messages (files of protocols, the search index, attachments) delete them when they get `MessageRedacted`. A
crash may come before that. So `Redact` for a redacted message sends the notice once more, without another row.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tieline.contract import chain
from tieline.contract import command as c
from tieline.contract.event import Redacted
from tieline.contract.hub import MessageRedacted
from tieline.contract.message import Content, Message, Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Redaction
from tieline.core import ledger
from tieline.core.batch import Batch
from tieline.core.directory import Session
from tieline.core.journal import Erase
from tieline.core.outcome import Deferred
from tieline.core.rules import Rules, decides

EVENT = "redacted"
"""Value of `event` in the data of a note that stands in the place of erased content."""
_TEXT_CHARS_MIN = 8
"""Length of the shortest text that is looked for in copies. A shorter one, such as "ok", is in many by chance."""
_TEXTS_MAX = 32
"""Number of texts of one message that are looked for. For each, all activity is read."""


class RedactionRules(Rules):
    """Rule for the command `Redact`."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits

    @decides(c.Redact)
    def redact(self, session: Session, command: c.Redact) -> Redaction | Refusal | Deferred:
        """Replace the content of a message by a note. The journal erases it from the activity log, and replies.

        The journal erases the content twice. The first time is before the replacement, because the texts to erase are
        still known then, even after a failure. The second time is after the replacement, because an agent may have
        quoted the message in between.
        """
        batch, reason = self._batch, command.reason.strip()
        if not session.operator:
            return Refusal(Code.FORBIDDEN, "only the operator of the hub, who has the key of its home, may redact")
        if not reason or len(reason.encode(errors="replace")) > self._limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"give a reason of at most {self._limits.text_bytes_max} bytes")
        found = self._store.find_message(command.message_id)
        if found is None:
            return Refusal(Code.UNKNOWN_MESSAGE, f"there is no message {command.message_id!r}")
        message, route = found
        repeated = self._repeat(message)
        if repeated is not None:
            return repeated
        texts, offset = texts_of(message.content), batch.ledger.end
        redacted = replace(message, content=_note(message.content, session.speaker, reason, offset), signature=_NONE)
        erase = Erase(texts, redacted.content.body)
        if not command.erased:
            return Deferred(erase, then=replace(command, erased=True))
        encoded = ledger.encode_content(redacted.content)
        digest = chain.seal_message(redacted, encoded, route.pack())
        paths = tuple(attachment.path for attachment in message.content.attachments)
        event = Redacted(message.id, message.offset, session.speaker, reason, digest, paths)
        row = batch.ledger.append(event, batch.now_ms)
        self._store.redact(row, message.offset, encoded)
        batch.changed = batch.dirty = batch.outcome.urgent = True
        batch.outcome.changes.append(MessageRedacted(redacted, paths))
        return Deferred(replace(erase, reply=Redaction(session.speaker, batch.now_ms)))

    def _repeat(self, message: Message) -> Redaction | Refusal | None:
        """If the message was redacted before, let all parts delete their copies again. Otherwise return `None`.

        A message that looks like a note may come from a sender, because senders choose their data. So the log decides
        if the message was redacted.
        """
        data = message.content.data or {}
        offset = data.get("row")
        if (
            data.get("event") != EVENT
            or type(offset) is not int
            or not message.offset < offset < self._batch.ledger.end
        ):
            return None
        rows, end = self._store.read_log(offset, 1)
        if offset >= end:
            # Nobody can read the row before its commit.
            return Refusal(Code.INVALID_REQUEST, f"{message.id} may be in redaction at this moment; redact it again")
        for row in rows:
            event = ledger.decode_event(row.event)
            if row.offset == offset and isinstance(event, Redacted) and event.id == message.id:
                self._batch.outcome.changes.append(MessageRedacted(message, event.attachments, row.at_ms))
                return Redaction(event.by, row.at_ms, again=True)
        # Without its row, which is deleted after a long time, a note is replaced by another one.
        return None


_NONE = Signature.NONE


def _note(content: Content, by: str, reason: str, offset: int) -> Content:
    """Return the content that stands in the place of `content`. `offset` is the log row about the redaction."""
    return Content(
        target=content.target,
        body=f"redacted by {by}: {reason}",
        data={"event": EVENT, "by": by, "reason": reason, "row": offset},
        kind=content.kind,
        topic=content.topic,
        thread=content.thread,
        reply_to=content.reply_to,
        ttl_ms=content.ttl_ms,
        supersedes=content.supersedes,
    )


def texts_of(content: Content) -> tuple[str, ...]:
    """Return the texts of a message that are long enough to be looked for in copies of it, the longest first."""
    found = {content.body, content.title, *_leaves(content.data)}
    texts = {text for text in found if isinstance(text, str) and len(text) >= _TEXT_CHARS_MIN}
    return tuple(sorted(texts, key=lambda text: (-len(text), text))[:_TEXTS_MAX])


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value
