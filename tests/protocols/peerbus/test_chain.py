"""Tests that the log can be written as an audit chain that the verifier of the first peerbus broker accepts."""

from itertools import pairwise

import pytest
from msgspec import structs

from tests.protocols.peerbus.foreign import EMPTY
from tieline.protocols.peerbus.chain import GENESIS, Link, encode_event, first_break, follow, link


def test_the_hash_before_the_first_row_is_that_of_nothing() -> None:
    assert GENESIS == EMPTY


def test_an_event_has_four_keys_in_this_order_and_is_escaped_as_go_does_it() -> None:
    assert encode_event("send", "m-1|bob", "alice", "bob") == (
        b'{"event":"send","id":"m-1|bob","from":"alice","to":"bob"}'
    )
    assert encode_event("ack", '<&>"\u2028', "é", "") == (
        '{"event":"ack","id":"\\u003c\\u0026\\u003e\\"\\u2028","from":"é","to":""}'.encode()
    )


def chain() -> list[Link]:
    return list(link(encode_event("send", str(number), "a", "b") for number in range(5)))


def test_rows_count_from_0_and_each_hash_covers_the_one_before() -> None:
    rows = chain()
    assert [row.seq for row in rows] == list(range(5))
    assert rows[0].prev_hash == EMPTY
    assert all(later.prev_hash == earlier.hash for earlier, later in pairwise(rows))
    assert rows[3].hash == follow(rows[2].hash, rows[3].event)
    assert first_break(rows) is None
    assert first_break([]) is None


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (0, {"prev_hash": "00"}),
        (2, {"event": b"{}"}),
        (2, {"hash": "00"}),
        (4, {"event": encode_event("send", "5", "a", "b")}),
        (3, {"seq": 7}),
    ],
)
def test_a_change_is_named_by_its_row(place: int, changes: dict[str, object]) -> None:
    rows = chain()
    rows[place] = structs.replace(rows[place], **changes)
    assert f"row {place}" in str(first_break(rows))


def test_a_missing_row_is_named() -> None:
    rows = chain()
    assert "row 2 is missing" in str(first_break(rows[:2] + rows[3:]))
