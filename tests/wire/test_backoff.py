"""Tests of backoff: the length of each wait, and the end of the attempts."""

import pytest

from tieline.wire.backoff import SESSION_BACKOFF, Backoff

QUICK = Backoff(initial_ms=0)


class Attempts:
    """Test double: a function that raises these errors in this order, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.made = 0
        self._failures = list(failures)

    async def __call__(self) -> str:
        self.made += 1
        if self._failures:
            raise self._failures.pop(0)
        return "back"


def is_temporary(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def test_waits_double_up_to_the_longest_however_many_there_are() -> None:
    backoff = Backoff(initial_ms=100, wait_ms_max=1000, jitter=0)
    assert [backoff.wait_ms(attempt) for attempt in (0, 1, 2, 3, 4, 10_000)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.wait_seconds(1) == 0.2


def test_jitter_makes_a_wait_shorter_or_longer_and_never_longer_than_the_longest() -> None:
    backoff = Backoff(initial_ms=100, wait_ms_max=210, jitter=0.1)
    assert backoff.wait_ms(0, lambda: 0.0) == pytest.approx(90)
    assert backoff.wait_ms(0, lambda: 0.5) == pytest.approx(100)
    assert backoff.wait_ms(0, lambda: 1.0) == pytest.approx(110)
    assert backoff.wait_ms(1, lambda: 1.0) == 210


def test_a_session_with_the_hub_is_waited_for_without_end_and_five_seconds_at_most() -> None:
    assert not SESSION_BACKOFF.is_over(1_000_000)
    assert SESSION_BACKOFF.wait_ms(1_000_000, lambda: 1.0) == 5000


async def test_what_passes_is_tried_again() -> None:
    attempts = Attempts(ConnectionRefusedError(), ConnectionResetError())
    assert await QUICK.retry(attempts, is_temporary) == "back"
    assert attempts.made == 3


async def test_what_does_not_pass_is_raised_at_once() -> None:
    attempts = Attempts(ConnectionRefusedError(), ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await QUICK.retry(attempts, is_temporary)
    assert attempts.made == 2


async def test_the_last_attempt_raises_what_it_failed_with() -> None:
    attempts = Attempts(*(ConnectionRefusedError(str(number)) for number in range(1, 9)))
    with pytest.raises(ConnectionRefusedError, match="3"):
        await Backoff(initial_ms=0, attempts_max=3).retry(attempts, is_temporary)
