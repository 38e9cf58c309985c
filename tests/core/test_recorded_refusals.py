"""Tests of refusals that a protocol made without the broker.

They are in the log like refusals of the broker, and many equal refusals share one row.
"""

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import Refused
from tieline.contract.refusal import Code
from tieline.contract.reply import Done


def rows(harness: BrokerHarness) -> list[tuple[str, str, str, str, int]]:
    found = [event for event in harness.events() if isinstance(event, Refused)]
    return [(row.code, row.speaker, row.protocol, row.what, row.count) for row in found]


def test_what_a_protocol_refused_is_in_the_log_under_whoever_its_session_speaks_for(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.expect(Done, c.RecordRefusal(protocol="paper", code=Code.FORBIDDEN, what="a forged name", session=ada))
    assert rows(harness) == [("forbidden", "ada", "hub", "a forged name", 1)]


def test_what_a_protocol_refused_before_a_session_is_in_the_log_under_the_protocol_alone(
    harness: BrokerHarness,
) -> None:
    harness.expect(Done, c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    assert rows(harness) == [("invalid_request", "", "paper", "too early", 1)]


def test_many_recorded_refusals_of_a_kind_share_a_row(harness: BrokerHarness) -> None:
    for _ in range(100):
        harness.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    harness.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too late"))
    harness.clock_and_ids.time_ms += harness.limits.refusal_row_ms
    harness.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    assert [(what, count) for *_, what, count in rows(harness)] == [
        ("too early", 1),
        ("too late", 1),
        ("too early", 100),
    ]
