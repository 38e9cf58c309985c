"""Failures: one row for each day, kind, member and cause, with the number of failures.

The kinds `expired` and `dead` are deliveries, and the cause is the first words of the evidence. The kind `refused` is a
refused command, and the cause is the code of the refusal. The kind `call` is a failed model call, and the cause is the
first words of its error, or its status.
"""

from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, start_of


def _facts(of: str, time: str, where: str, **given: str) -> Facts:
    return Facts(of, {"day_ms": start_of(time, DAY_MS), "count": "1", **given}, where)


TABLE = Gold(
    name="failures",
    schema=columns("day_ms bigint, kind string, member string, cause string, count bigint"),
    keys=("day_ms", "kind", "member", "cause"),
    measures={"count": "sum"},
    reads=("steps", "records", "exchanges"),
    facts=(
        _facts("{steps}", "at_ms", "rung IN ('expired', 'dead')", kind="rung", member="recipient", cause="cause"),
        _facts("{records}", "at_ms", "kind = 'refuse'", kind="'refused'", member="coalesce(member, '')",
               cause="coalesce(code, '')", count="count"),
        _facts("{exchanges}", "ts_ms", "failed", kind="'call'", member="coalesce(member, concat('member-', number))",
               cause="coalesce(error, '')"),
    ),
    part="day_ms",
)  # fmt: skip
