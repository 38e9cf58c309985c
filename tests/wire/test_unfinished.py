"""Tests of incomplete messages: their total size is limited, and the client with the most bytes is refused."""

from tieline.contract.limits import Limits
from tieline.wire.unfinished import FREE_BYTES, Share, Unfinished

LIMITS = Limits(strangers_bytes_max=100_000, unfinished_bytes_max=1_000_000)


class Crowd:
    """Test helper: connections of one hub, and the names of the refused ones."""

    def __init__(self) -> None:
        self.unfinished = Unfinished(LIMITS)
        self.refused: list[str] = []

    def share(self, name: str, held: int, owner: str | None = None) -> Share:
        share = self.unfinished.share(lambda: self.refused.append(name), owner)
        share.report(held)
        return share


def test_who_says_little_is_never_counted_nor_refused() -> None:
    crowd = Crowd()
    crowd.share("large", 99_999)
    for number in range(1000):
        crowd.share(f"small {number}", FREE_BYTES)
    assert crowd.refused == []
    assert crowd.unfinished.size == 99_999


def test_past_the_bound_the_stranger_that_holds_most_is_refused_and_no_other() -> None:
    crowd = Crowd()
    crowd.share("a", 30_000)
    crowd.share("b", 50_000)
    last = crowd.share("c", 10_000)
    last.report(20_001)
    assert crowd.refused == ["b"]
    assert crowd.unfinished.size == 50_001


def test_a_member_is_refused_by_what_all_its_connections_hold() -> None:
    crowd = Crowd()
    for number in range(9):
        crowd.share(f"mallory {number}", 70_000 + number, owner="mallory")
    crowd.share("alice", 300_000, owner="alice")
    crowd.share("bob", 100_000, owner="bob")
    assert crowd.refused == ["mallory 8"]


def test_strangers_take_no_room_from_members() -> None:
    crowd = Crowd()
    crowd.share("alice", 999_999, owner="alice")
    for number in range(20):
        crowd.share(f"stranger {number}", 60_000)
    assert "alice" not in crowd.refused
    assert crowd.unfinished.size <= 999_999 + 100_000


def test_a_stranger_that_is_let_in_counts_as_a_member_from_then_on() -> None:
    crowd = Crowd()
    share = crowd.share("alice", 60_000)
    share.admit("alice")
    crowd.share("stranger", 60_000)
    assert crowd.refused == []
    share.close()
    share.close()
    assert crowd.unfinished.size == 60_000


def test_a_connection_that_is_closed_holds_nothing_whatever_it_says() -> None:
    crowd = Crowd()
    share = crowd.share("a", 60_000)
    share.close()
    share.report(90_000)
    share.admit("a")
    share.report(90_000)
    assert crowd.unfinished.size == 0
