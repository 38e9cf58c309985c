"""Latency: one row for each member, protocol and minute, with the times that deliveries took to reach a state.

The minute is when the state was reached. The protocol is the recipient's wire, or empty if no wire was involved. The
columns with the name of a state count the deliveries that reached it. `acked_ms` and `offered_ms` are sorted lists of
the times from sending to the state, so that percentiles over any period are exact. `p50_ms` and `p99_ms` are
percentiles of `acked_ms`. `late` counts states that were reached later than the watermark (a day).
"""

from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Facts, Gold, columns, each, percentile, start_of
from tieline.pipeline.tables.deliveries import WATERMARK_MS

_RUNGS = ("offered", "seen", "acked", "expired", "dead")


TABLE = Gold(
    name="latency",
    schema=columns(
        "member string, protocol string, minute_ms bigint, offered bigint, seen bigint, acked bigint, expired bigint, "
        "dead bigint, late bigint, offered_ms array<bigint>, acked_ms array<bigint>, p50_ms bigint, p99_ms bigint"
    ),
    keys=("member", "protocol", "minute_ms"),
    measures={**dict.fromkeys((*_RUNGS, "late"), "sum"), "offered_ms": "sorted", "acked_ms": "sorted"},
    reads=("steps",),
    facts=(
        Facts(
            "{steps}",
            {
                "member": "recipient",
                "protocol": "protocol",
                "minute_ms": start_of("at_ms", MINUTE_MS),
                **{name: f"rung = '{name}'" for name in _RUNGS},
                "late": f"after_ms > {WATERMARK_MS}",
                each("offered_ms"): "CASE WHEN rung = 'offered' THEN after_ms END",
                each("acked_ms"): "CASE WHEN rung = 'acked' THEN after_ms END",
            },
            where="rung <> 'left'",
        ),
    ),
    part="minute_ms",
    part_ms=HOUR_MS,
    finish={"p50_ms": percentile("acked_ms", 0.5), "p99_ms": percentile("acked_ms", 0.99)},
)
