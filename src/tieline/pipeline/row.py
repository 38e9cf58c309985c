"""The schema of a log row as the data source returns it, and functions that turn pages of rows into Arrow batches.

Used by: the source. Uses: pages from a hub's database or from its HTTP answer. A row contains its event as it is in the
log. It also contains the message, or the change of an objective, that is stored at the same offset. Bodies stay in the
hub, and a row has only the size of the body. When retention has deleted a message, its columns are null. Only the
thread, the answered message and the hops (the number of automatic replies before it) are known, because the event has
them too.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from tieline.contract.chain import GENESIS_DIGEST, Link, check_link, follows
from tieline.contract.message import Signature
from tieline.stores.pages import MainPage, Said, read_said
from tieline.wire.log_lines import MessageLine

MAIN = "main"
ACTIVITY = "activity"
MOVES = ("deliver", "see", "ack", "claim", "expire", "die")
"""Kinds of events that move deliveries to another state."""
LOGS = (MAIN, ACTIVITY)


def _list(kind: pa.DataType) -> pa.DataType:
    # Engines call the values of a list so, and Sail compares the name.
    return pa.list_(pa.field("element", kind))


SCHEMA = pa.schema(
    [
        ("log", pa.string()),
        ("offset", pa.int64()),
        ("at_ms", pa.int64()),
        ("kind", pa.string()),
        ("event", pa.string()),
        ("hash", pa.binary()),
        # True if the hash follows from the row before and the event; null in the activity log, which has no chain.
        ("chained", pa.bool_()),
        # True if the data stored beside the row match the row's digest; null without `audit`.
        ("sealed", pa.bool_()),
        # Of activity: the member, and when it happened. A move of deliveries has the number of the recipient.
        ("number", pa.int64()),
        ("member", pa.string()),
        ("ts_ms", pa.int64()),
        # Of a message.
        ("id", pa.string()),
        ("sender", pa.string()),
        ("protocol", pa.string()),
        ("wire_id", pa.string()),
        ("target", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("expires_at_ms", pa.int64()),
        ("verified", pa.bool_()),
        ("hops", pa.int32()),
        ("cause", pa.string()),
        ("signature", pa.string()),
        ("scope", pa.string()),
        ("thread", pa.string()),
        ("reply_to", pa.string()),
        ("level", pa.string()),
        ("priority", pa.string()),
        ("saying", pa.string()),
        ("body_bytes", pa.int64()),
        # Recipients: parallel lists of member numbers, delivery keys and names. A move of deliveries has only the keys.
        ("numbers", _list(pa.int64())),
        ("keys", _list(pa.int64())),
        ("recipients", _list(pa.string())),
        # Of an objective.
        ("objective", pa.string()),
        ("actor", pa.string()),
        ("happening", pa.string()),
        # Of a move of deliveries, beside `number`, `protocol` and `keys`: the wire cannot acknowledge; why they ended.
        ("mute", pa.bool_()),
        ("evidence", pa.string()),
    ]
)

_STAMPS = (
    "id", "sender", "protocol", "wire_id", "target", "sent_at_ms", "expires_at_ms", "verified", "hops", "cause",
    "signature",
)  # fmt: skip
_SAID = {
    "scope": attrgetter("scope"),
    "thread": attrgetter("thread"),
    "reply_to": attrgetter("reply_to"),
    "level": attrgetter("level"),
    "priority": attrgetter("priority"),
    "saying": attrgetter("kind"),
    "body_bytes": attrgetter("body_bytes"),
}
"""For each column of a message's content, the function that reads it from the content."""
_FAILED = Signature.FAILED.value
_KEYS_MAX = 1000
"""An event that moves more deliveries than this keeps them only as ranges, in its JSON."""
_NUMBER_MAX = 2**60  # no member and no inbox gets there; a number beyond it was written by somebody else
_TAG = b'{"event":"'
_BEGINS = 18
"""Number of bytes at the start of an event from which its kind is read. Most events of one kind start with the same
bytes.
"""


