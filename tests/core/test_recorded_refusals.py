"""Refusals that a protocol made by itself: in the log as the hub's own, and as few."""

from tests.core.doubles import Desk
from tieline.contract import command as c
from tieline.contract.event import Refused
from tieline.contract.refusal import Code
from tieline.contract.reply import Done


def rows(desk: Desk) -> list[tuple[str, str, str, str, int]]:
    found = [event for event in desk.events() if isinstance(event, Refused)]
    return [(row.code, row.speaker, row.protocol, row.what, row.count) for row in found]


def test_what_a_protocol_refused_is_in_the_log_under_whoever_its_session_speaks_for(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.expect(Done, c.RecordRefusal(protocol="paper", code=Code.FORBIDDEN, what="a forged name", session=ada))
    assert rows(desk) == [("forbidden", "ada", "hub", "a forged name", 1)]


def test_what_a_protocol_refused_before_a_session_is_in_the_log_under_the_protocol_alone(desk: Desk) -> None:
    desk.expect(Done, c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    assert rows(desk) == [("invalid_request", "", "paper", "too early", 1)]


def test_many_recorded_refusals_of_a_kind_share_a_row(desk: Desk) -> None:
    for _ in range(100):
        desk.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    desk.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too late"))
    desk.clock_and_ids.time_ms += desk.limits.refusal_row_ms
    desk.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what="too early"))
    assert [(what, count) for *_, what, count in rows(desk)] == [("too early", 1), ("too late", 1), ("too early", 100)]
