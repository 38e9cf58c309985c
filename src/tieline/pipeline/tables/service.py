"""Service: one row for each day, member, protocol and priority: deliveries that reached a state, and after what time.

It is the day's sum of the table `latency`, with the priority of the messages. `acked_ms` and `offered_ms` are sorted
lists of the times from sending to the state, so that percentiles over any days are exact, and a report over a year need
not read the minutes.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, each, start_of
from tieline.pipeline.tables.deliveries import WATERMARK_MS

_RUNGS = ("offered", "seen", "acked", "expired", "dead")

TABLE = Gold(
    name="service",
    schema=columns(
        "day_ms bigint, member string, protocol string, priority string, offered bigint, seen bigint, acked bigint, "
        "expired bigint, dead bigint, late bigint, offered_ms array<bigint>, acked_ms array<bigint>"
    ),
    keys=("day_ms", "member", "protocol", "priority"),
    measures={**dict.fromkeys((*_RUNGS, "late"), "sum"), "offered_ms": "sorted", "acked_ms": "sorted"},
    reads=("steps",),
    facts=(
        Facts(
            "{steps}",
            {
                "day_ms": start_of("at_ms", DAY_MS),
                "member": "recipient",
                "protocol": "protocol",
                "priority": "priority",
                **{name: f"rung = '{name}'" for name in _RUNGS},
                "late": f"after_ms > {WATERMARK_MS}",
                each("offered_ms"): "CASE WHEN rung = 'offered' THEN after_ms END",
                each("acked_ms"): "CASE WHEN rung = 'acked' THEN after_ms END",
            },
            where="rung <> 'left'",
        ),
    ),
    part="day_ms",
)
