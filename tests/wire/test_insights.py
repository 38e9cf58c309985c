"""Tests of the stored report: what is accepted, and what is refused without a change."""

from pathlib import Path

import pytest

from tests.wire.reports import NOW_MS, report
from tieline.wire.insights import BYTES_MAX, FILE, StoredReport


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", "invalid_report", "truncated"),
        (report()[:-20], "invalid_report", "truncated"),
        (b"null", "invalid_report", "Expected `object`"),
        (b"[]", "invalid_report", "Expected `object`"),
        (b"{}", "invalid_report", "missing required field `totals`"),
        (report(edges=5), "invalid_report", "$.edges"),
        (report(edges=[{"from": "a", "to": "b", "messages": "many"}]), "invalid_report", "$.edges[0].messages"),
        (report(refreshed_at_ms="now"), "invalid_report", "$.refreshed_at_ms"),
        (report(refreshed_at_ms=NOW_MS + 2 * 86_400_000), "invalid_report", "a day ahead"),
        (b"\xff" + report(), "invalid_report", "invalid character"),
        (b"[" * 100_000, "invalid_report", ""),
        (report(edges=[[]] * 600_000), "report_too_large", "500000 values"),
    ],
)
def test_what_is_no_report_is_rejected_and_changes_nothing(folder: Path, body: bytes, code: str, text: str) -> None:
    stored = StoredReport(folder)
    assert stored.put(report()) is None
    rejected = stored.put(body)
    assert rejected is not None
    assert rejected.code == code
    assert text in rejected.text
    assert stored.read() == report()


def test_a_report_is_stored_as_it_came_with_the_time_of_its_coming(folder: Path) -> None:
    stored = StoredReport(folder)
    assert (stored.read(), stored.stored_at_ms()) == (None, None)
    assert stored.put(report(of_a_newer_program=1)) is None
    assert stored.read() == report(of_a_newer_program=1)
    assert (stored.stored_at_ms() or 0) >= NOW_MS


def test_the_same_report_may_come_again_and_an_older_one_is_rejected(folder: Path) -> None:
    stored = StoredReport(folder)
    assert [stored.put(report()), stored.put(report())] == [None, None]
    rejected = stored.put(report(refreshed_at_ms=NOW_MS - 1))
    assert rejected is not None
    assert rejected.code == "outdated_report"
    assert stored.read() == report()


def test_a_damaged_file_is_replaced(folder: Path) -> None:
    (folder / FILE).write_bytes(b"{")
    assert StoredReport(folder).put(report()) is None


def test_a_report_has_a_limit_in_bytes(folder: Path) -> None:
    rejected = StoredReport(folder).put(report(padding="x" * BYTES_MAX))
    assert rejected is not None
    assert rejected.code == "report_too_large"
