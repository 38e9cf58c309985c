"""Tests of the text that a command prints for a failure: the cause, and the remedy."""

from tieline.cli.failure import Exit, failure_of
from tieline.client import HubRefused
from tieline.contract.refusal import Code
from tieline.wire.address import BadPin


def test_a_send_that_the_store_refused_says_who_knows_what_to_do() -> None:
    failure = failure_of(HubRefused(Code.STORE_FAILED, "the store failed: the disk is full"))
    assert failure is not None
    assert failure.code is Exit.FAILED
    assert "tieline doctor" in failure.hint


def test_a_refused_token_may_be_that_of_an_ended_membership() -> None:
    failure = failure_of(HubRefused(Code.UNAUTHORIZED, "the token is unknown, revoked or expired"))
    assert failure is not None
    assert "TIELINE_TOKEN" in failure.hint
    assert "your membership may have ended: ask whoever runs the hub" in failure.hint


def test_a_fingerprint_that_cannot_be_used_is_wrong_usage() -> None:
    failure = failure_of(BadPin("'http://hub#sha256=1f' has a fingerprint, so it needs https://"))
    assert failure is not None
    assert failure.code is Exit.USAGE
    assert "needs https://" in failure.message
