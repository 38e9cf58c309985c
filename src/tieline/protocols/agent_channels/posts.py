"""Posts: converts between a message of a client and a message of the hub, both ways.

Used by: `server`. Uses: `codec`, `large` and `wire.fidelity`. A client of this protocol has no name. So a `data.from`
that is the name of a member is replaced. A `data.tieline` is removed, because only the hub may set it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tieline.contract import message as m
from tieline.contract.target import Target
from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.large import LargeMessage
from tieline.wire.fidelity import LABELS, Carriage, Field, beyond, labels, own_note
from tieline.wire.frames import HEADER_BYTES, encode_frame

PROTOCOL = "agent-channels"

STAMP = "tieline"
"""Key of `data` that only the hub may set."""

CARRIAGE = Carriage(
    PROTOCOL,
    says={Field.DATA: "`data`", **{name: f"`data.{name}`" for name in LABELS}, Field.OWN: "other top-level keys"},
    carries={Field.DATA: "`data`"},
    rest=f"`data.{STAMP}`",
)

_LABEL_BYTES_MAX = 64 * 1024
"""Largest size in bytes of a value in `data` that is read as a label, such as `priority`. A list of references fits,
too."""

_ABSENT = msgspec.Raw(b"")
_FROM = "from"
_KNOWN = {f"{name}_": name for name in (*map(str, LABELS), _FROM, STAMP)}
"""The keys of `data` that the hub reads, by the name of the struct field that decodes each key."""

_known_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct("_Known", [(field, msgspec.Raw, _ABSENT) for field in _KNOWN], rename=_KNOWN)
)
_parts_decoder: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def frame_of(message: m.Message) -> bytes | None:
    """Return a message of the hub as a frame (an encoded message) of agent-channels.

    Returns `None` if the message does not fit. A message from agent-channels goes out unchanged. A message from another
    protocol carries its sender in `data.from`, and its other fields in `data.tieline`. A sender cannot forge these two
    keys, because the hub sets them last.
    """
    said = message.content
    try:
        if message.protocol == PROTOCOL:
            return encode_frame(said.original) if said.original else _encode(Message(said.body, said.data))
        stamp = {"id": message.id, "target": str(said.target), "sent_at_ms": message.sent_at_ms}
        stamp |= {"level": said.level.value, "priority": said.priority.value, "protocol": message.protocol}
        stamp |= beyond(message, CARRIAGE.carries)
        return _encode(Message(said.body, {**(said.data or {}), "from": message.sender, STAMP: stamp}))
    except InvalidMessage:
        return None


def _encode(message: Message) -> bytes:
    return encode(message, max_size=MESSAGE_BYTES_MAX)


def content_of(
    message: Message | LargeMessage, target: Target, speaker: str, is_anothers: Callable[[object], bool]
) -> m.Content:
    """Return the content of a hub message, made from a message that a client sent.

    `target` is the recipient. `speaker` is the hub's name for the client. `is_anothers` returns true for a name that
    the client must not use.
    """
    if isinstance(message, LargeMessage):
        return _content_of_large(message, target, speaker, is_anothers)
    message, notes = _disarm(message, speaker, is_anothers)
    return m.Content(
        target=target,
        body=message.msg,
        data=message.data,
        notes=(*notes, *own_note(PROTOCOL, *message.extra)),
        **labels(message.data),
        # Top-level keys beside `msg` and `data` are known to this protocol alone.
        original=encode(message)[HEADER_BYTES:] if message.extra else None,
    )


def _disarm(message: Message, speaker: str, is_anothers: Callable[[object], bool]) -> tuple[Message, tuple[str, ...]]:
    """Return a client's message without false values of the keys of `data` that only the hub may set.

    `data.tieline` is removed. A `data.from` that the client must not use is replaced by `speaker`. Also return a note
    about the replaced name, if any. `is_anothers` returns true for a name that the client must not use.
    """
    data = message.data
    if data is None or not (STAMP in data or is_anothers(data.get(_FROM))):
        return message, ()
    data = {key: value for key, value in data.items() if key != STAMP}
    claimed = data.get(_FROM)
    notes: tuple[str, ...] = ()
    if is_anothers(claimed):
        data[_FROM] = speaker
        notes = (_claim(claimed),)
    return Message(message.msg, data, message.extra), notes


def _claim(name: object) -> str:
    return f"claimed to be {name}"


def _content_of_large(
    large: LargeMessage, target: Target, speaker: str, is_anothers: Callable[[object], bool]
) -> m.Content:
    """Return the content of a hub message, made from a large message whose data is not decoded.

    Only recipients on this protocol get the data. The content has a note about that.
    """
    known, stamped = ({}, False) if large.data is None else _known(large.data)
    claimed = known.get(_FROM)
    notes = (_claim(claimed),) if is_anothers(claimed) else ()
    original = large.payload if large.data is not None or large.extra else None
    if stamped or notes:
        original = _disarmed(large, speaker if notes else None)
    own = ("data",) if large.data is not None else ()
    return m.Content(
        target=target,
        body=large.msg,
        notes=(*notes, *own_note(PROTOCOL, *own, *large.extra)),
        **labels(known),
        original=original,
    )


def _known(data: bytes) -> tuple[dict[str, Any], bool]:
    """Return the keys of `data` that the hub reads, with their values. Values that are too long are left out.

    Also return true if `data` has the key `tieline`, which only the hub may set.
    """
    parts = _known_decoder.decode(data)
    found = {name: getattr(parts, field) for field, name in _KNOWN.items()}
    stamped = bool(len(found.pop(STAMP)))
    return {n: msgspec.json.decode(raw) for n, raw in found.items() if 0 < len(raw) <= _LABEL_BYTES_MAX}, stamped


def _disarmed(large: LargeMessage, sender: str | None) -> bytes:
    """Return the payload (JSON) of a large message without `data.tieline`.

    If `sender` is given, it becomes `data.from`.
    """
    assert large.data is not None, "the stamp is in the data"
    parts = _parts_decoder.decode(large.payload)
    data = _parts_decoder.decode(large.data)
    data.pop(STAMP, None)
    if sender is not None:
        data[_FROM] = msgspec.Raw(msgspec.json.encode(sender))
    parts["data"] = msgspec.Raw(msgspec.json.encode(data))
    return msgspec.json.encode(parts)
