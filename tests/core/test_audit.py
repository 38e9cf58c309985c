"""Tests of the audit: if a stored hub was changed, added to or shortened, the audit finds it and names the row."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from msgspec.structs import replace

from tests.core.doubles import BrokerHarness
from tests.core.objective_team import Team
from tieline.contract import objective as o
from tieline.contract.chain import GENESIS, link
from tieline.contract.delivery import State
from tieline.contract.event import LogRow
from tieline.core.audit import FINDINGS_MAX, StoredMessage, StoredObjective, StoredObjectiveEvent, StoredStep, verify
from tieline.core.inbox import Image
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.inspection import open_inspection


class Copied:
    """Test double for a store's contents, copied into lists. A test changes the lists before the audit reads them."""

    def __init__(self, home: Path) -> None:
        inspection = open_inspection(home)
        self.log = list(inspection.rows())
        self.sent = list(inspection.messages())
        self.moved = list(inspection.steps())
        self.assigned = list(inspection.objectives())
        self.happened = list(inspection.objective_events())
        self.inboxes = dict(inspection.images())
        self.covered = inspection.snapshot_end()
        inspection.close()

    # The port.

    def rows(self) -> Iterator[LogRow]:
        return iter(self.log)

    def messages(self) -> Iterator[StoredMessage]:
        return iter(self.sent)

    def steps(self) -> Iterator[StoredStep]:
        return iter(self.moved)

    def objectives(self) -> Iterator[StoredObjective]:
        return iter(self.assigned)

    def objective_events(self) -> Iterator[StoredObjectiveEvent]:
        return iter(self.happened)

    def images(self) -> Iterable[tuple[int, Image]]:
        return self.inboxes.items()

    def snapshot_end(self) -> int:
        return self.covered

    def members(self) -> Iterator[tuple[int, str, int]]:
        return iter(())

    def close(self) -> None:
        pass

    # For the test.

    def offset(self, kind: str) -> int:
        """Return the offset of the first log row whose event is of this kind."""
        return next(row.offset for row in self.log if f'"event":"{kind}"'.encode() in row.event)

    def write(self, offset: int, event: bytes) -> None:
        """Change the event of a row.

        Then compute all hashes of the chain again, as an attacker would do to hide the change.
        """
        self.log[offset] = replace(self.log[offset], event=event)
        head = GENESIS
        for row in self.log:
            head = link(head, row.at_ms, row.event)
            self.log[row.offset] = replace(row, hash=head)

    def link(self, times_from: int) -> None:
        """Compute all hashes of the chain again. Hashes of rows before `times_from` do not cover the rows' times."""
        head = GENESIS
        for row in self.log:
            timed = row.offset >= times_from
            head = link(head, row.at_ms, row.event) if timed else blake3(head.encode() + row.event).hexdigest()
            self.log[row.offset] = replace(row, hash=head)

    def move_time(self, offset: int) -> None:
        """Move the time of a row three hours forward."""
        self.log[offset] = replace(self.log[offset], at_ms=self.log[offset].at_ms + 3 * 3600 * 1000)

    def cut(self, offset: int) -> None:
        """Remove the log rows from `offset` on, and set the end of the snapshot to `offset`."""
        del self.log[offset:]
        self.covered = offset

    def found(self) -> list[tuple[int, str]]:
        return [(finding.offset, finding.what) for finding in verify(self).findings]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: a home whose hub was used and has stopped.

    It has an objective, and three messages to bob, of which he acknowledged two.
    """
    folder = tmp_path_factory.mktemp("audit")
    harness = BrokerHarness(lambda: SqliteStore(folder, synchronous="OFF"))
    team = Team(harness)
    team.change("bob", team.create(), o.Block("waiting for review"))
    team.forget()
    bob = team.sessions["bob"]
    for number in range(3):
        harness.send(team.sessions["ada"], "@bob", str(number))
    first, second, _ = harness.fetch(bob)
    harness.advance(bob, second.key)
    harness.advance(bob, first.key)
    harness.broker.close()
    return folder


@pytest.fixture
def stored(home: Path) -> Copied:
    """Fixture: a copy of the contents of the hub in `home`, which the test may change."""
    return Copied(home)


def test_a_store_that_nobody_touched_is_intact(stored: Copied) -> None:
    report = verify(stored)
    assert report.intact, report.findings
    assert (report.rows, report.messages, report.head) == (len(stored.log), len(stored.sent), stored.log[-1].hash)


def test_a_row_that_is_no_event_is_found(stored: Copied) -> None:
    stored.write(stored.offset("register"), b'{"event":"register"}')
    ((offset, what),) = stored.found()
    assert offset == stored.offset("register")
    assert "is no event" in what


def test_a_time_that_was_moved_is_found_in_every_row(stored: Copied) -> None:
    for offset, row in enumerate(tuple(stored.log)):
        stored.move_time(offset)
        what = f"row {offset} was changed: its hash does not follow from its time, its event and the row before"
        assert stored.found() == [(offset, what)]
        stored.log[offset] = row


def test_times_that_were_all_moved_by_three_hours_are_found(stored: Copied) -> None:
    for offset in range(len(stored.log)):
        stored.move_time(offset)
    assert [offset for offset, _ in stored.found()] == list(range(len(stored.log)))


def test_rows_of_an_older_program_are_intact_and_the_report_says_where_times_begin_to_be_covered(
    stored: Copied,
) -> None:
    assert verify(stored).times_from == 0
    end = len(stored.log)
    for times_from in (1, end // 2, end):
        stored.link(times_from)
        report = verify(stored)
        assert report.intact, report.findings
        assert report.times_from == times_from
    stored.link(end // 2)
    stored.move_time(end // 2 - 1)
    assert verify(stored).intact, "nothing covers the times of these rows"
    stored.move_time(end // 2)
    assert [offset for offset, _ in stored.found()] == [end // 2]


def test_a_row_of_an_older_program_with_another_time_than_its_event_is_found(stored: Copied) -> None:
    offset = stored.offset("ack")
    event = stored.log[offset].event.replace(b'"session"', b'"at_ms":1,"session"')
    stored.log[offset] = replace(stored.log[offset], event=event)
    stored.link(len(stored.log))
    assert stored.found() == [(offset, f"row {offset} says another time than its event")]


def test_a_row_that_was_linked_without_its_time_after_rows_with_it_is_found(stored: Copied) -> None:
    last = len(stored.log) - 1
    row = stored.log[last]
    hashed = blake3(stored.log[last - 1].hash.encode() + row.event).hexdigest()
    stored.log[last] = replace(row, hash=hashed, at_ms=row.at_ms + 1)
    what = f"row {last} was changed: its hash does not cover its time, as rows before do"
    assert stored.found() == [(last, what)]


def test_a_row_whose_hash_does_not_follow_is_found(stored: Copied) -> None:
    offset = stored.offset("ack")
    stored.log[offset] = replace(stored.log[offset], event=stored.log[offset].event + b" ")
    assert stored.found() == [
        (offset, f"row {offset} was changed: its hash does not follow from its time, its event and the row before"),
    ]


def test_a_row_that_is_missing_is_found(stored: Copied) -> None:
    offset = stored.offset("register")
    del stored.log[offset]
    assert stored.found()[0] == (offset, f"row {offset} is missing: after it comes row {offset + 1}")


def test_a_message_that_no_row_sent_is_found(stored: Copied) -> None:
    at, other = stored.sent[0].offset, stored.offset("register")
    stored.sent.insert(0, replace(stored.sent[0], offset=other, id="forged"))
    assert stored.found() == [(other, f"message forged has no send row at {other}")]
    stored.sent[0] = replace(stored.sent[0], offset=at)
    assert stored.found() == [(at, f"message forged has no send row at {at}")]


@pytest.mark.parametrize("forged", [{"content": b"{}"}, {"target": "@mallory"}])
def test_a_message_that_is_not_what_was_sent_is_found(stored: Copied, forged: dict[str, Any]) -> None:
    message = stored.sent[0] = replace(stored.sent[0], **forged)
    expected = f"what is stored of message {message.id} is not what row {message.offset} says was sent"
    assert stored.found() == [(message.offset, expected)]


def test_a_step_that_no_row_made_is_found(stored: Copied) -> None:
    offset = stored.moved[0].offset
    stored.moved.insert(0, StoredStep(offset, 2, State.ACKED, 900, 901))
    assert stored.found() == [(offset, f"deliveries 900 to 901 of member number 2 have no acked row at {offset}")]


def test_an_event_log_of_an_objective_that_was_changed_is_found(stored: Copied) -> None:
    changed = replace(stored.happened[1], actor="wes")
    stored.happened[1] = changed
    at = changed.offset
    assert stored.found() == [
        (at, f"the event log of {changed.id} is not what row {at} says happened"),
        (at, f"row {at} says that {changed.id} changed, and its event log does not"),
    ]


def test_an_entry_that_was_taken_out_of_an_event_log_is_found(stored: Copied) -> None:
    gone = stored.happened.pop(0)
    expected = f"row {gone.offset} says that {gone.id} changed, and its event log does not"
    assert stored.found() == [(gone.offset, expected)]


@pytest.mark.parametrize("changes", [{"status": "done"}, {"content": b"{}"}, {"parties": b"[1,2,3]"}])
def test_an_objective_that_was_changed_is_found(stored: Copied, changes: dict[str, object]) -> None:
    objective = stored.assigned[0] = replace(stored.assigned[0], **changes)
    at = objective.offset
    assert stored.found() == [(at, f"objective {objective.id} is not as row {at} left it")]


def test_an_objective_that_another_row_left_is_found(stored: Copied) -> None:
    offset = stored.offset("register")
    objective = stored.assigned[0] = replace(stored.assigned[0], offset=offset)
    assert stored.found() == [(offset, f"objective {objective.id} is not as row {offset} left it")]


def test_what_points_beyond_a_log_that_was_cut_off_is_found(stored: Copied) -> None:
    sends = [message for message in stored.sent if message.offset >= stored.happened[0].offset]
    end = stored.happened[0].offset
    stored.inboxes.clear()
    stored.cut(end)
    objective = stored.assigned[0].id
    assert stored.found() == [
        *((message.offset, f"message {message.id} has no send row: the log ends at {end}") for message in sends),
        *((step.offset, f"a step points at row {step.offset}: the log ends at {end}") for step in stored.moved),
        *([(end, f"the event log of {objective} goes on after the log's end at {end}")] * len(stored.happened)),
        (end, f"objective {objective} has no row: the log ends at {end}"),
    ]
    assert verify(stored).messages == len(stored.sent)


def test_a_snapshot_of_more_than_the_log_is_found(stored: Copied) -> None:
    end = len(stored.log)
    stored.covered = end + 7
    assert stored.found() == [(end, f"the snapshot is of row {end + 7}, but the log ends at {end}")]


def test_deliveries_that_a_snapshot_calls_settled_without_a_row_are_found(stored: Copied) -> None:
    end = len(stored.log)
    number, image = next((number, image) for number, image in stored.inboxes.items() if image.rungs)
    unsettled = image.base + len(image.rungs) - 1

    def unsaid(*keys: int) -> list[tuple[int, str]]:
        return [(end, f"delivery {key} of member number {number} is settled, but no row says so") for key in keys]

    stored.inboxes[number] = replace(image, base=unsettled + 1, rungs=b"")
    assert stored.found() == unsaid(unsettled), "every delivery below the base is settled"
    stored.inboxes[number] = replace(image, base=unsettled + 5, rungs=b"")
    assert stored.found() == unsaid(unsettled), "one gap is one finding"
    stored.inboxes[number] = replace(image, base=unsettled, rungs=bytes([2 * State.ACKED]))
    assert stored.found() == unsaid(unsettled)
    stored.inboxes[number] = replace(image, base=unsettled, rungs=bytes([2 * (max(State) + 1)]))
    assert stored.found() == [(end, f"delivery {unsettled} of member number {number} has no state that there is")]


def test_a_settled_delivery_whose_row_became_another_event_is_found(stored: Copied) -> None:
    step = next(step for step in stored.moved if step.state == State.ACKED and step.first == 1)
    stored.write(step.offset, stored.log[stored.offset("register")].event)
    keys = f"deliveries 1 to {step.last} of member number {step.number}"
    expected = [
        (step.offset, f"{keys} have no acked row at {step.offset}"),
        (len(stored.log), f"delivery 1 of member number {step.number} is settled, but no row says so"),
    ]
    assert stored.found() == expected, "the deliveries after it have their rows"
    stored.inboxes[step.number] = Image(1, b"", b"", bytes([2 * State.ACKED]))
    assert stored.found() == expected


def test_findings_are_bounded(stored: Copied) -> None:
    offset = stored.moved[0].offset
    stored.moved[:0] = [StoredStep(offset, 2, State.ACKED, 900, 901)] * (FINDINGS_MAX + 1)
    assert len(stored.found()) == FINDINGS_MAX
