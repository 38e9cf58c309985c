"""Fidelity: what each wire can say of a message, and where it puts what it has no words for.

Above: every protocol, which declares its `Carriage`. Below: the contract. A recipient finds a field either in the
wire's own words or, by the hub's name for it, in one place that the hub alone writes (`beyond`). A sender whose wire
has free-form data but no word for a field says it there (`labels`), under the same name. What only one protocol knows
goes to its own members alone; the message then has a note that says so. `docs/interop.md` is made from the tables.
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
    """What a message can say beside its body, sender and target."""

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
    """What only the protocol itself has a meaning for."""


class Carriage(Struct, frozen=True):
    """What one protocol's wire does with the fields."""

    protocol: str
    says: Mapping[Field, str]
    """Where a sender writes a field; it cannot say the others."""
    carries: Mapping[Field, str]
    """Where a recipient finds a field in the wire's own words."""
    rest: str
    """Where it finds the others."""


def beyond(message: m.Message, carried: Container[Field]) -> dict[str, Any]:
    """What a message says that a wire which carries these fields has no words for, by the hub's names."""
    said = message.content
    found: dict[str, Any] = {} if message.verified else {"verified": False}
    objective = said.target.kind is TargetKind.OBJECTIVE
    values = (
        (Field.TITLE, said.title),
        (Field.LEVEL, None if said.level is m.Level.INFO else said.level.value),
        (Field.PRIORITY, None if said.priority is m.Priority.NORMAL else said.priority.value),
        # What is said in an objective's thread tells by its data what it is.
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
"""What a sender may say in free-form data."""

_WORDS: dict[Field, frozenset[str]] = {
    Field.LEVEL: frozenset(m.Level),
    Field.PRIORITY: frozenset(m.Priority),
}
_TYPES: dict[Field, type] = {Field.LEVEL: m.Level, Field.PRIORITY: m.Priority}
_LABEL_CHARACTERS = DEFAULT_LIMITS.text_bytes_max // 4
"""What is longer is no label; in any alphabet this fits the limit of one."""


def labels(
    data: Mapping[str, Any] | None, keys: Container[Field] = LABELS, *, thread: str = Field.THREAD.value
) -> dict[str, Any]:
    """Parts of a content that its sender wrote into the data, which keeps them too.

    A value of another form means something else to its sender, and is left alone.
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
    """The note on a message that says something only its own protocol understands."""
    return (f"for {protocol} alone: {', '.join(names)[:_NOTE_CHARACTERS]}",) if names else ()


_NOTE_CHARACTERS = 500
"""A sender may use any number of names."""
