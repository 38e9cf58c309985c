"""`tieline pipeline report`: reports on the tables, for a terminal, as JSON or as an HTML page. It needs no Spark.

Used by: `main`. Uses: the lake (the folder or URL of the pipeline's tables), read with Arrow, and the console's page of
a report.
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
    from tieline.wire.report_parts import Report

_ROWS_SHOWN = 15
_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ALL = "all"


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
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="W",
            help="Report on the end of the log: 90m, 24h, 7d, or all. Default: 7d; all with --json.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", min=0, help="Budget for models per day.", show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Report on traffic, latency, backlogs, objectives, costs, loops and the audit chain.

    The report is about the last 7 days of the log, compared with the 7 days before. --window and --since name others.
    With --json and without both, it is about all time.
    """
    ended_by(
        lambda: _report(open_lake(home, lake), json=json, html=html, since=since, window=window, budget=budget),
        json=json,
    )


def _report(
    lake: "Lake", *, json: bool, html: Path | None, since: str | None, window: str | None, budget: float | None
) -> None:
    from tieline.pipeline.alerts import find_alerts
    from tieline.pipeline.lake import LakeError
    from tieline.pipeline.report import make_report, report_with_ranges

    if since is not None and window is not None:
        raise Failure(Exit.USAGE, "--since and --window exclude each other")
    since_ms = None if since is None else _moment_ms(since)
    named = "7d" if window is None and since is None and not json else window
    window_ms = None if named in (None, _ALL) else _length_ms(named)
    try:
        if lake.head().number == 0:
            raise Failure(Exit.FAILED, f"{lake} is empty", "'tieline pipeline run' fills it")
        # A page has all ranges that the console offers, unless one is asked for.
        whole = html is not None and since is None and window is None and not json
        made = report_with_ranges(lake) if whole else make_report(lake, since_ms, window_ms)
    except LakeError as error:
        raise Failure(Exit.FAILED, str(error)) from error
    alerts = find_alerts(made, budget_usd=budget)
    if html is not None:
        _write_page(html, made)
    if json:
        print_json(made)
    elif html is not None:
        say(f"The report is in {html}.")
    else:
        _print(made, alerts)


def _write_page(path: Path, made: "Report") -> None:
    import msgspec

    from tieline.console.report_page import report_page

    page = report_page(msgspec.json.encode(made))
    if page is None:
        raise Failure(
            Exit.FAILED, "this installation has no console, of which the page is a part", "build it: make console"
        )
    path.write_bytes(page)


def _length_ms(text: str) -> int:
    long = _AGO.fullmatch(text.strip())
    if long is None or not int(long[1]):
        raise Failure(Exit.USAGE, f"--window {text!r} is not a length of time", "write 90m, 24h, 7d or all")
    return int(long[1]) * _UNITS_MS[long[2]]


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
        then = f", compared with the time before, from {local_time(made.before_ms)}" if made.before_ms else ""
        say(f"From {local_time(made.from_ms)} to {local_time(made.to_ms)}{then}", style="bold")
    say(
        f"{totals.messages:,} messages, {totals.deliveries:,} deliveries: {totals.acked:,} acknowledged, "
        f"{totals.expired:,} expired, {totals.dead:,} dead, {totals.waiting:,} waiting now; "
        f"{totals.refused:,} commands refused."
    )
    if made.engine:
        say(f"Commit {made.commit}, by {made.engine}.")
    hit = "" if totals.cache_hit is None else f" {totals.cache_hit:.0%} of the input came from caches."
    say(
        f"{totals.exchanges:,} model calls, {totals.failed_calls:,} failed, {totals.retried_calls:,} of them retried; "
        f"{_dollars(totals.cost_usd)}, {_dollars(totals.loop_cost_usd)} of it in loops.{hit}"
    )
    if made.unpriced:
        say(f"Models without a price: {neutral_line(', '.join(made.unpriced))}.", style="yellow")
    _print_findings(made, alerts)
    _print_changes(made)
    _print_traffic(made)
    _print_work(made)


