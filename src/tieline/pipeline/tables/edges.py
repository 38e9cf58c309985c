"""Edges: one row for each day, sender and recipient: the conversation graph.

`messages` counts the messages from the sender to the recipient, through channels too. `answers` counts the sender's
replies to the recipient's messages, and `response_ms` has the time that each reply took, sorted.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, each, percentile, start_of

_DAY = start_of("sent_ms", DAY_MS)

TABLE = Gold(
    name="edges",
    schema=columns(
        "day_ms bigint, sender string, recipient string, messages bigint, answers bigint, "
        "response_ms array<bigint>, response_p50_ms bigint"
    ),
    keys=("day_ms", "sender", "recipient"),
    measures={"messages": "sum", "answers": "sum", "response_ms": "sorted"},
    reads=("sendings", "answers"),
    facts=(
        # Counted before they are merged with the old rows: there are few edges and many messages.
        Facts(
            "{sendings}",
            {"day_ms": _DAY, "sender": "sender", "recipient": "recipient", "messages": "count(*)", "answers": "0"},
            by=(_DAY, "sender", "recipient"),
        ),
        Facts(
            "{answers}",
            {
                "day_ms": "day_ms",
                "sender": "sender",
                "recipient": "recipient",
                "messages": "0",
                "answers": "1",
                each("response_ms"): "response_ms",
            },
        ),
    ),
    part="day_ms",
    finish={"response_p50_ms": percentile("response_ms", 0.5)},
)
