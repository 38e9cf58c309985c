"""`tieline pipeline report`: reports on the tables, for a terminal, as JSON or as an HTML page. It needs no Spark.

Used by: `main`. Uses: the lake (the folder or URL of the pipeline's tables), read with Arrow.
"""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.audit import HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say
from tieline.cli.pipeline import JsonOption, LakeOption, open_lake, pipeline_app
from tieline.cli.session import ended_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tieline.pipeline.alerts import Alert
    from tieline.pipeline.lake import Lake
    from tieline.pipeline.report_parts import Report

_ROWS_SHOWN = 15
_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


@pipeline_app.command()
def report(
    home: HomeOption = None,
    lake: LakeOption = None,
    json: JsonOption = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with charts.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="T", help="Start of the report: 2026-01-31, 2026-01-31T09:00, or 90m, 24h, 7d ago.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", min=0, help="Budget for models per day.", show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Report on traffic, latency, backlogs, objectives, costs, loops and the audit chain."""
    ended_by(lambda: _report(open_lake(home, lake), json=json, html=html, since=since, budget=budget))


def _report(lake: "Lake", *, json: bool, html: Path | None, since: str | None, budget: float | None) -> None:
    from tieline.pipeline.alerts import find_alerts
    from tieline.pipeline.lake import LakeError
    from tieline.pipeline.report import make_report

    since_ms = None if since is None else _moment_ms(since)
    try:
        if lake.head().number == 0:
            raise Failure(Exit.FAILED, f"{lake} is empty", "'tieline pipeline run' fills it")
        made = make_report(lake, since_ms)
    except LakeError as error:
        raise Failure(Exit.FAILED, str(error)) from error
    alerts = find_alerts(made, budget_usd=budget)
    if html is not None:
        from tieline.pipeline.page import page

        html.write_text(page(made, alerts), encoding="utf-8")
    if json:
        print_json(made)
    elif html is not None:
        say(f"The report is in {html}.")
    else:
        _print(made, alerts)


def _moment_ms(text: str) -> int:
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        hint = "write 2026-01-31, 2026-01-31T09:00 or 90m, 24h, 7d"
        raise Failure(Exit.USAGE, f"--since {text!r} is not a time", hint) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _print(made: "Report", alerts: "Sequence[Alert]") -> None:
    totals = made.totals
    if made.from_ms is not None and made.to_ms is not None:
        say(f"From {local_time(made.from_ms)} to {local_time(made.to_ms)}", style="bold")
    say(
        f"{totals.messages:,} messages, {totals.deliveries:,} deliveries: {totals.acked:,} acknowledged, "
        f"{totals.expired:,} expired, {totals.dead:,} dead, {totals.waiting:,} waiting now; "
        f"{totals.activity:,} of activity, ${totals.cost_usd:,.2f}."
    )
    _print_findings(made, alerts)
    _print_traffic(made)
    _print_work(made)


def _print_findings(made: "Report", alerts: "Sequence[Alert]") -> None:
    audit = made.audit
    if audit.intact:
        say(f"The audit chain holds over {audit.verified_rows:,} rows.", style="green")
    else:
        say(f"The audit chain is broken in {audit.chain_breaks:,} places.", style="red")
    if made.missed:
        from tieline.cli.pipeline import missing

        say(f"Of all time, {missing(made.missed)}.", style="red")
    rows = [(alert.kind, local_time(alert.at_ms), alert.what) for alert in alerts]
    rows += [("storm", local_time(one.minute_ms), f"{one.sender} sent {one.messages:,} messages in a minute.")
             for one in made.storms]  # fmt: skip
    _table("Findings", ("kind", "when", "what"), rows)


def _print_traffic(made: "Report") -> None:
    from tieline.pipeline.charts import duration

    _table(
        "Latency until a delivery was acknowledged; until offered, on a wire that cannot acknowledge",
        ("member", "wire", "deliveries", "p50", "p99", "until"),
        [
            (one.member, one.protocol, f"{one.deliveries:,}", duration(one.p50_ms), duration(one.p99_ms), one.measured)
            for one in made.latency
        ],
    )
    _table(
        "Backlog",
        ("member", "waiting", "arrived", "left"),
        [
            (one.member, f"{one.waiting:,}", f"{one.arrived:,}", f"{one.departed:,}")
            for one in made.backlog
            if one.waiting
        ],
    )
    _table(
        "Who writes to whom",
        ("from", "to", "messages", "answers", "answered after"),
        [
            (one.sender, one.recipient, f"{one.messages:,}", f"{one.answers:,}", duration(one.response_p50_ms))
            for one in made.edges
        ],
    )
    _table(
        f"Conversations: {made.threads.conversations:,}, {made.threads.unanswered:,} with one sender only",
        ("conversation", "messages", "senders", "last"),
        [
            (one["conversation"], f"{one['messages']:,}", str(len(one["participants"])), local_time(one["last_ms"]))
            for one in made.threads.longest
        ],
    )


def _print_work(made: "Report") -> None:
    from tieline.pipeline.page import objective_rows, usage_rows

    _table(
        "Objectives",
        ("objective", "assignee", "status", "took", "blocked", "tokens", "cost"),
        objective_rows(made.objectives),
    )
    _table(
        "Models",
        ("model", "member", "exchanges", "failed", "tokens in", "tokens out", "cost"),
        usage_rows(made),
    )


def _table(title: str, columns: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> None:
    """Print the first rows of a table under its title. Print nothing, not even the title, if there are no rows."""
    if not rows:
        return
    say(f"\n{title}", style="bold")
    print_table(columns, [[neutral_line(cell) for cell in row] for row in rows[:_ROWS_SHOWN]], empty="")
    if len(rows) > _ROWS_SHOWN:
        say(f"… and {len(rows) - _ROWS_SHOWN:,} more; --json or --html FILE has them.")
