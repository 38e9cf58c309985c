"""Rows of every store as values of the contract: messages, members, and the snapshots of their inboxes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tieline.contract.identifiers import MemberName
from tieline.contract.member import Member, MemberKind, Origin
from tieline.contract.message import Content, Message, Signature
from tieline.core.inbox import Image
from tieline.core.store import DamagedError, MemberImage, MemberRow

content_decoder = msgspec.json.Decoder(Content)

CONTENT = 5
"""Index of the column with the content in a database row of a message."""

_VALUE_BYTES = 64
"""Number of bytes that are counted at least for each comma and each opening bracket in a message's content, for the
size limit of a page. A small value takes as long to decode as a longer text."""


def page_bytes(content: bytes) -> int:
    """Return the size of a message's content for the size limit of a page. Commas and brackets in texts count, too."""
    return max(len(content), _VALUE_BYTES * (content.count(b",") + content.count(b"[") + content.count(b"{")))


def decode_message(row: Sequence[Any]) -> Message:
    """Return the message in a row of the database. Raise `DamagedError` if its content cannot be decoded."""
    offset, message_id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature = row
    try:
        said = content_decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"the message at offset {offset} is damaged: {error}") from error
    return Message(
        id=message_id,
        offset=offset,
        sender=sender,
        protocol=protocol,
        sent_at_ms=sent_at_ms,
        content=said,
        wire_id=wire_id,
        verified=bool(verified),
        hops=hops,
        cause=cause,
        signature=Signature(signature),
    )


def member_row(row: Sequence[Any]) -> MemberRow:
    """Return the member in a row of the database."""
    number, name, kind, permissions, origin, created_at_ms, since, *about = row
    decoded = msgspec.json.decode(permissions, type=tuple[str, ...])
    member = Member(MemberName(name), MemberKind(kind), decoded, Origin(origin), created_at_ms, *about)
    return MemberRow(number, member, since)


def member_image(row: Sequence[Any]) -> MemberImage:
    """Return the part of a snapshot for one member, from a row of the database."""
    number, base, offsets, stream_seqs, rungs, streams, last_seen_ms = row
    image = Image(base, offsets, stream_seqs, rungs)
    return MemberImage(number, image, msgspec.json.decode(streams, type=dict[str, int]), last_seen_ms)
