"""Deliveries: one row for each message and recipient, with the time of every state that the delivery reached.

A delivery is identified by its recipient's number and its key. A delivery is *open* until it is acknowledged, expired
or dead, or `WATERMARK_MS` old. Open rows are processed with every batch. A closed row is looked up only when its
delivery reaches a state late. The table `inboxes` then has the day of the delivery. `fresh` has a bit for each state
that the last commit of the row added, and one bit for a new delivery.
"""

from pyspark.sql.types import IntegerType, StructField, StructType

from tieline.pipeline.row import MOVES
from tieline.pipeline.statements import rows_of, statement
from tieline.pipeline.table import DAY_MS, Silver, columns, gathered, listed

WATERMARK_MS = DAY_MS
"""A state counts as late if the delivery reaches it more than this time after its message. A late state is still
stored.
"""

TABLE = Silver(
    name="deliveries",
    schema=columns(
        "number bigint, key bigint, recipient string, offset bigint, sender string, priority string, sent_ms bigint, "
        "offered_ms bigint, offered_by string, muted_ms bigint, seen_ms bigint, acked_ms bigint, acked_by string, "
        "claimed boolean, expired_ms bigint, dead_ms bigint, cause string, scope string, thread string"
    ),
    time="sent_ms",
)
STORED = StructType([*TABLE.schema.fields, StructField("fresh", IntegerType())])
"""The columns of the files: the columns of the table, and `fresh`. `fresh` has a bit for each state that was added by
the batch that wrote the row.
"""
OPEN, CLOSED, ORPHAN = 0, 1, 2
"""Kinds of rows in the column `part`. An `OPEN` delivery may still change. A `CLOSED` delivery changes only if it
reaches a state late. An `ORPHAN` is a state whose delivery is not open.
"""
STATES = {OPEN: True, CLOSED: False, ORPHAN: None}
"""For each kind of row, the value of the partition `open`. Orphans have no value, because they are not stored."""

_RANGE_MAX = 10_000_000
"""Maximum number of deliveries in one event. A hub never has so many. So a damaged row with a higher number cannot fill
the disk.
"""
_KEY_MAX = 2**60  # no inbox gets there; a key beyond it was written by somebody else
_TIMES = ("offered_ms", "muted_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms")
_WORDS = ("offered_by", "acked_by", "cause")
_CAUSE = r"trim(substring(regexp_extract(cause, '^(.*?)( by |[:;,(]|$)', 1), 1, 60))"
"""The cause of an end, as an expression: the first words of its evidence. Names and reasons after them are left out, so
that there are few causes.
"""
_BITS = {name: 1 << index for index, name in enumerate((*_TIMES, "left_ms"))}
_SENT = 1 << len(_BITS)
_RUNGS = ("offered_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms", "left_ms")


_NONE = "''"
_NAMES = ", ".join(f"`{name}`" for name in TABLE.schema.fieldNames())


def begun(bronze: str) -> str:
    """Return a query (SQL text) for the new deliveries in a batch: one row for each message and recipient.

    They have not reached any state yet. A message has no rows here if retention deleted its list of recipients.
    """
    given = {
        "number": "one.numbers",
        "key": "one.keys",
        "recipient": "coalesce(one.recipients, concat('member-', one.numbers))",
        "sent_ms": "at_ms",
        "offset": "`offset`",
        "sender": "sender",
        "priority": "coalesce(priority, 'normal')",
        "scope": "nullif(scope, '')",
        "thread": "nullif(thread, '')",
    }
    selected = ", ".join(
        f"CAST({given.get(field.name, 'NULL')} AS {field.dataType.simpleString()}) AS `{field.name}`"
        for field in TABLE.schema
    )
    return rows_of("begun", columns=selected, sent=_SENT, bronze=bronze)


def known(rows: str) -> str:
    """Return a query (SQL text) for deliveries that began before this batch. No bit is set in their column `fresh`."""
    return rows_of("known", columns=_NAMES, rows=rows)


def reached(bronze: str, *, typed: bool = False) -> str:
    """Return a query (SQL text) for the states that deliveries reached in a batch, one row for each delivery.

    If a delivery reached a state more than once, the first time counts. With `typed`, all events have their deliveries
    in columns, so no JSON need be parsed.
    """
    times = {
        "offered_ms": "kind = 'deliver'",
        "muted_ms": "kind = 'deliver' AND mute",
        "seen_ms": "kind = 'see'",
        "acked_ms": "kind IN ('ack', 'claim')",
        "expired_ms": "kind = 'expire'",
        "dead_ms": "kind = 'die'",
    }
    rungs = ", ".join(f"min(CASE WHEN {when} THEN at_ms END) AS {name}" for name, when in times.items())
    wires = ", ".join(
        f"min_by(wire, CASE WHEN {times[f'{word}_ms']} THEN `offset` END) AS {word}_by" for word in ("offered", "acked")
    )
    cause = f"min_by({_CAUSE}, CASE WHEN kind IN ('expire', 'die') THEN `offset` END) AS cause"
    moves = rows_of("moves", bronze=bronze, kinds=listed(MOVES))
    if not typed:
        others = rows_of("moves_as_json", bronze=bronze, kinds=listed(MOVES), range_max=_RANGE_MAX, key_max=_KEY_MAX)
        moves = rows_of("all_moves", moves=moves, others=others)
    return rows_of("reached", moves=moves, rungs=f"{rungs}, {wires}, {cause}")


