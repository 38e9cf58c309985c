"""The report as one HTML page: a file that needs no network, no script and no server.

Used by: `tieline pipeline report --html`. Uses: the report and the charts. Each chart is drawn twice, for wide and for
narrow screens, and the style sheet shows the one that fits; a table beside the chart has the same facts. Names and
titles come from agents and are escaped. A content security policy blocks anything that escaping might miss.
"""

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files

from tieline.pipeline import charts
from tieline.pipeline.alerts import Alert
from tieline.pipeline.charts import Series, Span, clock, count, dollars, duration
from tieline.pipeline.report import DAY_MS, HOUR_MS
from tieline.pipeline.report_parts import Objective, Report, UsageHour

_WIDE, _NARROW = 780, 340
_ROWS_SHOWN = 12
_BARS_SHOWN = 30
_GAP_POINTS = 4
_BARS_MAX = 96  # four days of hours; more bars are drawn by day
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report, alerts: Sequence[Alert] = ()) -> str:
    """Return the report and its alerts as one HTML document."""
    style = (files("tieline.pipeline") / "page.css").read_text(encoding="utf-8")
    sections = (
        _findings(report, alerts),
        _latency(report),
        _graph(report),
        _backlog(report),
        _objectives(report),
        _usage(report),
        _members(report),
    )
    span = "Nothing was read yet."
    if report.from_ms is not None and report.to_ms is not None:
        span = f"{clock(report.from_ms)} to {clock(report.to_ms)} UTC; as of {clock(report.refreshed_at_ms)} UTC."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tieline report</title><style>{style}</style></head><body>"
        f"<header><h1>Tieline report</h1><p>{escape(span)}</p>{_tiles(report)}</header>"
        f"<main>{''.join(sections)}</main></body></html>\n"
    )


def _tiles(report: Report) -> str:
    totals = report.totals
    tiles = (
        ("Messages", count(totals.messages)),
        ("Deliveries", count(totals.deliveries)),
        ("Acknowledged", count(totals.acked)),
        ("Expired", count(totals.expired)),
        ("Waiting", count(totals.waiting)),
        ("Activity", count(totals.activity)),
        ("Model cost", dollars(totals.cost_usd)),
    )
    return (
        '<dl class="tiles">' + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles) + "</dl>"
    )


# Sections.


def _latency(report: Report) -> str:
    says = "From sending until the recipient acknowledged, of all members; the scale goes by powers of ten."
    points = report.latency_series
    if not points or report.from_ms is None or report.to_ms is None:
        return _section("latency", "Latency", says, _none("Nothing was acknowledged yet."))
    series = [
        Series("p50", [(one.at_ms, one.p50_ms) for one in points]),
        Series("p99", [(one.at_ms, one.p99_ms) for one in points]),
    ]
    start, end, gap = report.from_ms, report.to_ms, _GAP_POINTS * report.series_ms
    chart = _both(lambda width: charts.latency_lines(series, min(start, points[0].at_ms), end, gap, width))
    table = _table(
        "By member and wire",
        ("Member", "Wire", "Deliveries", "p50", "p99", "Until"),
        [
            (one.member, one.protocol, f"{one.deliveries:,}", duration(one.p50_ms), duration(one.p99_ms), one.measured)
            for one in report.latency
        ],
        right=(2, 3, 4),
    )
    return _section("latency", "Latency", says, chart + _legend(["p50", "p99"]) + table)


def _graph(report: Report) -> str:
    says = "Members and how much they wrote to each other, through channels too."
    if not report.edges:
        return _section("graph", "Conversations", says, _none("Nobody wrote to anybody yet."))
    edges = [(one.sender, one.recipient, one.messages) for one in report.edges]
    table = _table(
        "The same as a table",
        ("From", "To", "Messages", "Answers", "Answered after (p50)"),
        [
            (one.sender, one.recipient, f"{one.messages:,}", f"{one.answers:,}", duration(one.response_p50_ms))
            for one in report.edges
        ],
        right=(2, 3, 4),
    )
    return _section("graph", "Conversations", says, _both(lambda width: charts.graph(edges, width)) + table)


