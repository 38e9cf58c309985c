"""Tests of the ActivityStore port with every implementation. Each test checks a sentence of the port's docstrings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store.writer import PARAMS
from tests.stores.postgres_server import postgres_activity
from tieline.contract.event import LogRow
from tieline.core.readers import Cutoff
from tieline.core.store import ActivityEntry, ActivityQuery, ActivityStore, StoreError
from tieline.stores.sqlite import SqliteActivity

PAGE_BYTES = 1 << 30

Opener = Callable[[], ActivityStore]


def sqlite(folder: Path) -> Opener:
    return lambda: SqliteActivity(folder, synchronous="OFF")


def postgres(folder: Path) -> Opener:
    return lambda: postgres_activity(folder)


STORES: dict[str, Callable[[Path], Opener]] = {"sqlite": sqlite, "postgres": postgres}


class Scene:
    """Test helper with an activity store that can be closed and opened again."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.store = opener()
        self.end = self.store.restore()

    def crash(self) -> int:
        self.store.close()
        self.store = self._opener()
        self.end = self.store.restore()
        return self.end

    def append(
        self, number: int = 1, kind: str = "llm", ts_ms: int = 5, event: bytes = b"{}", at_ms: int = 7
    ) -> ActivityEntry:
        entry = ActivityEntry(self.end, at_ms, number, kind, ts_ms, event)
        self.store.append([entry])
        self.end += 1
        return entry

    def select(self, **query: Any) -> list[int]:
        given = {"from_ms": None, "to_ms": None, "kinds": (), "limit": 100, "bytes_max": PAGE_BYTES, **query}
        return [entry.offset for entry in self.store.select(ActivityQuery(**{"number": 1, **given}))]


@pytest.fixture(params=PARAMS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(STORES[request.param](tmp_path / "home"))
    yield scene
    scene.store.close()


def test_an_empty_log_begins_at_nought(scene: Scene) -> None:
    assert scene.end == 0
    assert scene.select() == []
    assert scene.store.read_log(0, 10, PAGE_BYTES) == ([], 0)
    scene.store.commit()


def test_what_was_not_committed_is_neither_read_nor_there_after_a_crash(scene: Scene) -> None:
    scene.append()
    assert scene.select() == []
    assert scene.store.read_log(0, 10, PAGE_BYTES) == ([], 0)
    assert scene.crash() == 0
    scene.append()
    assert scene.store.restore() == 0


def test_what_was_committed_is_there_as_it_was(scene: Scene) -> None:
    kept = [scene.append(2, "http", 3, b'{"n":1}'), scene.append(1, "", 2**62, b"{}")]
    scene.store.commit()
    assert scene.crash() == 2
    query = ActivityQuery(2, None, None, (), 10, PAGE_BYTES)
    assert list(scene.store.select(query)) == kept[:1]
    rows, end = scene.store.read_log(0, 10, PAGE_BYTES)
    assert (list(rows), end) == (
        [LogRow(offset=0, at_ms=7, event=b'{"n":1}'), LogRow(offset=1, at_ms=7, event=b"{}")],
        2,
    )


def test_a_gap_is_refused_and_drops_what_was_buffered(scene: Scene) -> None:
    scene.append()
    with pytest.raises(StoreError):
        scene.store.append([ActivityEntry(5, 0, 1, "", 0, b"{}")])
    assert scene.store.restore() == 0
    scene.store.commit()
    assert scene.crash() == 0


def test_activity_is_found_by_member_time_and_kind_newest_first(scene: Scene) -> None:
    for number, kind, ts_ms in (
        (1, "llm", 10),
        (2, "llm", 20),
        (1, "http", 30),
        (1, "llm", 20),
        (1, "llm", 30),
        (1, "open", 40),
    ):
        scene.append(number, kind, ts_ms)
    scene.store.commit()
    assert scene.select() == [5, 4, 2, 3, 0]
    assert scene.select(number=2) == [1]
    assert scene.select(from_ms=20, to_ms=30) == [4, 2, 3]
    assert scene.select(kinds=("http", "open")) == [5, 2]
    assert scene.select(kinds=("llm",), to_ms=20) == [3, 0]
    assert scene.select(limit=2) == [5, 4]
    assert scene.select(from_ms=-(2**80), to_ms=2**80) == [5, 4, 2, 3, 0]
    assert scene.select(kinds=("never",)) == []


def test_answers_have_a_size_but_hold_one_at_least(scene: Scene) -> None:
    for _ in range(4):
        scene.append(event=b"x" * 1000)
    scene.store.commit()
    for bytes_max, count in ((0, 1), (2500, 2), (PAGE_BYTES, 4)):
        assert len(scene.select(bytes_max=bytes_max)) == count
        assert len(scene.store.read_log(0, 10, bytes_max)[0]) == count


def test_rows_are_consecutive_from_where_the_reader_starts(scene: Scene) -> None:
    rows = [LogRow(offset=entry.offset, at_ms=7, event=b"{}") for entry in (scene.append() for _ in range(5))]
    scene.store.commit()
    for start, limit, expected in ((0, 10, rows), (1, 3, rows[1:4]), (4, 3, rows[4:]), (5, 3, []), (99, 3, [])):
        read, end = scene.store.read_log(start, limit, PAGE_BYTES)
        assert (list(read), end) == (expected, 5)


def test_what_is_old_is_forgotten_oldest_first_and_the_log_goes_on_where_it_was(scene: Scene) -> None:
    for at_ms in (1, 2, 3, 9):
        scene.append(at_ms=at_ms)
    scene.store.commit()
    assert len(scene.store.prune(Cutoff(1), 10)) == 0
    assert scene.store.prune(Cutoff(4), 2) == range(2)
    assert scene.store.prune(Cutoff(4), 2) == range(2, 3)
    assert len(scene.store.prune(Cutoff(100), 10)) == 0, "the newest row stays"
    scene.store.commit()
    assert scene.select() == [3]
    scene.append()
    scene.store.commit()
    rows, end = scene.store.read_log(0, 10, PAGE_BYTES)
    assert ([row.offset for row in rows], end) == ([3, 4], 5)
    assert [row.offset for row in scene.store.read_log(4, 10, PAGE_BYTES)[0]] == [4]


def test_forgetting_is_durable_with_the_commit_and_not_before(scene: Scene) -> None:
    for at_ms in (1, 2):
        scene.append(at_ms=at_ms)
    scene.store.commit()
    assert scene.store.prune(Cutoff(10), 10) == range(1)
    assert scene.crash() == 2
    assert scene.select() == [1, 0]
    assert scene.store.prune(Cutoff(10), 10) == range(1)
    scene.append()
    scene.store.commit()
    assert scene.crash() == 3
    assert scene.select() == [2, 1]


def test_unread_rows_are_kept_as_long_as_the_cutoff_says(scene: Scene) -> None:
    for at_ms in (1, 2, 3, 4, 9):
        scene.append(at_ms=at_ms)
    scene.store.commit()
    assert scene.store.prune(Cutoff(5, unread=1), 10) == range(1)
    assert scene.store.prune(Cutoff(5, unread=1, unread_before_ms=3), 10) == range(1, 2)
    scene.store.commit()
    assert scene.store.readers.kept_from == 2
    assert scene.store.readers.time_of(0) == 3
    assert scene.store.readers.time_of(5) is None
