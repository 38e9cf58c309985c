"""Tests of the text that a command prints for a failure: the cause, and the remedy."""

from tieline.cli.failure import Exit, failure_of
from tieline.client import HubRefused
from tieline.contract.refusal import Code


def test_a_send_that_the_store_refused_says_who_knows_what_to_do() -> None:
    failure = failure_of(HubRefused(Code.STORE_FAILED, "the store failed: the disk is full"))
    assert failure is not None
    assert failure.code is Exit.FAILED
    assert "tieline doctor" in failure.hint
