"""Members: one row for each day and member: its messages, deliveries, acknowledgements, refusals and model usage.

Messages and deliveries count by the hub's time; model calls count on the day when they happened. `departed` counts
deliveries that left the backlog, so `received - departed`, summed up over all days, is what waits now. `heard_ms` is
the member's last own action of the day: it sent or read a message, or used a model.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, start_of

_USED = ("input_tokens", "output_tokens", "cost_nano_usd")
_SUMS = ("sent", "received", "offered", "acked", "departed", "refused", "exchanges", *_USED)


def _facts(of: str, member: str, time: str, where: str = "true", **measures: str) -> Facts:
    times = {"day_ms": start_of(time, DAY_MS), "first_ms": time, "last_ms": time}
    return Facts(of, {**times, "member": member, **measures}, where)


TABLE = Gold(
    name="members",
    schema=columns(
        "day_ms bigint, member string, "
        + ", ".join(f"{name} bigint" for name in _SUMS)
        + ", first_ms bigint, last_ms bigint, heard_ms bigint"
    ),
    keys=("day_ms", "member"),
    measures={**dict.fromkeys(_SUMS, "sum"), "first_ms": "min", "last_ms": "max", "heard_ms": "max"},
    reads=("messages", "sendings", "steps", "records", "exchanges"),
    facts=(
        _facts("{messages}", "sender", "sent_ms", sent="1", heard_ms="sent_ms"),
        _facts("{sendings}", "recipient", "sent_ms", received="1"),
        _facts(
            "{steps}",
            "recipient",
            "at_ms",
            "rung IN ('offered', 'seen', 'acked', 'left')",
            offered="rung = 'offered'",
            acked="rung = 'acked'",
            departed="rung = 'left'",
            heard_ms="CASE WHEN rung IN ('seen', 'acked') THEN at_ms END",
        ),
        _facts("{records}", "member", "at_ms", "kind = 'refuse' AND member <> ''", refused="count"),
        _facts(
            "{exchanges}",
            "coalesce(member, concat('member-', number))",
            "ts_ms",
            exchanges="1",
            heard_ms="ts_ms",
            **{name: name for name in _USED},
        ),
    ),
    part="day_ms",
    # A sum is null if the member has no facts of this kind, such as model calls.
    finish={name: f"coalesce({name}, 0)" for name in _SUMS},
)
