"""Tests of the table of allowed state changes of a delivery, and that the inbox allows exactly these changes."""

from itertools import product

import pytest

from tieline.contract.delivery import SETTLED, TRANSITIONS, State
from tieline.core.inbox import Inbox


def test_the_table_speaks_of_every_state() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize("state", State)
def test_a_state_is_followed_only_by_higher_ones(state: State) -> None:
    assert all(following > state for following in TRANSITIONS[state])


def test_acked_expired_and_dead_end_a_delivery() -> None:
    assert {State.ACKED, State.EXPIRED, State.DEAD} == SETTLED


def test_every_state_that_does_not_end_can_end_in_each_way() -> None:
    for state in set(State) - SETTLED:
        assert TRANSITIONS[state] >= SETTLED


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_an_inbox_moves_a_delivery_exactly_where_the_table_allows(before: State, after: State) -> None:
    inbox = Inbox()
    # The first delivery stays, so that the inbox cannot forget the one under test when it is settled.
    inbox.append(offset=0, stream_seq=1)
    key = inbox.append(offset=1, stream_seq=2)
    if before is not State.PENDING:
        assert inbox.move(key, key, before) == [(key, key)]
    allowed = after in TRANSITIONS[before]
    assert inbox.move(key, key, after) == ([(key, key)] if allowed else [])
    assert inbox.state(key) is (after if allowed else before)