def main_page(
    page: MainPage, names: Mapping[int, str], broken: Collection[int] | None = None, forged: Collection[int] = ()
) -> pa.RecordBatch:
    """Turn a page of the main log, read from a hub's database, into an Arrow batch.

    `names` has the member names by number. `broken` and `forged` come from an audit. `broken` are the offsets of rows
    that do not match the message or change stored with them. `forged` are the offsets of messages with a wrong
    signature. Without an audit, `broken` is `None` and the column `sealed` is null.
    """
    found = [(*row[:11], _FAILED, *row[12:]) if row[0] in forged else row for row in page.messages]
    messages = _messages(found, names) if found else {}
    batch = main_batch(page.before, page.rows, [row[0] for row in found], messages, page.happenings)
    if broken is None:
        return batch
    sealed = pa.array([row[0] not in broken for row in page.rows], pa.bool_())
    return batch.set_column(SCHEMA.get_field_index("sealed"), SCHEMA.field("sealed"), sealed)


def main_batch(
    before: Sequence[tuple[Any, ...]],
    rows: Sequence[tuple[Any, ...]],
    message_offsets: Sequence[int],
    messages: dict[str, pa.Array],
    happenings: Sequence[tuple[Any, ...]],
) -> pa.RecordBatch:
    """Turn rows of the main log into an Arrow batch. A row is offset, at_ms, event, hash.

    `before` are the two rows before `rows`, with the same columns. `messages` has the columns of the messages at
    `message_offsets`. `happenings` are changes of objectives: offset, objective, actor, change.
    """
    offsets, at_ms, events, hashes = zip(*rows, strict=True)
    positions = np.array(offsets, np.int64)
    kinds = _kinds(events)
    columns: dict[str, pa.Array] = {
        "log": _repeated(MAIN, len(rows)),
        "offset": pa.array(positions),
        "at_ms": pa.array(at_ms, pa.int64()),
        "kind": pa.array(kinds, pa.string()),
        "event": _text(events),
        "hash": pa.array(hashes, pa.binary()),
        "chained": pa.array(_chained(before, rows), pa.bool_()),
    }
    if messages:
        columns |= _placed(messages, positions, message_offsets)
    columns |= _small_facts(columns, positions, message_offsets)
    if happenings:
        places, objectives, actors, what = zip(*happenings, strict=True)
        happened = {"objective": pa.array(objectives, pa.string()), "actor": pa.array(actors, pa.string())}
        columns |= _placed({**happened, "happening": _text(what)}, positions, places)
    for name, moved in _moves(kinds, events).items():
        # A row is either a message or a move.
        columns[name] = pc.coalesce(columns[name], moved) if name in columns else moved
    return _batch(columns, len(rows))


class _Move(Struct, gc=False):
    """Fields of an event that moves deliveries. `keys` are ranges: the first and the last key of each."""

    number: int
    keys: list[tuple[int, int]]
    protocol: str | None = None
    mute: bool | None = None
    evidence: str | None = None


_decode_move = Decoder(_Move).decode


def _moves(kinds: Sequence[str], events: Sequence[bytes]) -> dict[str, pa.Array]:
    """Return the columns of events that move deliveries, with null in all other rows.

    The row of an event that is damaged, or that moves very many deliveries, has null too. Spark then reads the JSON of
    this event.
    """
    places: list[int] = []
    found: list[tuple[Any, ...]] = []
    keys: list[int] = []
    ends = [0]
    for place, kind in enumerate(kinds):
        if kind not in _MOVES:
            continue
        try:
            move = _decode_move(events[place])
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            # Somebody changed the database. The chain check reports that.
            continue
        moved = _expanded(move.keys)
        if moved is None or not 0 <= move.number < _NUMBER_MAX:
            continue
        keys += moved
        ends.append(len(keys))
        places.append(place)
        found.append((move.number, move.protocol, move.mute, move.evidence))
    if not places:
        return {}
    named = zip(("number", "protocol", "mute", "evidence"), zip(*found, strict=True), strict=True)
    columns = {name: pa.array(values, SCHEMA.field(name).type) for name, values in named}
    columns["keys"] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(keys, pa.int64()))
    indices, empty = np.zeros(len(kinds), np.int64), np.ones(len(kinds), bool)
    indices[places], empty[places] = np.arange(len(places)), False
    taken = pa.array(indices, mask=empty)
    return {name: column.take(taken) for name, column in columns.items()}