def _backlog(report: Report) -> str:
    says = "Deliveries that nobody acknowledged yet and that did not end otherwise."
    points = report.backlog_series
    if not points or report.from_ms is None or report.to_ms is None:
        return _section("backlog", "Backlog", says, _none("Nothing was delivered yet."))
    series = Series("waiting", [(one.at_ms, one.waiting) for one in points])
    start, end = min(report.from_ms, points[0].at_ms), report.to_ms
    chart = _both(lambda width: charts.step_area(series, start, end, report.series_ms, width))
    waiting = [one for one in report.backlog if one.waiting > 0]
    table = _table(
        "Who has how much waiting now",
        ("Member", "Waiting", "Arrived", "Left"),
        [(one.member, f"{one.waiting:,}", f"{one.arrived:,}", f"{one.departed:,}") for one in waiting],
        right=(1, 2, 3),
    )
    return _section("backlog", "Backlog", says, chart + table)


def _objectives(report: Report) -> str:
    says = "From being assigned to the end; the part of another colour is the time blocked."
    lived = [one for one in report.objectives if one.created_ms is not None]
    if not lived or report.to_ms is None:
        return _section("objectives", "Objectives", says, _none("There are no objectives yet."))
    shown = lived[:_BARS_SHOWN]
    end = max(report.to_ms, *(one.finished_ms or 0 for one in shown))
    spans = [
        Span(
            label=one.title or one.id,
            start_ms=one.created_ms or 0,
            end_ms=one.finished_ms or end,
            kind=one.status or "",
            title=f"{one.title or one.id} ({one.status}): {duration((one.finished_ms or end) - (one.created_ms or 0))}",
            marks=[(start, stop or end) for start, stop in one.blocked],
        )
        for one in shown
    ]
    start = min(span.start_ms for span in spans)
    # An objective that stays open for a day must not squeeze the hours together until they are invisible.
    stop = max([one.finished_ms or 0 for one in shown] + [start + HOUR_MS, *(span.start_ms for span in spans)])
    stop = stop + (stop - start) // 20 if any(one.finished_ms is None for one in shown) else stop
    chart = _both(lambda width: charts.timeline(spans, start, stop, width))
    table = _table(
        "All of them",
        ("Objective", "Assignee", "Status", "Took", "Blocked", "Tokens", "Cost"),
        objective_rows(lived),
        right=(3, 4, 5, 6),
    )
    names = [("active", "bar active"), ("blocked", "bar mark"), ("done", "bar done"), ("cancelled", "bar")]
    return _section("objectives", "Objectives", says, chart + _swatches(names) + table)


def _usage(report: Report) -> str:
    says = "Exchanges with models, when they happened. Models without a price cost nothing here."
    if not report.llm_by_hour:
        return _section("usage", "Tokens and cost", says, _none("No exchange with a model was told yet."))
    width_ms = HOUR_MS
    hours = report.llm_by_hour
    if (hours[-1].hour_ms - hours[0].hour_ms) / HOUR_MS > _BARS_MAX:
        width_ms = DAY_MS
    names = _models(hours)
    cost = _by_model(hours, names, width_ms, lambda one: one.cost_usd)
    tokens = _by_model(hours, names, width_ms, lambda one: one.input_tokens + one.output_tokens)
    drawn = _both(lambda width: charts.stacked_bars(tokens, width_ms, width, "Tokens over time", count))
    drawn += "<h3>Cost</h3>" + _both(
        lambda width: charts.stacked_bars(cost, width_ms, width, "Cost over time", dollars)
    )
    table = _table(
        "By model and member",
        ("Model", "Member", "Exchanges", "Failed", "Tokens in", "Tokens out", "Cost"),
        usage_rows(report),
        right=(2, 3, 4, 5, 6),
    )
    return _section("usage", "Tokens and cost", says, "<h3>Tokens</h3>" + drawn + _legend(names) + table)


def objective_rows(objectives: Sequence[Objective]) -> list[tuple[str, ...]]:
    """Return one row of table cells for each objective."""
    return [
        (
            one.title or one.id,
            one.assignee or "",
            one.status or "",
            duration(one.cycle_ms),
            duration(one.blocked_ms or 0),
            count(one.input_tokens + one.output_tokens),
            dollars(one.cost_usd),
        )
        for one in objectives
    ]


def usage_rows(report: Report) -> list[tuple[str, ...]]:
    """Return one row of table cells for each model and member: calls, failed calls, tokens in and out, and cost."""
    return [
        (
            one.model,
            one.member,
            f"{one.exchanges:,}",
            f"{one.failed:,}",
            count(one.input_tokens),
            count(one.output_tokens),
            "no price" if one.unpriced == one.exchanges else dollars(one.cost_usd),
        )
        for one in report.llm
    ]


