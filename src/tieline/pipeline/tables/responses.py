"""Responses: one row for each message that another member answered: who answered first, and after what time.

The day is that of the answered message, and `offset` is its place in the main log.
"""

from tieline.pipeline.table import DAY_MS, VERSION, Facts, Gold, columns, start_of

TABLE = Gold(
    name="responses",
    schema=columns(
        "day_ms bigint, offset bigint, sender string, responder string, response_ms bigint, replies bigint, "
        "version bigint"
    ),
    keys=("day_ms", "offset"),
    measures={"sender": "max", "responder": "newest", "response_ms": "min", "replies": "sum", "version": "max"},
    reads=("answers",),
    facts=(
        Facts(
            "{answers}",
            {
                "day_ms": start_of("asked_ms", DAY_MS),
                "offset": "asked",
                "sender": "recipient",
                "responder": "sender",
                "response_ms": "response_ms",
                "replies": "1",
                # The first answer has the smallest offset, and the merge keeps the highest version.
                VERSION: "-`offset`",
            },
        ),
    ),
    part="day_ms",
)
