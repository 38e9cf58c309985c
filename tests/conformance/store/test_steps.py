"""Tests that a store returns the steps and falls of deliveries in order and with their evidence.

A step is a state that a delivery reached. A fall is an escalation to the next way to reach the member.
"""

from tests.conformance.store.writer import Writer
from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import (
    Acknowledged,
    Delivered,
)


def test_steps_are_told_in_order_with_their_evidence(writer: Writer) -> None:
    writer.accept()
    writer.advance(Delivered, (1, 3), at_ms=1, session="s1", protocol="hub", evidence="written")
    writer.advance(Acknowledged, (2, 2), at_ms=2, session="s2", protocol="ac7", evidence="ack")
    writer.advance(Acknowledged, (1, 1), (3, 3), at_ms=3)
    for _ in range(2):
        assert list(writer.store.steps(2, 2)) == [
            Step(State.OFFERED, 1, "s1", "hub", "written"),
            Step(State.ACKED, 2, "s2", "ac7", "ack"),
        ]
        assert [step.at_ms for step in writer.store.steps(2, 1)] == [1, 3]
        assert [step.at_ms for step in writer.store.steps(2, 3)] == [1, 3]
        assert list(writer.store.steps(2, 4)) == []
        assert list(writer.store.steps(3, 2)) == []
        writer.store.commit()
        writer.crash()


def test_falls_are_told_in_order(writer: Writer) -> None:
    writer.accept()
    writer.fall((1, 3), (7, 7), way="hook", after="push", at_ms=1)
    writer.fall((2, 2), way="notify", after="hook", at_ms=2)
    for _ in range(2):
        assert list(writer.store.falls(2, 2, 2)) == [Fall(1, 3, 1, "hook", "push"), Fall(2, 2, 2, "notify", "hook")]
        assert [fall.way for fall in writer.store.falls(2, 3, 9)] == ["hook", "hook"]
        assert list(writer.store.falls(2, 4, 6)) == []
        assert list(writer.store.falls(3, 1, 9)) == []
        writer.store.commit()
        writer.crash()


def test_a_fall_that_was_not_committed_never_was(writer: Writer) -> None:
    writer.accept()
    writer.store.commit()
    writer.fall((1, 1), way="hook", after="push")
    assert writer.crash().log_end == 1
    assert list(writer.store.falls(2, 1, 1)) == []
