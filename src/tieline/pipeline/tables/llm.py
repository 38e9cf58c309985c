"""LLM usage: one row for each hour, member, model and objective: its model calls (exchanges), their tokens and cost.

The hour is when the exchange happened, however late it was reported. Costs are in billionths of a dollar, so that sums
are exact; `unpriced` counts exchanges with models that have no price. `objective` is empty if the member worked on no
objective.
"""

from tieline.pipeline.table import HOUR_MS, Facts, Gold, columns, start_of

_SUMS = (
    "exchanges", "failed", "late", "unpriced", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "lasted_ms", "cost_nano_usd",
)  # fmt: skip


TABLE = Gold(
    name="llm",
    schema=columns(
        "hour_ms bigint, member string, model string, objective string, "
        + ", ".join(f"{name} bigint" for name in _SUMS)
    ),
    keys=("hour_ms", "member", "model", "objective"),
    measures=dict.fromkeys(_SUMS, "sum"),
    reads=("exchanges",),
    facts=(
        Facts(
            "{exchanges}",
            {
                "hour_ms": start_of("ts_ms", HOUR_MS),
                "member": "coalesce(member, concat('member-', number))",
                "model": "model",
                "objective": "coalesce(objective, '')",
                "exchanges": "1",
                **{name: name for name in ("failed", "late", "input_tokens", "output_tokens", "cache_read_tokens")},
                "cache_write_tokens": "cache_write_tokens",
                "unpriced": "cost_nano_usd IS NULL",
                "lasted_ms": "coalesce(lasted_ms, 0)",
                "cost_nano_usd": "coalesce(cost_nano_usd, 0)",
            },
        ),
    ),
    part="hour_ms",
)