def _models(hours: Sequence[UsageHour]) -> list[str]:
    """Return the models that have their own colour in the charts, most tokens first.

    If there are more models than colours, the last item is `others`.
    """
    tokens: dict[str, int] = {}
    for one in hours:
        tokens[one.model] = tokens.get(one.model, 0) + one.input_tokens + one.output_tokens
    names = sorted(tokens, key=lambda name: (-tokens[name], name))
    return names if len(names) <= charts.SERIES_MAX else [*names[: charts.SERIES_MAX - 1], "others"]


def _by_model(
    hours: Sequence[UsageHour], names: Sequence[str], width_ms: int, measure: Callable[[UsageHour], float]
) -> list[Series]:
    sums: dict[str, dict[int, float]] = {name: {} for name in names}
    for one in hours:
        points = sums[one.model if one.model in sums else "others"]
        start = one.hour_ms // width_ms * width_ms
        points[start] = points.get(start, 0) + measure(one)
    return [Series(name, sorted(points.items())) for name, points in sums.items()]


def _findings(report: Report, alerts: Sequence[Alert]) -> str:
    audit = report.audit
    state = f'<strong class="good">holds</strong> over {audit.verified_rows:,} rows'
    if not audit.intact:
        state = f'<strong class="bad">is broken</strong> in {audit.chain_breaks:,} places'
    rows = [(one.kind, clock(one.at_ms), one.what) for one in alerts]
    rows += [("storm", clock(one.minute_ms), f"{one.sender} sent {one.messages:,} messages in a minute")
             for one in report.storms]  # fmt: skip
    signed = f"; {audit.bad_signatures:,} messages have a bad signature" if audit.bad_signatures else ""
    body = f"<p>The audit chain {state}{signed}.</p>"
    body += _table("What needs an eye", ("Kind", "When (UTC)", "What"), rows) if rows else _none("Nothing else.")
    return _section("findings", "Findings", "", body)


def _members(report: Report) -> str:
    rows = [
        (
            one.member,
            f"{one.sent:,}",
            f"{one.received:,}",
            f"{one.acked:,}",
            f"{one.refused:,}",
            dollars(one.cost_usd),
            clock(one.heard_ms) if one.heard_ms else "–",
        )
        for one in report.members
    ]
    columns = ("Member", "Sent", "Received", "Acknowledged", "Refused", "Cost", "Last heard (UTC)")
    table = _table("What each did", columns, rows, right=(1, 2, 3, 4, 5)) if rows else _none("There are none yet.")
    says = f"{report.threads.conversations:,} conversations, {report.threads.unanswered:,} with one sender only."
    return _section("members", "Members", says, table)


# Parts.


def _section(name: str, title: str, says: str, body: str) -> str:
    said = f"<p>{escape(says)}</p>" if says else ""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{said}{body}</section>'


def _none(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def _both(draw: Callable[[int], str]) -> str:
    return f'<div class="chart wide">{draw(_WIDE)}</div><div class="chart narrow">{draw(_NARROW)}</div>'


def _legend(names: Sequence[str]) -> str:
    return _swatches([(name, f"s{index}") for index, name in enumerate(names)])


def _swatches(names: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{kind}" width="12" height="12"/></svg>'
        f"{escape(name or 'no name')}</li>"
        for name, kind in names
    )
    return f'<ul class="legend">{items}</ul>'


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: tuple[int, ...] = ()) -> str:
    """Return an HTML table. Only its first rows are visible, and a click opens the others.

    `right` has the indexes of the columns with numbers, which are aligned to the right.
    """
    if not rows:
        return ""
    head = "".join(
        f'<th scope="col"{_numeric(index, right)}>{escape(column)}</th>' for index, column in enumerate(columns)
    )
    lines = [
        "<tr>" + "".join(f"<td{_numeric(index, right)}>{escape(cell)}</td>" for index, cell in enumerate(row)) + "</tr>"
        for row in rows
    ]

    def table(text: str, some: Sequence[str]) -> str:
        name = escape(text)
        return (
            f'<div class="table" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(some)}</tbody></table></div>"
        )

    drawn = table(caption, lines[:_ROWS_SHOWN])
    if len(lines) > _ROWS_SHOWN:
        rest = lines[_ROWS_SHOWN:]
        drawn += f"<details><summary>{len(rest):,} more</summary>{table(f'{caption}, the rest', rest)}</details>"
    return drawn


def _numeric(index: int, right: tuple[int, ...]) -> str:
    return ' class="number"' if index in right else ""
