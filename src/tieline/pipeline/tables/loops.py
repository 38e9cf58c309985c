"""Loops: one row for each conversation and day in which agents answered each other automatically, again and again.

A message's hops are the quick automatic replies that led to it. This table counts messages with at least `HOPS` hops,
and the pauses that the hub ordered because of loops.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, start_of

HOPS = 16
"""Smallest number of hops (quick automatic replies before a message) that counts here: a quarter of the hub's own
limit. Real work rarely has so many.
"""


TABLE = Gold(
    name="loops",
    schema=columns(
        "day_ms bigint, conversation string, messages bigint, hops int, members array<string>, pauses bigint, "
        "first_ms bigint, last_ms bigint"
    ),
    keys=("day_ms", "conversation"),
    measures={
        "messages": "sum",
        "hops": "max",
        "members": "union",
        "pauses": "sum",
        "first_ms": "min",
        "last_ms": "max",
    },
    reads=("loops",),
    facts=(
        Facts(
            "{messages}",
            {
                "day_ms": start_of("sent_ms", DAY_MS),
                "conversation": "conversation",
                "messages": "1",
                "hops": "hops",
                "members": "array(sender)",
                "pauses": "0",
                "first_ms": "sent_ms",
                "last_ms": "sent_ms",
            },
            where=f"hops >= {HOPS}",
        ),
        # A pause that a member ordered is no loop.
        Facts(
            "{records}",
            {
                "day_ms": start_of("at_ms", DAY_MS),
                "conversation": "thread",
                "messages": "0",
                "hops": "0",
                "members": "array()",
                "pauses": "1",
                "first_ms": "at_ms",
                "last_ms": "at_ms",
            },
            where="kind = 'pause' AND by IS NULL",
        ),
    ),
    part="day_ms",
)
