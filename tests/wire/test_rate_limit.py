"""Tests of the rate limit: events of a key in a window of time, and a bounded number of keys."""

import pytest

from tieline.wire.rate_limit import RateLimit, seconds


def test_events_are_allowed_until_the_limit_and_again_after_the_window() -> None:
    limit = RateLimit(2, 1000)
    assert limit.wait_ms("ada", 0) == 0
    limit.count("ada", 0)
    assert limit.wait_ms("ada", 100) == 0
    limit.count("ada", 100)
    assert limit.wait_ms("ada", 200) == 800
    assert limit.wait_ms("bob", 200) == 0
    # The first event leaves the window before the second.
    assert limit.wait_ms("ada", 1000) == 0
    limit.count("ada", 1000)
    assert limit.wait_ms("ada", 1050) == 50
    assert limit.wait_ms("ada", 5000) == 0


def test_a_key_that_is_cleared_begins_anew() -> None:
    limit = RateLimit(1, 1000)
    limit.count("ada", 0)
    assert limit.wait_ms("ada", 1) > 0
    limit.clear("ada")
    limit.clear("nobody")
    assert limit.wait_ms("ada", 1) == 0


def test_of_too_many_keys_the_one_with_the_oldest_last_event_is_forgotten() -> None:
    limit = RateLimit(1, 1000, keys_max=2)
    limit.count("ada", 0)
    limit.count("bob", 1)
    limit.count("ada", 2)
    limit.count("eve", 3)
    assert [limit.wait_ms(name, 4) > 0 for name in ("ada", "bob", "eve")] == [True, False, True]


@pytest.mark.parametrize(("wait_ms", "expected"), [(0, 0), (1, 1), (1000, 1), (1001, 2)])
def test_a_wait_in_seconds_is_rounded_up(wait_ms: int, expected: int) -> None:
    assert seconds(wait_ms) == expected
