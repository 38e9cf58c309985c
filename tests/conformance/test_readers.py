"""Tests of the ReaderStore port with both logs of every store. Each test checks a sentence of the port's docstrings."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.postgres_server import postgres_activity, postgres_store
from tieline.contract.reader import Reader
from tieline.core.store import ACTIVITY, MAIN, ActivityStore, Store
from tieline.stores.sqlite import SqliteActivity, SqliteStore

Opener = Callable[[Path], Store | ActivityStore]

STORES: dict[str, tuple[str, Opener]] = {
    "sqlite main": (MAIN, lambda folder: SqliteStore(folder, synchronous="OFF")),
    "sqlite activity": (ACTIVITY, lambda folder: SqliteActivity(folder, synchronous="OFF")),
    "postgres main": (MAIN, postgres_store),
    "postgres activity": (ACTIVITY, postgres_activity),
}


class Scene:
    """Test helper with a store that can be closed and opened again."""

    def __init__(self, log: str, opener: Opener, folder: Path) -> None:
        self.log = log
        self._opener = opener
        self._folder = folder
        self.open(folder)

    def open(self, folder: Path) -> None:
        self.store = self._opener(folder)
        self.store.restore()

    def crash(self) -> None:
        self.store.close()
        self.open(self._folder)

    def reader(self, name: str, position: int = 0) -> Reader:
        return Reader(name=name, log=self.log, position=position, by="ada", at_ms=5)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if "postgres" in name else ()) for name in STORES])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(*STORES[request.param], tmp_path / "home")
    yield scene
    scene.store.close()


def test_a_log_has_an_epoch_of_its_own_that_stays(scene: Scene, tmp_path: Path) -> None:
    epoch = scene.store.readers.epoch
    assert len(epoch) == 32
    scene.crash()
    assert scene.store.readers.epoch == epoch
    scene.store.close()
    scene.open(tmp_path / "another")
    assert scene.store.readers.epoch != epoch


def test_readers_are_kept_by_name_with_the_commit_and_not_before(scene: Scene) -> None:
    assert list(scene.store.readers.rows()) == []
    late, early = scene.reader("z", 3), scene.reader("a")
    for one in (late, early):
        scene.store.readers.save(one)
    assert list(scene.store.readers.rows()) == [early, late]
    scene.crash()
    assert list(scene.store.readers.rows()) == []
    scene.store.readers.save(late)
    scene.store.commit()
    moved = replace(late, position=2**62, missed=3, missed_first=1, missed_last=7, warned=True)
    scene.store.readers.save(moved)
    scene.store.commit()
    scene.crash()
    assert list(scene.store.readers.rows()) == [moved]


def test_a_reader_is_dropped_by_name(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.store.readers.save(scene.reader(name))
    scene.store.readers.drop("a")
    scene.store.readers.drop("never")
    scene.store.commit()
    scene.crash()
    assert [row.name for row in scene.store.readers.rows()] == ["b"]


def test_an_empty_log_has_lost_nothing_and_has_no_times(scene: Scene) -> None:
    assert scene.store.readers.kept_from == 0
    assert scene.store.readers.time_of(0) is None
    assert scene.store.readers.bytes_used() > 0
    assert not scene.store.readers.free_space(), "there is nothing to give back"
