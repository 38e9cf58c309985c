"""Tests of checkpoints: they are signed, and they show changes of the log by somebody without the key."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from tests.core.doubles import BrokerHarness
from tieline.core.audit import AuditReport, verify
from tieline.core.checkpoints import Checkpoint, forged, genuine, sign
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.inspection import open_inspection

KEY = b"k" * 32


def three() -> list[Checkpoint]:
    made: list[Checkpoint] = []
    for rows in (1, 5, 9):
        made.append(sign(KEY, rows, f"head of {rows}", 1000 * rows, made[-1].mac if made else ""))
    return made


def test_checkpoints_of_one_key_are_genuine_in_their_order() -> None:
    assert list(forged(KEY, three())) == []
    assert list(forged(KEY, [])) == []


@pytest.mark.parametrize("changes", [{"rows": 4}, {"head": "another"}, {"at_ms": 1}, {"previous": ""}, {"mac": "00"}])
def test_a_changed_checkpoint_shows(changes: dict[str, object]) -> None:
    made = three()
    made[1] = structs.replace(made[1], **changes)
    assert "checkpoint 2" in next(forged(KEY, made))


def test_another_key_signs_nothing() -> None:
    assert not genuine(b"x" * 32, three()[0])


@pytest.mark.parametrize(
    "spoil",
    [lambda made: [made[0], made[2]], lambda made: [made[1], made[0], made[2]], lambda made: made[1:]],
    ids=["one is missing", "two changed places", "the first is missing"],
)
def test_a_checkpoint_taken_out_of_the_middle_shows(spoil: Callable[[list[Checkpoint]], list[Checkpoint]]) -> None:
    assert list(forged(KEY, spoil(three())))


# Against a log


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Fixture: a home with a few rows in its log."""
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    ada, _ = harness.join("ada"), harness.join("bob")
    for number in range(5):
        harness.send(ada, "@bob", str(number))
    harness.broker.close()
    return tmp_path


def check(home: Path, *checkpoints: Checkpoint) -> AuditReport:
    inspection = open_inspection(home)
    try:
        return verify(inspection, checkpoints)
    finally:
        inspection.close()


def heads(home: Path) -> list[str]:
    inspection = open_inspection(home)
    try:
        return [row.hash for row in inspection.rows()]
    finally:
        inspection.close()


def test_a_log_that_grew_since_its_checkpoints_is_intact(home: Path) -> None:
    found = heads(home)
    made = [sign(KEY, rows, found[rows - 1], 0, "") for rows in (1, 3, len(found))]
    assert check(home, *made, sign(KEY, 0, "", 0, "")).intact


def test_a_log_whose_end_is_cut_off_is_found_out(home: Path) -> None:
    found = heads(home)
    made = sign(KEY, len(found), found[-1], 0, "")
    with apsw.Connection(str(home / "tieline.db")) as database:
        last = len(found) - 1
        database.execute("DELETE FROM log WHERE offset = ?", (last,))
        database.execute("DELETE FROM message WHERE offset = ?", (last,))
        database.execute("UPDATE snapshot SET log_end = ?", (last,))
    assert check(home).intact, "without a checkpoint nobody can tell"
    report = check(home, made)
    assert [finding.offset for finding in report.findings] == [last]
    assert "cut off" in report.findings[0].what


def test_a_log_with_another_end_is_found_out(home: Path) -> None:
    found = heads(home)
    report = check(home, sign(KEY, 2, found[2], 0, ""))
    assert [finding.offset for finding in report.findings] == [1]