def fold(before: str, steps: str, now_ms: int, *, few: bool, hashed: bool = False) -> str:
    """Return a query (SQL text) that adds the states in `steps` to the deliveries in `before`.

    It computes the column `part` of each row: `OPEN`, `CLOSED` or `ORPHAN`. A delivery that is older than
    `WATERMARK_MS` at the time `now_ms` is closed. If the deliveries are `few`, one task does it. With `hashed`, the
    states are few enough for a hash table in memory.
    """
    old, new = (f"{side}." for side in ("known", "rung"))
    both = {name: f"coalesce({old}{name}, {new}{name})" for name in (*_TIMES, *_WORDS)}
    fresh = " + ".join(
        [
            f"coalesce({old}fresh, 0)",
            *(f"if({old}{name} IS NULL AND {new}{name} IS NOT NULL, {_BITS[name]}, 0)" for name in _TIMES),
            f"if({_left(old)} IS NULL AND {_left(new)} IS NOT NULL, {_BITS['left_ms']}, 0)",
        ]
    )
    settled = f"coalesce({', '.join(both[name] for name in _TIMES[3:])}) IS NOT NULL"
    part = (
        f"CASE WHEN {old}`offset` IS NULL THEN {ORPHAN} "
        f"WHEN {settled} OR {old}sent_ms < {now_ms - WATERMARK_MS} THEN {CLOSED} ELSE {OPEN} END"
    )
    both["claimed"] = f"coalesce({old}claimed, false) OR coalesce({new}claimed, false)"
    # The keys that the join has in common.
    both |= {"number": "number", "key": "key"}
    selected = ", ".join(f"{both.get(name, f'{old}`{name}`')} AS `{name}`" for name in TABLE.schema.fieldNames())
    return rows_of(
        "folded",
        hint="/*+ SHUFFLE_HASH(rung) */" if hashed else "",
        columns=selected,
        fresh=fresh,
        part=part,
        before=gathered(before, few=few),
        steps=steps,
    )


def lateness(known: str, steps: str) -> str:
    """Return a query (SQL text) that counts the deliveries in `known` that have a state in `steps`.

    The column `rows` has their number. The column `late` has the number of deliveries that reached the state after the
    watermark.
    """
    reached_ms = f"greatest({', '.join(f'steps.{name}' for name in _TIMES)})"
    return statement("lateness", reached_ms=reached_ms, watermark_ms=WATERMARK_MS, known=known, steps=steps)


def _left(prefix: str) -> str:
    """Return an expression (SQL text) for the time when a delivery left the backlog.

    A delivery leaves when it is acknowledged, expired, dead, or sent on a wire without acknowledgements. `prefix` is
    the prefix of the column names.
    """
    return f"least({', '.join(f'{prefix}{name}' for name in ('acked_ms', 'expired_ms', 'dead_ms', 'muted_ms'))})"


def sendings(touched: str) -> str:
    """Return a query (SQL text) for the deliveries that began with a commit.

    `touched` are the rows that the commit wrote.
    """
    return rows_of("some", rows=touched, where=f"fresh & {_SENT} <> 0")


def steps(touched: str) -> str:
    """Return a query (SQL text) for the states that a commit added, one row for each state.

    The rows also have columns of the delivery. `touched` are the rows that the commit wrote.
    """
    by = {"offered_ms": "offered_by", "acked_ms": "acked_by"}
    why = dict.fromkeys(("expired_ms", "dead_ms"), "coalesce(cause, '')")
    rungs = ", ".join(
        f"named_struct('rung', '{name.removesuffix('_ms')}', 'at_ms', {_left('') if name == 'left_ms' else name}, "
        f"'protocol', {by.get(name, _NONE)}, 'cause', {why.get(name, _NONE)}, 'bit', {_BITS[name]})"
        for name in _RUNGS
    )
    keys = "number, key, recipient, `offset`, sender, priority, sent_ms"
    return rows_of("steps", keys=keys, rungs=rungs, touched=touched, any=_SENT - 1)
