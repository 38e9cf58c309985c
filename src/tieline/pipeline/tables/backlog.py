"""Backlog: one row for each member and minute in which its inbox changed: how many deliveries arrived, how many left.

A delivery leaves when it is acknowledged, expires, dies, or goes out on a wire that has no acknowledgement. The number
of deliveries that wait at the end of a minute is the sum of `arrived - departed` up to this minute.
"""

from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Facts, Gold, columns, start_of

TABLE = Gold(
    name="backlog",
    schema=columns("member string, minute_ms bigint, arrived bigint, departed bigint"),
    keys=("member", "minute_ms"),
    measures={"arrived": "sum", "departed": "sum"},
    reads=("sendings", "steps"),
    facts=(
        Facts(
            "{sendings}",
            {"member": "recipient", "minute_ms": start_of("sent_ms", MINUTE_MS), "arrived": "1", "departed": "0"},
        ),
        Facts(
            "{steps}",
            {"member": "recipient", "minute_ms": start_of("at_ms", MINUTE_MS), "arrived": "0", "departed": "1"},
            where="rung = 'left'",
        ),
    ),
    part="minute_ms",
    part_ms=HOUR_MS,
)