_MOVES = frozenset(MOVES)


def _expanded(ranges: list[tuple[int, int]]) -> Sequence[int] | None:
    """Return all keys of some ranges. Return `None` if there are very many, or if they are not keys of deliveries."""
    if len(ranges) == 1:
        # Nearly all events move one delivery.
        first, last = ranges[0]
        return range(first, last + 1) if 0 <= first <= last < first + _KEYS_MAX and first < _NUMBER_MAX else None
    keys: list[int] = []
    for first, last in ranges:
        if not (0 <= first <= last < first + _KEYS_MAX and first < _NUMBER_MAX):
            return None
        keys += range(first, last + 1)
    return keys if len(keys) <= _KEYS_MAX else None


class _Sent(Struct):
    """Fields of a message that its event also contains. They are used when retention has deleted the message."""

    thread: str = ""
    reply_to: str = ""
    hops: int = 0


_decode_sent = Decoder(_Sent).decode


def _small_facts(
    columns: dict[str, pa.Array], positions: np.ndarray[Any, Any], beside: Sequence[int]
) -> dict[str, pa.Array]:
    """Return the columns `thread`, `reply_to` and `hops`. For a deleted message, the values come from its event.

    `columns` has the columns of the log rows. `positions` are the offsets of the rows. `beside` are the offsets of the
    messages that are still stored.
    """
    sent = pc.equal(columns["kind"], "send").to_numpy(zero_copy_only=False)
    gone = sent & ~np.isin(positions, np.array(beside, np.int64))
    if not gone.any():
        return {}
    mask = pa.array(gone)
    facts = [_sent(event) for event in columns["event"].filter(mask).to_pylist()]
    found = {}
    for name in ("thread", "reply_to", "hops"):
        kind = SCHEMA.field(name).type
        known = columns.get(name, pa.nulls(len(gone), kind))
        values = pa.array(
            [getattr(fact, name) if name == "hops" else getattr(fact, name) or None for fact in facts], kind
        )
        found[name] = pc.replace_with_mask(known, mask, values)
    return found


def _sent(event: str) -> _Sent:
    try:
        return _decode_sent(event)
    except MsgspecError:
        # Somebody changed the database. The chain check reports that.
        return _Sent()


def activity_batch(rows: Sequence[tuple[Any, ...]], names: Mapping[int, str]) -> pa.RecordBatch:
    """Turn a page of the activity log into an Arrow batch. A row is offset, at_ms, number, kind, ts_ms, event.

    `number` is the number of the member that acted, and `names` has the names of members by number.
    """
    offsets, at_ms, numbers, kinds, ts_ms, events = zip(*rows, strict=True)
    columns = {
        "log": _repeated(ACTIVITY, len(rows)),
        "offset": pa.array(offsets, pa.int64()),
        "at_ms": pa.array(at_ms, pa.int64()),
        "kind": pa.array(kinds, pa.string()),
        "event": _text(events),
        "number": pa.array(numbers, pa.int64()),
        "member": pa.array([names.get(number) for number in numbers], pa.string()),
        "ts_ms": pa.array(ts_ms, pa.int64()),
    }
    return _batch(columns, len(rows))


def _batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _repeated(word: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(word, pa.string()), count)


def _kinds(events: Sequence[bytes]) -> list[str]:
    """Return the kind of each event, such as `send`. The events are JSON, as in the log.

    Many events begin with the same text. Each such beginning is parsed only once.
    """
    known: dict[bytes, str] = {}
    kinds = []
    for event in events:
        begins = event[:_BEGINS]
        kind = known.get(begins)
        if kind is None:
            end = event.find(b'"', len(_TAG))
            kind = event[len(_TAG) : end].decode("ascii", "replace") if event.startswith(_TAG) and end > 0 else ""
            if 0 < end < _BEGINS:
                known[begins] = kind
        kinds.append(kind)
    return kinds


