"""Activity: who may report and read it, and what the journal makes of it."""

from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import START_MS, Desk
from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.redaction import REDACTED
from tieline.contract.refusal import Code
from tieline.contract.reply import Activity, Done, LogRows, MemberState, Recorded

ADA = MemberName("ada")


def record(desk: Desk, session: SessionId, *events: dict[str, Any]) -> int:
    return desk.expect(Recorded, c.RecordActivity(session, events=events)).count


def rows(desk: Desk, session: SessionId, **query: Any) -> list[dict[str, Any]]:
    found = desk.expect(Activity, c.ReadActivity(session, member=query.pop("member", ADA), **query)).rows
    return [msgspec.json.decode(row.event) for row in found]


def test_activity_is_kept_in_its_own_dense_log_and_delivered_to_nobody(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    main = len(desk.log())
    assert record(desk, ada, {"kind": "llm", "tokens": 7}, {"kind": "http"}) == 2
    assert record(desk, bob, {"kind": "llm"}) == 1
    kept = desk.log("activity")
    assert [(row.offset, row.hash) for row in kept] == [(0, ""), (1, ""), (2, "")]
    assert kept[0].event == b'{"kind":"llm","tokens":7}'
    assert len(desk.log()) == main
    assert desk.bodies(bob) == []


def test_a_row_says_whose_it_is_what_it_is_and_when_it_was(desk: Desk) -> None:
    ada = desk.join("ada")
    record(desk, ada, {"kind": "llm_exchange", "ts": 5}, {"ts": "later", "kind": 7}, {"ts": True})
    found = desk.expect(Activity, c.ReadActivity(ada, member=ADA)).rows
    assert found == (
        ActivityRow(2, ADA, "", START_MS, START_MS, b'{"ts":true}'),
        ActivityRow(1, ADA, "7", START_MS, START_MS, b'{"ts":"later","kind":7}'),
        ActivityRow(0, ADA, "llm_exchange", 5, START_MS, b'{"kind":"llm_exchange","ts":5}'),
    )


def test_activity_is_read_by_time_and_kind_newest_first(desk: Desk) -> None:
    ada = desk.join("ada")
    for ts, kind in ((10, "llm"), (30, "http"), (20, "llm")):
        record(desk, ada, {"ts": ts, "kind": kind})
    assert [row["ts"] for row in rows(desk, ada)] == [30, 20, 10]
    assert [row["ts"] for row in rows(desk, ada, from_ms=10, to_ms=20)] == [20, 10]
    assert [row["ts"] for row in rows(desk, ada, kinds=("http",))] == [30]
    assert [row["ts"] for row in rows(desk, ada, limit=1)] == [30]


def test_activity_is_for_itself_and_who_has_the_permission(desk: Desk) -> None:
    ada, bob, eve = desk.join("ada"), desk.join("bob"), desk.join("eve", "activity.read")
    record(desk, ada, {"n": 1})
    for session in (ada, eve, desk.operator):
        assert rows(desk, session) == [{"n": 1}]
        desk.expect(Done, c.FollowActivity(session, member=ADA))
    for command in (
        c.ReadActivity(bob, member=ADA),
        c.FollowActivity(bob, member=ADA),
        c.ReadActivity(bob, member=MemberName("nobody")),
    ):
        assert desk.refused(command).code is Code.FORBIDDEN
    assert desk.refused(c.ReadActivity(eve, member=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER
    assert rows(desk, bob, member=MemberName("bob")) == []


def test_who_loses_the_permission_follows_nobody_any_more(desk: Desk) -> None:
    desk.add("ada")
    eve, own = desk.join("eve", "activity.read"), desk.attach("eve")
    desk.expect(Done, c.FollowActivity(eve, member=ADA))
    desk.expect(Done, c.FollowActivity(own, member=MemberName("eve")))
    desk.expect(MemberState, c.UpdateMember(desk.operator, name=MemberName("eve"), permissions=()))
    assert [session for session, _ in desk.outcome.ended] == [eve]


def test_a_new_member_of_an_old_name_has_none_of_its_activity(desk: Desk) -> None:
    record(desk, desk.join("ada"), {"n": 1})
    desk.remove("ada")
    assert rows(desk, desk.join("ada")) == []


def test_secrets_are_taken_out_before_anything_is_kept(desk: Desk) -> None:
    ada = desk.join("ada")
    event = {"kind": "opaque_http", "requestHeaders": {"Authorization": "Bearer abcdefgh12345678"}}
    record(desk, ada, event)
    assert rows(desk, ada) == [{"kind": "opaque_http", "requestHeaders": {"Authorization": REDACTED}}]
    assert b"abcdefgh" not in desk.log("activity")[0].event


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_activity_goes_on_where_it_was_when_the_hub_comes_back(desk: Desk, how: str) -> None:
    desk.add("ada")
    record(desk, desk.attach("ada"), {"n": 1})
    getattr(desk, how)()
    record(desk, desk.attach("ada"), {"n": 2})
    assert [(row.offset, row.event) for row in desk.log("activity")] == [(0, b'{"n":1}'), (1, b'{"n":2}')]


def test_activity_that_was_not_committed_is_not_read_and_is_gone_after_a_crash(desk: Desk) -> None:
    desk.add("ada")
    _, read = desk.decide(
        c.RecordActivity(desk.attach("ada"), events=({"n": 1},)), c.ReadLog(desk.operator, log="activity", start=0)
    )
    assert isinstance(read, LogRows)
    assert read.rows == ()
    desk.crash()
    assert desk.log("activity") == ()
    record(desk, desk.attach("ada"), {"n": 2})
    assert [row.event for row in desk.log("activity")] == [b'{"n":2}']


def test_only_members_have_activity(desk: Desk) -> None:
    assert desk.refused(c.RecordActivity(desk.operator, events=({},))).code is Code.INVALID_REQUEST


def _deep(levels: int) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for _ in range(levels):
        event = {"in": event}
    return event


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ((), Code.INVALID_REQUEST),
        (({},) * 501, Code.INVALID_REQUEST),
        (({"text": "\ud800"},), Code.INVALID_REQUEST),
        (({"kind": "\ud800"},), Code.INVALID_REQUEST),
        (({"n": {1, 2}, "o": object()},), Code.INVALID_REQUEST),
        ((_deep(300),), Code.INVALID_REQUEST),
        (({"text": "x" * 2000},), Code.MESSAGE_TOO_LARGE),
    ],
    ids=["none", "too many", "surrogate", "surrogate kind", "no JSON", "too deep", "too large"],
)
def test_an_upload_that_cannot_be_kept_is_refused_whole(make_desk: MakeDesk, events: Any, code: Code) -> None:
    desk = make_desk(msgspec.structs.replace(DEFAULT_LIMITS, activity_event_bytes_max=1000))
    ada = desk.join("ada")
    assert desk.refused(c.RecordActivity(ada, events=events)).code is code
    if 0 < len(events) < 500:
        assert desk.refused(c.RecordActivity(ada, events=({"n": 1}, *events))).code is code
    assert desk.log("activity") == ()
    assert record(desk, ada, *[{"n": number} for number in range(500)]) == 500
