"""Storms: one row for each sender and minute: the number of messages, and a mark if there were too many (a storm)."""

from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Facts, Gold, columns, start_of

MESSAGES = 60
"""Smallest number of messages of one sender in one minute that is a storm: one per second, which nobody can read."""


TABLE = Gold(
    name="storms",
    schema=columns("minute_ms bigint, sender string, messages bigint, deliveries bigint, storm boolean"),
    keys=("minute_ms", "sender"),
    measures={"messages": "sum", "deliveries": "sum"},
    reads=("messages",),
    facts=(
        Facts(
            "{messages}",
            {
                "minute_ms": start_of("sent_ms", MINUTE_MS),
                "sender": "sender",
                "messages": "1",
                "deliveries": "coalesce(recipients, 0)",
            },
        ),
    ),
    part="minute_ms",
    part_ms=HOUR_MS,
    finish={"storm": f"messages >= {MESSAGES}"},
)
