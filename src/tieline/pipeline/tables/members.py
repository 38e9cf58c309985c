"""Members: one row for each member and day: its messages, deliveries, acknowledgements, refusals and model usage.

Messages and deliveries count by the hub's time; model calls count on the day when they happened.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, start_of

_USED = ("input_tokens", "output_tokens", "cost_nano_usd")
_SUMS = ("sent", "received", "offered", "acked", "refused", "exchanges", *_USED)


def _facts(of: str, member: str, time: str, where: str = "true", **measures: str) -> Facts:
    times = {"day_ms": start_of(time, DAY_MS), "first_ms": time, "last_ms": time}
    return Facts(of, {**times, "member": member, **measures}, where)


TABLE = Gold(
    name="members",
    schema=columns(
        "day_ms bigint, member string, "
        + ", ".join(f"{name} bigint" for name in _SUMS)
        + ", first_ms bigint, last_ms bigint"
    ),
    keys=("day_ms", "member"),
    measures={**dict.fromkeys(_SUMS, "sum"), "first_ms": "min", "last_ms": "max"},
    reads=("messages", "sendings", "steps", "records", "exchanges"),
    facts=(
        _facts("{messages}", "sender", "sent_ms", sent="1"),
        _facts("{sendings}", "recipient", "sent_ms", received="1"),
        _facts(
            "{steps}",
            "recipient",
            "at_ms",
            "rung IN ('offered', 'acked')",
            offered="rung = 'offered'",
            acked="rung = 'acked'",
        ),
        _facts("{records}", "member", "at_ms", "kind = 'refuse' AND member <> ''", refused="count"),
        _facts(
            "{exchanges}",
            "coalesce(member, concat('member-', number))",
            "ts_ms",
            exchanges="1",
            **{name: name for name in _USED},
        ),
    ),
    part="day_ms",
    # A sum is null if the member has no facts of this kind, such as model calls.
    finish={name: f"coalesce({name}, 0)" for name in _SUMS},
)
