"""Tests of the audit of large logs: every change of a row is found at its offset, for any split into ranges."""

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.audits import DAMAGES, copied, drop, link, pages_of, rows, told, walked
from tieline.pipeline import sqlite_log
from tieline.pipeline import verify as audit
from tieline.pipeline.sqlite_log import SqliteLog

PAGE = 50
"""Number of rows of a page in these tests, so that a small log has many pages."""


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: a home with a small log."""
    from bench.synth import Generator

    home = tmp_path_factory.mktemp("little") / "h"
    Generator(home, 600, seed=5).run()
    return home


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: set the size of a page to `PAGE` rows, so that a small log has many pages."""
    monkeypatch.setattr(audit, "PAGE_ROWS", PAGE)
    monkeypatch.setattr(sqlite_log, "PAGE_ROWS", PAGE)


def test_a_log_that_nobody_touched_has_no_findings(little: Path, short_pages: None) -> None:
    assert told(little) == []


PLACES = {
    "the first row": 0,
    "the second row": 1,
    "the last row of a range": PAGE - 1,
    "the first row of a range": PAGE,
    "the last row": -1,
}


@pytest.mark.slow
def test_rows_of_an_older_program_are_intact_but_only_before_the_newer_ones(
    little: Path, tmp_path: Path, short_pages: None
) -> None:
    home = copied(little, tmp_path / "h")
    end = SqliteLog(str(home)).end("main")
    for times_from in (1, PAGE - 1, PAGE, PAGE + 1, end):
        with rows(home) as database:
            link(database, 0, range(times_from))
        assert list(told(home)) == []
        assert audit.times_from({"home": str(home)}, end) == times_from
    for offset in (PAGE - 1, PAGE, PAGE + 1, end - 1):
        with rows(home) as database:
            link(database, 0, range(offset, offset + 1))
        assert [(one.kind, one.offset) for one in told(home)] == [("chain", offset)]


def test_times_that_were_all_moved_by_three_hours_are_found_in_every_row_that_covers_its_time(
    little: Path, tmp_path: Path, short_pages: None
) -> None:
    home = copied(little, tmp_path / "h")
    end = SqliteLog(str(home)).end("main")
    with rows(home) as database:
        link(database, 0, range(PAGE))
        database.execute("UPDATE log SET at_ms = at_ms + 10800000")
    assert [one.offset for one in told(home) if one.kind == "chain"] == list(range(PAGE, end))
    assert audit.times_from({"home": str(home)}, end) == PAGE, "the report says that earlier times prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_was_done_to_a_row_is_found_at_its_place(
    little: Path, tmp_path: Path, short_pages: None, damage: str, place: int
) -> None:
    home = copied(little, tmp_path / "h")
    end = SqliteLog(str(home)).end("main")
    offset = place if place >= 0 else end - 1
    with rows(home) as database:
        DAMAGES[damage](database, offset)
    found = {(one.kind, one.offset) for one in told(home)}
    expected = {
        "change": {("chain", offset)},
        "move_time": {("chain", offset)},
        "rehash": {("chain", offset), *([("chain", offset + 1)] if offset < end - 1 else [])},
        "drop": {("missing", offset), ("chain", offset + 1)} if offset < end - 1 else set(),
        "swap": {("chain", offset), ("chain", max(0, offset - 1))},
        "double": {("chain", offset + 1)},
        "bridge": {("missing", offset), ("chain", offset + 1)} if offset < end - 1 else set(),
    }[damage]
    # The data stored beside a moved row do not match the row any more either.
    assert expected <= found
    assert {one for one in found if one[0] in ("chain", "missing")} <= {
        *expected, ("chain", offset + 1), ("chain", offset + 2), *_left_over(home)
    }  # fmt: skip


def _left_over(home: Path) -> set[tuple[str, int]]:
    """Return a finding for each stored message or objective change whose log row is missing."""
    with rows(home) as database:
        found = database.execute(
            "SELECT offset FROM message UNION SELECT offset FROM objective_event EXCEPT SELECT offset FROM log"
        ).fetchall()
    return {("missing", offset) for (offset,) in found}


def test_rows_that_are_missing_are_told_as_ranges_over_any_number_of_pages(
    little: Path, tmp_path: Path, short_pages: None
) -> None:
    home = copied(little, tmp_path / "h")
    gone = [*range(3), 60, *range(120, 305)]
    with rows(home) as database:
        for offset in gone:
            drop(database, offset)
    found = [one for one in told(home) if one.kind == "missing"]
    assert [(one.offset, one.what) for one in found] == [
        (0, "rows 0 to 2 are missing"),
        (60, "row 60 is missing"),
        (120, "rows 120 to 149 are missing"),
        (150, "rows 150 to 299 are missing"),
        (300, "rows 300 to 304 are missing"),
    ]


def test_a_tail_that_was_cut_off_shows_where_messages_are_left_behind(
    little: Path, tmp_path: Path, short_pages: None
) -> None:
    home = copied(little, tmp_path / "h")
    with rows(home) as database:
        (last,) = database.execute("SELECT max(offset) FROM message").fetchone()
        database.execute("DELETE FROM log WHERE offset >= ?", (last,))
    (one,) = [one for one in told(home) if one.offset == last]
    assert one.kind == "missing"


def test_a_log_of_no_row_or_one_is_whole(little: Path, tmp_path: Path, short_pages: None) -> None:
    for count in (0, 1):
        home = copied(little, tmp_path / str(count))
        with rows(home) as database:
            database.execute("DELETE FROM log WHERE offset >= ?", (count,))
            database.execute("DELETE FROM message WHERE offset >= ?", (count,))
            database.execute("DELETE FROM objective_event WHERE offset >= ?", (count,))
        assert sum(page.rows for page in pages_of(home)) == count
        assert told(home) == []


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=st.lists(st.tuples(st.sampled_from(sorted(DAMAGES)), st.integers(0, 150)), max_size=4),
    cuts=st.lists(st.integers(1, 199), max_size=6),
    page=st.integers(1, 70),
)
def test_any_number_of_ranges_find_what_one_walk_along_the_log_finds(
    little: Path, monkeypatch: pytest.MonkeyPatch, damages: list[tuple[str, int]], cuts: list[int], page: int
) -> None:
    monkeypatch.setattr(sqlite_log, "PAGE_ROWS", page)
    with tempfile.TemporaryDirectory() as folder:
        home = copied(little, Path(folder, "h"))
        with rows(home) as database:
            database.execute("DELETE FROM log WHERE offset >= 200")
            for damage, offset in damages:
                DAMAGES[damage](database, offset)
        log = SqliteLog(str(home))
        bounds = [0, *sorted(set(cuts)), max(200, log.end("main"))]
        batches = [batch for first, last in itertools.pairwise(bounds) for batch in log.read("main", first, last)]
        found = pa.Table.from_batches(batches)
        assert list(zip(found["offset"].to_pylist(), found["chained"].to_pylist(), strict=True)) == walked(home)
