"""Tests that compare the inbox with a simple model: a dictionary of states."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.contract.delivery import SETTLED, TRANSITIONS, State
from tieline.core.inbox import Inbox

append = st.tuples(st.just("append"), st.integers(1, 3))
move = st.tuples(
    st.just("move"), st.integers(-1, 30), st.integers(-1, 30), st.sampled_from(sorted(State)), st.booleans()
)
image = st.tuples(st.just("image"))
actions: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(append | move | image, max_size=40)


class Model:
    """Simple model of an inbox: a dictionary with the state of each delivery.

    The tests compare the real inbox with it.
    """

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.ackless: set[int] = set()

    def append(self) -> int:
        key = len(self.states) + 1
        self.states[key] = State.PENDING
        return key

    def move(self, first: int, last: int, state: State, *, ackless: bool) -> set[int]:
        moved = {key for key, before in self.states.items() if first <= key <= last and state in TRANSITIONS[before]}
        if state is State.OFFERED and not ackless:
            # Offered again on a wire that can acknowledge, an ackless delivery is waited for again.
            again = {key for key in self.ackless if first <= key <= last and self.states[key] is State.OFFERED}
            moved |= again
        for key in moved:
            self.states[key] = state
            (self.ackless.add if ackless else self.ackless.discard)(key)
        return moved

    @property
    def unsettled(self) -> list[int]:
        return [key for key, state in self.states.items() if state not in SETTLED]


def offset_of(key: int) -> int:
    """Return a log offset for a delivery key. Offsets grow with keys, and have gaps."""
    return 10 * key + 3


def run(script: list[tuple[Any, ...]]) -> tuple[Inbox, Model]:
    """Do the actions of `script` with an inbox and with its model, and compare the results. Return both."""
    inbox, model = Inbox(), Model()
    for action in script:
        match action:
            case ("append", count):
                for _ in range(count):
                    key = model.append()
                    assert inbox.next_key == key
                    assert inbox.append(offset_of(key), stream_seq=100 + key) == key
            case ("move", first, last, state, ackless):
                ackless = ackless and state is State.OFFERED
                ranges = inbox.move(first, last, state, ackless=ackless)
                covered = [key for low, high in ranges for key in range(low, high + 1)]
                assert covered == sorted(model.move(first, last, state, ackless=ackless))
                assert all(high + 1 < low for (_, high), (low, _) in pairwise(ranges)), "maximal"
            case _:
                inbox = Inbox.from_image(inbox.image())
    return inbox, model


def assert_same(inbox: Inbox, model: Model) -> None:
    assert inbox.next_key == len(model.states) + 1
    assert inbox.backlog == len([key for key in model.unsettled if key not in model.ackless])
    for key, state in model.states.items():
        entry = inbox.entry(key)
        if state in SETTLED:
            assert entry is None
            assert inbox.state(key) in (None, state)
            assert inbox.find(offset_of(key)) is None
        else:
            assert entry is not None
            assert (entry.key, entry.offset, entry.stream_seq, entry.state) == (key, offset_of(key), 100 + key, state)
            assert inbox.state(key) is state
            assert inbox.find(offset_of(key)) == key
    assert inbox.first_unsettled <= min(model.unsettled, default=inbox.next_key)
    assert list(inbox.awaited_offsets()) == [offset_of(key) for key in model.unsettled if key not in model.ackless]


@given(actions)
def test_an_inbox_holds_what_a_plain_dictionary_would_hold(script: list[tuple[Any, ...]]) -> None:
    assert_same(*run(script))


@given(actions)
def test_an_inbox_made_of_an_image_is_the_inbox_that_was_imaged(script: list[tuple[Any, ...]]) -> None:
    inbox, model = run(script)
    assert_same(Inbox.from_image(inbox.image()), model)


@given(actions, st.integers(-1, 40), st.integers(1, 50), st.integers(0, 40))
def test_reading_gives_unsettled_deliveries_in_order_page_by_page(
    script: list[tuple[Any, ...]], after: int, limit: int, unoffered_until: int
) -> None:
    inbox, model = run(script)
    wanted = [
        key for key in model.unsettled if key > after and (key >= unoffered_until or model.states[key] is State.PENDING)
    ]
    entries, through = inbox.read(after, limit, unoffered_until=unoffered_until)
    assert [entry.key for entry in entries] == wanted[:limit]
    # Whoever goes on after `through` misses nothing and reads nothing twice.
    assert [key for key in wanted if key <= through] == wanted[:limit]


@given(actions, st.integers(-1, 40), st.integers(-1, 45))
def test_reading_up_to_a_key_considers_no_later_one(script: list[tuple[Any, ...]], after: int, last: int) -> None:
    inbox, model = run(script)
    entries, through = inbox.read(after, 50, last=last)
    assert [entry.key for entry in entries] == [key for key in model.unsettled if after < key <= last]
    assert through >= min(last, inbox.next_key - 1)
    assert (inbox.read(through, 50, last=last)) == ([], through)


@settings(deadline=None)
@given(actions, st.integers(-1, 40), st.integers(-1, 40), st.integers(1, 50))
def test_what_was_not_seen_is_found_and_read(script: list[tuple[Any, ...]], first: int, last: int, limit: int) -> None:
    inbox, model = run(script)
    unseen = [key for key in model.unsettled if model.states[key] < State.SEEN]
    ranges = inbox.unseen(first, last)
    assert [key for low, high in ranges for key in range(low, high + 1)] == [
        key for key in unseen if first <= key <= last
    ]
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(ranges))
    entries, through = inbox.read(first, limit, unseen=True)
    assert [entry.key for entry in entries] == [key for key in unseen if key > first][:limit]
    assert [key for key in unseen if first < key <= through] == [entry.key for entry in entries]


@given(actions, st.integers(0, 400))
def test_ackless_deliveries_are_found_up_to_an_offset(script: list[tuple[Any, ...]], offset: int) -> None:
    inbox, model = run(script)
    found = [key for first, last in inbox.ackless_until(offset) for key in range(first, last + 1)]
    assert found == [key for key in model.unsettled if key in model.ackless and offset_of(key) <= offset]


def test_a_delivery_offered_on_a_wire_without_acknowledgement_is_not_backlog_until_it_is_seen() -> None:
    inbox = Inbox()
    key = inbox.append(0, 1)
    assert inbox.backlog == 1
    inbox.move(key, key, State.OFFERED, ackless=True)
    assert inbox.backlog == 0
    inbox.move(key, key, State.SEEN)
    assert inbox.backlog == 1
    inbox.move(key, key, State.ACKED)
    assert inbox.backlog == 0


def test_memory_follows_the_backlog_and_not_the_history() -> None:
    inbox = Inbox()
    for offset in range(10_000):
        inbox.append(offset, offset + 1)
        inbox.move(1, offset + 1 - 5, State.ACKED)
    assert inbox.next_key == 10_001
    assert len(inbox.image().rungs) == 5
    assert inbox.state(1) is None
    assert inbox.state(10_000) is State.PENDING


@pytest.mark.parametrize("settled", [255, 256, 257, 600])
def test_keys_and_offsets_stay_what_they_were_when_settled_ones_are_forgotten(settled: int) -> None:
    inbox = Inbox()
    for offset in range(700):
        inbox.append(offset_of(offset + 1), offset + 1)
    inbox.move(1, settled, State.ACKED)
    inbox.move(0, 10**9, State.OFFERED)
    entry = inbox.entry(settled + 1)
    assert entry is not None
    assert (entry.key, entry.offset, entry.state) == (settled + 1, offset_of(settled + 1), State.OFFERED)
    assert inbox.find(offset_of(settled + 1)) == settled + 1
    assert inbox.append(9999, 1) == 701


def test_what_was_settled_out_of_order_stays_settled() -> None:
    inbox = Inbox()
    for offset in range(5):
        inbox.append(offset, 1)
    assert inbox.move(2, 4, State.ACKED) == [(2, 4)]
    assert inbox.move(1, 5, State.SEEN) == [(1, 1), (5, 5)]
    assert inbox.move(1, 5, State.ACKED) == [(1, 1), (5, 5)]
    assert inbox.move(1, 5, State.DEAD) == []
