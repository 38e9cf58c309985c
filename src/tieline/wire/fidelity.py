"""Fidelity: the message fields that each protocol can express, and the place for the fields that it cannot express.

Used by: every protocol, which declares its `Carriage`. Uses: the contract.

A recipient's protocol may have no place for a field. Then the recipient finds the field under the hub's name, in one
place of the message that only the hub writes (`beyond`). A sender's protocol may have no place for a field, but
free-form data. Then the sender writes the field into the data, under the hub's name (`labels`). A field that the hub
does not know goes only to recipients on the sender's own protocol. For all other recipients, the message has a note
with the name of the field. `docs/interop.md` is made from the `Carriage` tables.
"""

from collections.abc import Container, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import message as m
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.target import TargetKind


class Field(StrEnum):
    """Names of the fields of a message in addition to its body, sender and target."""

    DATA = "data"
    TITLE = "title"
    LEVEL = "level"
    PRIORITY = "priority"
    KIND = "kind"
    TOPIC = "topic"
    SCOPE = "scope"
    THREAD = "thread"
    REPLY_TO = "reply_to"
    SUPERSEDES = "supersedes"
    REFS = "refs"
    ATTACHMENTS = "attachments"
    TTL = "ttl_ms"
    OWN = "own"
    """Data that only one protocol understands: the protocol through which the message was sent."""


class Carriage(Struct, frozen=True):
    """Declaration of one protocol: for each message field, the place of the field in the protocol's format."""

    protocol: str
    says: Mapping[Field, str]
    """Message field → the place where a sender writes the field. A field that is not in this table cannot be sent with
    this protocol."""
    carries: Mapping[Field, str]
    """Message field → the place where a recipient finds the field in the protocol's own format."""
    rest: str
    """The place where a recipient finds the fields that are not in `carries`."""


def beyond(message: m.Message, carried: Container[Field]) -> dict[str, Any]:
    """Return the fields of a message for which a protocol's format has no place, as the hub's field name → value.

    `carried` are the fields for which the format has a place.
    """
    said = message.content
    found: dict[str, Any] = {} if message.verified else {"verified": False}
    objective = said.target.kind is TargetKind.OBJECTIVE
    values = (
        (Field.TITLE, said.title),
        (Field.LEVEL, None if said.level is m.Level.INFO else said.level.value),
        (Field.PRIORITY, None if said.priority is m.Priority.NORMAL else said.priority.value),
        # The data of a message in an objective's thread already shows its kind.
        (Field.KIND, None if said.kind is m.Kind.CHAT or objective else said.kind.value),
        (Field.TOPIC, said.topic),
        (Field.SCOPE, said.scope),
        (Field.THREAD, said.thread),
        (Field.REPLY_TO, said.reply_to),
        (Field.SUPERSEDES, said.supersedes),
        (Field.DATA, said.data),
        (Field.REFS, said.refs),
        (Field.ATTACHMENTS, said.attachments),
        (Field.TTL, said.ttl_ms),
    )
    for name, value in values:
        if value and name not in carried:
            found[name.value] = value
    if Field.ATTACHMENTS.value in found:
        found[Field.ATTACHMENTS.value] = [msgspec.to_builtins(one) for one in said.attachments]
    if said.notes:
        found["notes"] = said.notes
    return found


LABELS = (Field.TITLE, Field.LEVEL, Field.PRIORITY, Field.SCOPE, Field.THREAD, Field.REPLY_TO, Field.REFS)
"""Fields that a sender may write into the free-form data of a message, if the protocol has no other place for them."""

_WORDS: dict[Field, frozenset[str]] = {
    Field.LEVEL: frozenset(m.Level),
    Field.PRIORITY: frozenset(m.Priority),
}
_TYPES: dict[Field, type] = {Field.LEVEL: m.Level, Field.PRIORITY: m.Priority}
_LABEL_CHARACTERS = DEFAULT_LIMITS.text_bytes_max // 4
"""Most characters of a value that is taken from free-form data. A text of this length does not exceed the byte limit in
any alphabet."""


def labels(
    data: Mapping[str, Any] | None, keys: Container[Field] = LABELS, *, thread: str = Field.THREAD.value
) -> dict[str, Any]:
    """Return the message fields that a sender wrote into the free-form data, as field name → value.

    The data itself is not changed. Only the fields in `keys` are returned. `thread` is the name that the data uses for
    the thread. A value of the wrong type is ignored, because the sender used the name for something else.
    """
    found: dict[str, Any] = {}
    if not data:
        return found
    for name in LABELS:
        value = data.get(thread if name is Field.THREAD else name.value)
        if value is None or name not in keys:
            continue
        if name is Field.REFS:
            if isinstance(value, list) and len(value) <= DEFAULT_LIMITS.refs_max and all(map(_is_label, value)):
                found[name.value] = tuple(value)
        elif _is_label(value) and value in _WORDS.get(name, (value,)):
            found[name.value] = _TYPES.get(name, str)(value)
    return found


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LABEL_CHARACTERS


def own_note(protocol: str, *names: str) -> tuple[str, ...]:
    """Return a note for a message with fields that only members of `protocol` understand. The note lists `names`.

    `names` are the names of these fields. Return an empty tuple if there are no names.
    """
    return (f"for {protocol} alone: {', '.join(names)[:_NOTE_CHARACTERS]}",) if names else ()


_NOTE_CHARACTERS = 500
"""Most characters of all names in a note together. The limit is needed because a sender may use any number of names."""
