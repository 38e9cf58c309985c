"""Seals: checks that messages and objective changes in the database match the hashes in the rows of the main log.

A row of the audit chain holds a hash (`digest`) of its message or of its change of an objective. An audit computes this
hash again from the stored data.
"""

import msgspec
from msgspec import MsgspecError, Struct

from tieline.contract.chain import seal, seal_stored
from tieline.stores.pages import MainPage
from tieline.stores.sqlite.pages import LogPages


class _Sealed(Struct, frozen=True, tag_field="event", tag="send", gc=False):
    digest: str
    target: str
    id: str


class _Changed(Struct, frozen=True, tag_field="event", tag="objective", gc=False):
    digest: str
    id: str


class _Redacted(Struct, frozen=True, tag_field="event", tag="redact", gc=False):
    digest: str
    offset: int
    id: str


class _Note(Struct, frozen=True):
    """Data of the note that replaces erased content: the offset of the log row about the erasure."""

    row: int


class _Content(Struct, frozen=True):
    data: _Note


_decode_redacted = msgspec.json.Decoder(_Redacted).decode
_decode_content = msgspec.json.Decoder(_Content).decode
_decode = msgspec.json.Decoder(_Sealed | _Changed).decode


def broken_seals(page: MainPage, pages: LogPages) -> set[int]:
    """Return the offsets of the rows whose hash does not match the message or change stored beside them.

    A redacted message has another hash, which a later row contains. `pages` reads such rows.
    """
    events = {row[0]: (row[1], row[2]) for row in page.rows}
    broken = set()
    for message in page.messages:
        offset, message_id, sender, protocol, wire_id, target, sent, _, verified, _, _, signature, content, route = (
            message
        )
        stamps = (message_id, sender, protocol, verified, sent)
        said = _read(events.get(offset))
        told = isinstance(said, _Sealed) and (said.id, said.target) == (message_id, target)
        own = seal_stored(content, route, stamps, signature, wire_id)
        if not told or said is None or (said.digest != own and not _redacted(offset, message_id, content, own, pages)):
            broken.add(offset)
    for offset, objective, actor, happening in page.happenings:
        at_ms = events[offset][0] if offset in events else 0
        changed = _read(events.get(offset))
        if not isinstance(changed, _Changed) or changed.digest != seal(happening, b"", objective, actor, at_ms):
            broken.add(offset)
    return broken


def _redacted(offset: int, message_id: str, content: bytes, seal: str, pages: LogPages) -> bool:
    """True if a row of the log says that this message was redacted, and has the hash of what is stored now."""
    try:
        row = _decode_content(content).data.row
        said = _decode_redacted(pages.event(row) or b"")
    except (MsgspecError, ValueError, RecursionError):
        return False
    return (said.offset, said.id, said.digest) == (offset, message_id, seal)


def _read(row: tuple[int, bytes] | None) -> _Sealed | _Changed | None:
    try:
        return _decode(row[1]) if row else None
    except (MsgspecError, ValueError, RecursionError):
        return None