def _print_changes(made: "Report") -> None:
    def figure(what: str, value: float) -> str:
        if "usd" in what:
            return _dollars(value)
        if "_ms" in what:
            return _duration(value)
        return f"{value:.0%}" if what == "cache_hit" else f"{value:,.0f}"

    _table(
        "What changed",
        ("what", "of", "before", "now"),
        [
            (one.what.replace("_usd", "").replace("_ms", "").replace("_", " "), one.name,
             figure(one.what, one.before), figure(one.what, one.now))
            for one in made.changes
        ],
    )  # fmt: skip


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
    duration = _duration
    _table(
        "First answers to messages of others",
        ("member", "answered first", "p50", "p99"),
        [(one.member, f"{one.answers:,}", duration(one.p50_ms), duration(one.p99_ms)) for one in made.responses],
    )
    _table(
        "Latency until a delivery was acknowledged; until offered, on a wire that cannot acknowledge",
        ("member", "wire", "deliveries", "p50", "p99", "until"),
        [
            (one.member, one.protocol, f"{one.deliveries:,}", duration(one.p50_ms), duration(one.p99_ms), one.measured)
            for one in made.latency
        ],
    )
    _table(
        "Service levels",
        ("member", "priority", "acknowledged", "within a minute", "p99", "expired", "dead"),
        [
            (one.member, one.priority, f"{one.acked:,}", _share(one.within_minute), duration(one.p99_ms),
             f"{one.expired:,}", f"{one.dead:,}")
            for one in made.service
        ],
    )  # fmt: skip
    _table(
        "Failures",
        ("kind", "cause", "member", "count", "before"),
        [
            (one.kind, one.cause, one.member, f"{one.count:,}", "" if one.before is None else f"{one.before:,}")
            for one in made.failures
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
    _table(
        "Who waits for whom",
        ("blocked objective", "assignee", "since", "waits for"),
        [
            (one.title or one.objective, one.assignee or "", local_time(one.since_ms),
             " → ".join(one.chain[1:]) + (" (a circle)" if one.circle else "") or one.reason)
            for one in made.waits
        ],
    )  # fmt: skip
    _table(
        "Objectives",
        ("objective", "assignee", "status", "took", "blocked", "tokens", "cost"),
        [
            (one.title or one.id, one.assignee or "", one.status or "", _duration(one.cycle_ms),
             _duration(one.blocked_ms or 0), _short(one.input_tokens + one.output_tokens), _dollars(one.cost_usd))
            for one in made.objectives
        ],
    )  # fmt: skip
    for by in ("objective", "member", "model", "scope", "thread"):
        _table(
            f"Spend by {by}",
            (by, "calls", "failed", "tokens in", "tokens out", "from cache", "cost", "before"),
            [
                (one.title or one.name or "(none)", f"{one.exchanges:,}", f"{one.failed:,}",
                 _short(one.input_tokens + one.cache_read_tokens + one.cache_write_tokens), _short(one.output_tokens),
                 _share(one.cache_hit), "no price" if one.unpriced == one.exchanges else _dollars(one.cost_usd),
                 "" if one.before_usd is None else _dollars(one.before_usd))
                for one in made.spend
                if one.by == by
            ],
        )  # fmt: skip


def _duration(ms: float | None) -> str:
    """Return a length of time as text in one unit, such as `1.5 h`. Return a dash for `None`."""
    if ms is None:
        return "–"
    for unit, word in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit:
            return f"{ms / unit:.3g} {word}"
    return f"{ms:.0f} ms"


def _short(number: float) -> str:
    """Return a number as a short text, such as `12.3k`."""
    for size, word in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if word == 'k' else size):.3g}{word}"
    return f"{number:,.0f}"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"  # noqa: PLR2004 - less than a cent


def _share(part: float | None) -> str:
    return "–" if part is None else f"{part:.0%}"


def _table(title: str, columns: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> None:
    """Print the first rows of a table under its title. Print nothing, not even the title, if there are no rows."""
    if not rows:
        return
    say(f"\n{title}", style="bold")
    print_table(columns, [[neutral_line(cell) for cell in row] for row in rows[:_ROWS_SHOWN]], empty="")
    if len(rows) > _ROWS_SHOWN:
        say(f"… and {len(rows) - _ROWS_SHOWN:,} more; --json or --html FILE has them.")
