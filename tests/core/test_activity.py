"""Tests of activity: the permissions to report and read it, and its storage by the journal."""

from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import START_MS, BrokerHarness
from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.redaction import REDACTED
from tieline.contract.refusal import Code
from tieline.contract.reply import Activity, Done, LogRows, MemberState, Recorded

ADA = MemberName("ada")


def record(harness: BrokerHarness, session: SessionId, *events: dict[str, Any]) -> int:
    return harness.expect(Recorded, c.RecordActivity(session, events=events)).count


def rows(harness: BrokerHarness, session: SessionId, **query: Any) -> list[dict[str, Any]]:
    found = harness.expect(Activity, c.ReadActivity(session, member=query.pop("member", ADA), **query)).rows
    return [msgspec.json.decode(row.event) for row in found]


def test_activity_is_kept_in_its_own_dense_log_and_delivered_to_nobody(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    main = len(harness.log())
    assert record(harness, ada, {"kind": "llm", "tokens": 7}, {"kind": "http"}) == 2
    assert record(harness, bob, {"kind": "llm"}) == 1
    kept = harness.log("activity")
    assert [(row.offset, row.hash) for row in kept] == [(0, ""), (1, ""), (2, "")]
    assert kept[0].event == b'{"kind":"llm","tokens":7}'
    assert len(harness.log()) == main
    assert harness.bodies(bob) == []


def test_a_row_says_whose_it_is_what_it_is_and_when_it_was(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    record(harness, ada, {"kind": "llm_exchange", "ts": 5}, {"ts": "later", "kind": 7}, {"ts": True})
    found = harness.expect(Activity, c.ReadActivity(ada, member=ADA)).rows
    assert found == (
        ActivityRow(2, ADA, "", START_MS, START_MS, b'{"ts":true}'),
        ActivityRow(1, ADA, "7", START_MS, START_MS, b'{"ts":"later","kind":7}'),
        ActivityRow(0, ADA, "llm_exchange", 5, START_MS, b'{"kind":"llm_exchange","ts":5}'),
    )


def test_activity_is_read_by_time_and_kind_newest_first(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for ts, kind in ((10, "llm"), (30, "http"), (20, "llm")):
        record(harness, ada, {"ts": ts, "kind": kind})
    assert [row["ts"] for row in rows(harness, ada)] == [30, 20, 10]
    assert [row["ts"] for row in rows(harness, ada, from_ms=10, to_ms=20)] == [20, 10]
    assert [row["ts"] for row in rows(harness, ada, kinds=("http",))] == [30]
    assert [row["ts"] for row in rows(harness, ada, limit=1)] == [30]


def test_activity_is_for_itself_and_who_has_the_permission(harness: BrokerHarness) -> None:
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve", "activity.read")
    record(harness, ada, {"n": 1})
    for session in (ada, eve, harness.operator):
        assert rows(harness, session) == [{"n": 1}]
        harness.expect(Done, c.FollowActivity(session, member=ADA))
    for command in (
        c.ReadActivity(bob, member=ADA),
        c.FollowActivity(bob, member=ADA),
        c.ReadActivity(bob, member=MemberName("nobody")),
    ):
        assert harness.refused(command).code is Code.FORBIDDEN
    assert harness.refused(c.ReadActivity(eve, member=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER
    assert rows(harness, bob, member=MemberName("bob")) == []


def test_who_loses_the_permission_follows_nobody_any_more(harness: BrokerHarness) -> None:
    harness.add("ada")
    eve, own = harness.join("eve", "activity.read"), harness.attach("eve")
    harness.expect(Done, c.FollowActivity(eve, member=ADA))
    harness.expect(Done, c.FollowActivity(own, member=MemberName("eve")))
    harness.expect(MemberState, c.UpdateMember(harness.operator, name=MemberName("eve"), permissions=()))
    assert [session for session, _ in harness.outcome.ended] == [eve]


def test_a_new_member_of_an_old_name_has_none_of_its_activity(harness: BrokerHarness) -> None:
    record(harness, harness.join("ada"), {"n": 1})
    harness.remove("ada")
    assert rows(harness, harness.join("ada")) == []


def test_secrets_are_taken_out_before_anything_is_kept(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    event = {"kind": "opaque_http", "requestHeaders": {"Authorization": "Bearer abcdefgh12345678"}}
    record(harness, ada, event)
    assert rows(harness, ada) == [{"kind": "opaque_http", "requestHeaders": {"Authorization": REDACTED}}]
    assert b"abcdefgh" not in harness.log("activity")[0].event


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_activity_goes_on_where_it_was_when_the_hub_comes_back(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    record(harness, harness.attach("ada"), {"n": 1})
    getattr(harness, how)()
    record(harness, harness.attach("ada"), {"n": 2})
    assert [(row.offset, row.event) for row in harness.log("activity")] == [(0, b'{"n":1}'), (1, b'{"n":2}')]


def test_activity_that_was_not_committed_is_not_read_and_is_gone_after_a_crash(harness: BrokerHarness) -> None:
    harness.add("ada")
    _, read = harness.decide(
        c.RecordActivity(harness.attach("ada"), events=({"n": 1},)),
        c.ReadLog(harness.operator, log="activity", start=0),
    )
    assert isinstance(read, LogRows)
    assert read.rows == ()
    harness.crash()
    assert harness.log("activity") == ()
    record(harness, harness.attach("ada"), {"n": 2})
    assert [row.event for row in harness.log("activity")] == [b'{"n":2}']


def test_only_members_have_activity(harness: BrokerHarness) -> None:
    assert harness.refused(c.RecordActivity(harness.operator, events=({},))).code is Code.INVALID_REQUEST


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
def test_an_upload_that_cannot_be_kept_is_refused_whole(make_harness: MakeHarness, events: Any, code: Code) -> None:
    harness = make_harness(msgspec.structs.replace(DEFAULT_LIMITS, activity_event_bytes_max=1000))
    ada = harness.join("ada")
    assert harness.refused(c.RecordActivity(ada, events=events)).code is code
    if 0 < len(events) < 500:
        assert harness.refused(c.RecordActivity(ada, events=({"n": 1}, *events))).code is code
    assert harness.log("activity") == ()
    assert record(harness, ada, *[{"n": number} for number in range(500)]) == 500


def test_a_journal_that_failed_finds_out_if_its_store_works_again(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = harness.join("ada")
    harness.journal.retry()
    assert record(harness, ada, {"kind": "note"}) == 1, "a retry leaves nothing behind"
    monkeypatch.setattr(harness.journal._store, "retry", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        harness.journal.retry()