def _text(values: Sequence[bytes]) -> pa.Array:
    try:
        return pc.cast(pa.array(values, pa.binary()), pa.string())
    except pa.ArrowInvalid:
        # Somebody changed the database. The chain check reports that; the reader must not stop here.
        return pa.array([value.decode("utf-8", "replace") for value in values], pa.string())


def _chained(before: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> list[bool]:
    """Return true for each row whose hash and offset match the row before it.

    `before` are the two rows before `rows`.
    """
    told = (*before, *rows)
    expected, previous = (0, GENESIS_DIGEST) if told[0][0] == 0 else (-1, b"")
    link: Link | None = None
    found = []
    for offset, at_ms, event, own in told:
        earlier, link = link, check_link(previous, at_ms, event, own)
        # A gap in the offsets is a break, even if somebody made the hashes fit.
        found.append(offset == expected and follows(earlier, link))
        expected, previous = offset + 1, own
    return found[len(before) :]


def _placed(
    columns: dict[str, pa.Array], positions: np.ndarray[Any, Any], beside: Sequence[int]
) -> dict[str, pa.Array]:
    """Return `columns` with their values moved to the rows with the same offsets. Rows without a value get null.

    `positions` are the offsets of the rows, `beside` the offsets of the values in `columns`.
    """
    offsets = np.array(beside, np.int64)
    places = np.searchsorted(positions, offsets)
    places[places == len(positions)] = 0
    mine = positions[places] == offsets
    indices = np.zeros(len(positions), np.int64)
    empty = np.ones(len(positions), bool)
    indices[places[mine]] = np.flatnonzero(mine)
    empty[places[mine]] = False
    taken = pa.array(indices, mask=empty)
    return {name: column.take(taken) for name, column in columns.items()}


def _messages(messages: Sequence[tuple[Any, ...]], names: Mapping[int, str]) -> dict[str, pa.Array]:
    contents = [read_said(row[12]) for row in messages]
    routes = [row[13] for row in messages]
    counts = [len(route) // 24 for route in routes]
    numbers, keys = _joined(routes, counts, 0), _joined(routes, counts, 1)
    recipients = [names.get(number) for number in numbers.tolist()]
    stamped = [(*row[1:8], bool(row[8]), *row[9:12]) for row in messages]
    return message_columns(stamped, contents, counts, (numbers, keys, recipients))


def message_columns(
    stamped: Sequence[Sequence[Any]],
    contents: Sequence[Said | MessageLine],
    counts: Sequence[int],
    routes: tuple[Sequence[int], Sequence[int], Sequence[str | None]],
) -> dict[str, pa.Array]:
    """Return the columns of messages: the fields that the hub stamped, the contents, and the recipients.

    `routes` are three lists: the member numbers, the delivery keys and the names of the recipients of all messages, in
    the order of the messages. `counts` has the number of recipients of each message.
    """
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    stamps = zip(*stamped, strict=True)
    numbers, keys, recipients = routes
    return {
        **{name: pa.array(values, SCHEMA.field(name).type) for name, values in zip(_STAMPS, stamps, strict=True)},
        **{name: pa.array([*map(get, contents)], SCHEMA.field(name).type) for name, get in _SAID.items()},
        "numbers": pa.ListArray.from_arrays(starts, pa.array(numbers, pa.int64())),
        "keys": pa.ListArray.from_arrays(starts, pa.array(keys, pa.int64())),
        "recipients": pa.ListArray.from_arrays(starts, pa.array(recipients, pa.string())),
    }


def _joined(routes: Sequence[bytes], counts: Sequence[int], column: int) -> Any:
    """Return column number `column` of the routes (lists of recipients) of all messages, in the order of the messages.

    A route is packed as three columns of 8-byte integers. `counts` has the number of recipients of each message.
    """
    parts = [route[8 * column * count : 8 * (column + 1) * count] for route, count in zip(routes, counts, strict=True)]
    return np.frombuffer(b"".join(parts), np.int64)
