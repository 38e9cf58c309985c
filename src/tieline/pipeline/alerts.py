"""Alerts: problems in a report that somebody should know of, each with an id that is the same in every later report.

Used by: `pipeline run --alerts`, which sends them, and the HTML page of the report. Uses: a report. The same report
always results in the same alerts, word for word. The hub recognises a repeated message by its wire id and its text, so
no alert contains a number that keeps growing.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from tieline.pipeline.arrow_tables import DAY_MS
from tieline.pipeline.report_traffic import HOUR_MS
from tieline.wire.report_parts import Report

BACKLOG = 100
"""Send an alert when this many deliveries wait for one member, and another one at ten times as many."""
SILENT_MS = HOUR_MS
"""A member is silent if messages have waited this long and the member sent and read nothing in that time."""
RECENT_MS = 7 * DAY_MS
"""Alerts older than this are not sent."""
ALERTS_MAX = 20
"""Maximum number of alerts of one kind in one report. If there are more, one additional alert says so."""


class Alert(Struct, frozen=True):
    """One problem to report to a member: a loop, a silent member, a backlog, a day's cost, missed rows, a bad audit."""

    id: str
    """The wire id of the message that contains the alert. The id is the same in every report, so the hub recognises a
    repeated alert.
    """
    kind: str
    """Kind of problem: `loop`, `silent`, `backlog`, `budget`, `missed`, `check` or `audit`."""
    what: str
    at_ms: int


def find_alerts(report: Report, *, now_ms: int | None = None, budget_usd: float | None = None) -> list[Alert]:
    """Return the alerts of a report that are recent enough to send, oldest first.

    `now_ms` is the current time, or `None` if the report does not cover everything until now. Then the end of the
    report is used. The time matters, because a member becomes silent while nothing happens. `budget_usd` is the limit
    for the cost of a day.
    """
    now_ms = (report.to_ms or 0) if now_ms is None else now_ms
    since = now_ms - RECENT_MS
    found: dict[str, list[Alert]] = {}
    sources = (
        _audit(report),
        _missed(report),
        _checks(report),
        _loops(report),
        _silent(report, now_ms),
        _backlogs(report, now_ms),
        _budget(report, budget_usd),
    )
    for source in sources:
        for alert in source:
            if alert.at_ms >= since:
                found.setdefault(alert.kind, []).append(alert)
    kept = [alert for alerts in found.values() for alert in _few(alerts)]
    return sorted(kept, key=lambda alert: (alert.at_ms, alert.id))


def _few(alerts: list[Alert]) -> list[Alert]:
    """Return the newest `ALERTS_MAX` alerts of one kind. If there are more, add one alert that says so.

    So a log with many errors does not cause very many messages.
    """
    alerts.sort(key=lambda alert: (-alert.at_ms, alert.id))
    rest = alerts[ALERTS_MAX:]
    if not rest:
        return alerts
    newest = max(alert.at_ms for alert in rest)
    kind = rest[0].kind
    more = _alert(kind, f"more {newest // DAY_MS}", f"There is more of this kind ({kind}): see the report.", newest)
    return [*alerts[:ALERTS_MAX], more]


def _alert(kind: str, subject: str, what: str, at_ms: int) -> Alert:
    digest = hashlib.sha256(f"{kind}\x1f{subject}".encode()).hexdigest()[:24]
    return Alert(f"pipeline-{kind}-{digest}", kind, what, at_ms)


def _audit(report: Report) -> Iterator[Alert]:
    for one in report.audit.findings:
        if one.kind == "chain":
            what = f"The audit chain is broken: {one.what}. 'tieline pipeline verify' says more."
            yield _alert("audit", f"chain {one.offset}", what, one.at_ms)
    signed: dict[tuple[str, int], int] = {}
    for one in report.audit.findings:
        if one.kind == "signature":
            day = one.at_ms // DAY_MS * DAY_MS
            signed[one.member, day] = max(signed.get((one.member, day), 0), one.at_ms)
    for (member, day), at_ms in signed.items():
        what = f"Messages of {member} have a signature that is wrong or made under another name."
        yield _alert("audit", f"signature {day} {member}", what, at_ms)


def _missed(report: Report) -> Iterator[Alert]:
    if report.missed_ms is not None:
        what = f"The pipeline came too late: the hub had deleted {' and '.join(sorted(report.missed))} unread."
        yield _alert("missed", str(report.missed_ms), f"{what} 'tieline pipeline status' says more.", report.missed_ms)


def _checks(report: Report) -> Iterator[Alert]:
    for one in report.failed_checks:
        what = f"A test of the table {one.table} failed: {one.what}. 'tieline pipeline rebuild --all' mends the tables."
        yield _alert("check", f"{one.table} {one.check} {one.what}", what, one.at_ms)


def _loops(report: Report) -> Iterator[Alert]:
    before: dict[str, int] = {}
    for one in sorted(report.loops, key=lambda loop: loop.day_ms):
        # A loop that continues past midnight, or is paused after midnight, is the same loop.
        if one.day_ms - before.get(one.conversation, 0) > DAY_MS:
            what = f"Agents answer each other in a loop: {one.conversation}."
            yield _alert("loop", f"{one.day_ms} {one.conversation}", what, one.last_ms)
        before[one.conversation] = one.day_ms


def _silent(report: Report, now_ms: int) -> Iterator[Alert]:
    waiting = {one.member for one in report.backlog if one.waiting > 0}
    for one in report.members:
        since = one.waits_since_ms
        if one.member in waiting and since is not None and now_ms - since >= SILENT_MS:
            what = f"{one.member} has messages waiting and has not said or read anything for an hour."
            yield _alert("silent", f"{since} {one.member}", what, since + SILENT_MS)


def _backlogs(report: Report, now_ms: int) -> Iterator[Alert]:
    day = now_ms // DAY_MS * DAY_MS
    for one in report.backlog:
        step = BACKLOG
        while one.waiting >= step * 10:
            step *= 10
        if one.waiting >= step:
            what = f"At least {step:,} deliveries wait for {one.member}."
            yield _alert("backlog", f"{day} {step} {one.member}", what, now_ms)


def _budget(report: Report, budget_usd: float | None) -> Iterator[Alert]:
    if budget_usd is None:
        return
    days: dict[int, float] = {}
    for one in report.llm_by_hour:
        day = one.hour_ms // DAY_MS * DAY_MS
        days[day] = days.get(day, 0.0) + one.cost_usd
    for day, cost in days.items():
        if cost > budget_usd:
            date = f"{datetime.fromtimestamp(day / 1000, UTC):%Y-%m-%d}"
            what = f"Models cost more than ${budget_usd:,.2f} on {date}."
            yield _alert("budget", f"{day} {budget_usd:.2f}", what, day)
