"""Tests of sessions: of local members, sessions that replace another session, and sessions that are resumed."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.channel import Enter
from tieline.contract.event import Refused, Registered, TakenOver
from tieline.contract.hub import MemberAppeared
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByShared, ByToken, ByUser, MemberKind, Origin
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, Issued, Roster

RELAY = "agent-relay"


def hello(name: str, **fields: object) -> c.Attach:
    return c.Attach(protocol=RELAY, credential=ByUser(), member=MemberName(name), **fields)  # type: ignore[arg-type]


def resumable(harness: BrokerHarness, name: str = "ada", **fields: object) -> Attached:
    return harness.expect(Attached, hello(name, resumable=True, **fields))


def test_a_local_session_makes_its_member(harness: BrokerHarness) -> None:
    attached = harness.expect(Attached, hello("ada", kind=MemberKind.HUMAN))
    assert harness.outcome.changes == [MemberAppeared(MemberName("ada"))]
    member = harness.roster()["ada"].member
    assert (attached.speaker, member.origin, member.kind) == ("ada", Origin.LOCAL, MemberKind.HUMAN)
    harness.restart()
    assert harness.expect(Attached, hello("ada")).member == "ada"


@pytest.mark.parametrize("name", ["ada", "Ada"])
def test_a_local_session_cannot_take_a_name_that_a_token_made(harness: BrokerHarness, name: str) -> None:
    harness.add("ada")
    assert harness.refused(hello(name)).code is Code.NAME_TAKEN


def test_a_local_name_in_another_case_is_refused(harness: BrokerHarness) -> None:
    harness.expect(Attached, hello("ada"))
    assert harness.refused(hello("ADA")).code is Code.NAME_TAKEN


@pytest.mark.parametrize(
    ("name", "code"), [("", Code.INVALID_NAME), ("_x", Code.INVALID_NAME), ("all", Code.RESERVED_NAME)]
)
def test_a_local_name_follows_the_rule_for_names(harness: BrokerHarness, name: str, code: Code) -> None:
    assert harness.refused(hello(name)).code is code


# Local names that get a token


def test_a_local_session_without_a_name_is_refused(harness: BrokerHarness) -> None:
    refusal = harness.refused(c.Attach(protocol="hub", credential=ByUser()))
    assert (refusal.code, refusal.message) == (Code.INVALID_REQUEST, "a session needs a name")


def give_token(harness: BrokerHarness, name: str) -> str:
    return harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName(name))).token


def test_a_local_name_can_be_given_a_token_to_which_it_then_belongs(harness: BrokerHarness) -> None:
    harness.expect(Attached, hello("loc", kind=MemberKind.HUMAN))
    token = give_token(harness, "loc")
    assert harness.outcome.changes == []
    assert Registered("loc", "operator", "token for a local member") in harness.events()
    for again in (harness.crash, harness.restart):
        member = harness.roster()["loc"].member
        assert (member.origin, member.kind) == (Origin.TOKEN, MemberKind.HUMAN)
        assert harness.refused(hello("loc")).code is Code.NAME_TAKEN
        harness.attach_by_token(token)
        again()


def test_what_waits_for_a_local_name_waits_for_its_new_owner(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.subscribe(harness.expect(Attached, hello("loc")).session, "dev")
    harness.send(ada, "@loc", "before")
    token = give_token(harness, "loc")
    harness.send(ada, "#dev", "after")
    assert harness.bodies(harness.attach_by_token(token)) == ["before", "after"]


def test_sessions_that_showed_nothing_end_when_a_token_gets_their_name(harness: BrokerHarness) -> None:
    local = harness.expect(Attached, hello("loc")).session
    place = harness.attach("loc", "agent-channels")
    give_token(harness, "loc")
    assert [(session, why.code) for session, why in harness.outcome.ended] == [(local, Code.NAME_TAKEN)]
    assert harness.refused(c.Fetch(local)).code is Code.UNKNOWN_SESSION
    assert harness.bodies(place) == []


@pytest.mark.parametrize("name", ["ada", "ADA", "loc", "LOC", "owned"])
def test_no_name_that_a_member_has_is_made_again(harness: BrokerHarness, name: str) -> None:
    harness.add("ada")
    harness.expect(Attached, hello("loc"))
    harness.expect(Attached, hello("owned"))
    give_token(harness, "owned")
    assert harness.refused(c.AddMember(harness.operator, name=MemberName(name))).code is Code.NAME_TAKEN
    assert harness.expect(Attached, hello("loc")).member == "loc"


def test_a_shared_token_never_opens_a_name_that_a_local_session_made(harness: BrokerHarness) -> None:
    harness.send(harness.join("ada"), "@" + str(harness.expect(Attached, hello("loc")).member))
    for name in ("loc", "LOC"):
        peer = c.Attach(protocol="peers", credential=ByShared("a token of all peers"), member=MemberName(name))
        assert harness.refused(peer).code is Code.NAME_TAKEN


@pytest.mark.parametrize(("name", "found"), [("ada", ["Ada"]), ("Ada", ["Ada"]), ("bo", []), ("", [])])
def test_the_roster_can_be_asked_for_one_name_in_whatever_case(
    harness: BrokerHarness, name: str, found: list[str]
) -> None:
    harness.add("Ada")
    harness.add("bob")
    roster = harness.expect(Roster, c.ListMembers(harness.operator, name=MemberName(name)))
    assert [presence.member.name for presence in roster.members] == found


def test_everybody_leaves_out_local_members_that_are_away(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    local = harness.expect(Attached, hello("loc"))
    harness.add("bob")
    assert harness.send(ada, "*").recipients == 2
    harness.ask(c.Detach(local.session))
    assert harness.send(ada, "*").recipients == 1
    assert harness.send(ada, "@loc").recipients == 1
    assert harness.send(ada, "#general").recipients == 2


def test_an_exclusive_session_takes_over_from_its_siblings_on_the_same_protocol(harness: BrokerHarness) -> None:
    first = harness.expect(Attached, hello("ada", exclusive=True))
    second = harness.expect(Attached, hello("ada", exclusive=True))
    assert [(session, why.code) for session, why in harness.outcome.ended] == [(first.session, Code.TAKEN_OVER)]
    assert harness.refused(c.Send(first.session, content=content("*"))).code is Code.UNKNOWN_SESSION
    assert TakenOver("ada", first.session, second.session) in harness.events()


def test_sessions_that_are_not_exclusive_stay_side_by_side(harness: BrokerHarness) -> None:
    harness.expect(Attached, hello("ada"))
    harness.expect(Attached, hello("ada"))
    assert harness.roster()["ada"].sessions == (RELAY, RELAY)


def test_a_resumed_session_keeps_its_id_and_gets_a_new_token(harness: BrokerHarness) -> None:
    first = resumable(harness)
    harness.ask(c.Detach(first.session))
    second = resumable(harness, resume_token=first.resume_token)
    assert (second.resume_id, second.resumed) == (first.resume_id, True)
    assert second.session != first.session
    assert second.resume_token not in (None, first.resume_token)


def test_a_session_can_be_taken_up_while_the_old_connection_lingers(harness: BrokerHarness) -> None:
    first = resumable(harness)
    second = resumable(harness, resume_token=first.resume_token)
    assert [session for session, _ in harness.outcome.ended] == [first.session]
    assert second.resume_id == first.resume_id
    assert harness.roster()["ada"].sessions == (RELAY,)


def test_a_session_can_be_resumed_by_its_id_after_a_restart(harness: BrokerHarness) -> None:
    first = resumable(harness)
    harness.crash()
    assert resumable(harness, resume_id=first.resume_id).resume_id == first.resume_id


def test_a_token_is_good_again_while_its_successor_was_not_used(harness: BrokerHarness) -> None:
    first = resumable(harness)
    for _ in range(3):  # each answer is lost
        again = resumable(harness, resume_token=first.resume_token)
        assert again.resume_id == first.resume_id


def test_a_token_whose_successor_was_used_is_a_replay_and_refused(harness: BrokerHarness) -> None:
    first = resumable(harness)
    second = resumable(harness, resume_token=first.resume_token)
    harness.ask(c.Confirm(second.session))
    refusal = harness.refused(hello("ada", resumable=True, resume_token=first.resume_token))
    assert refusal.code is Code.RESUME_REFUSED
    assert any(isinstance(event, Refused) and event.code == Code.RESUME_REFUSED for event in harness.events())
    harness.crash()
    assert harness.refused(hello("ada", resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    assert resumable(harness, resume_token=second.resume_token).resume_id == first.resume_id


def test_a_lost_answer_leaves_only_the_last_token_and_its_predecessor(harness: BrokerHarness) -> None:
    first = resumable(harness)
    lost = resumable(harness, resume_token=first.resume_token)
    third = resumable(harness, resume_token=first.resume_token)
    assert harness.refused(hello("ada", resume_token=lost.resume_token)).code is Code.RESUME_REFUSED
    assert resumable(harness, resume_token=third.resume_token).resumed


def test_another_members_token_and_session_are_refused(harness: BrokerHarness) -> None:
    ada = resumable(harness, "ada")
    assert harness.refused(hello("bob", resume_token=ada.resume_token)).code is Code.RESUME_REFUSED
    assert harness.refused(hello("bob", resume_id=ada.resume_id)).code is Code.RESUME_REFUSED


def test_a_token_for_another_session_than_the_one_named_is_refused(harness: BrokerHarness) -> None:
    one, other = resumable(harness), resumable(harness)
    refusal = harness.refused(hello("ada", resume_token=one.resume_token, resume_id=other.resume_id))
    assert refusal.code is Code.RESUME_REFUSED


def test_a_token_expires(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(resume_ms=1000))
    first = resumable(harness)
    harness.clock_and_ids.time_ms += 999
    second = resumable(harness, resume_token=first.resume_token)
    harness.clock_and_ids.time_ms += 1000
    assert harness.refused(hello("ada", resume_token=second.resume_token)).code is Code.RESUME_REFUSED


def test_an_unknown_token_or_session_is_refused(harness: BrokerHarness) -> None:
    assert harness.refused(hello("ada", resume_token="made up")).code is Code.RESUME_REFUSED
    assert harness.refused(hello("ada", resume_id="made up")).code is Code.RESUME_REFUSED


def test_a_removed_members_sessions_cannot_be_resumed_by_its_successor(harness: BrokerHarness) -> None:
    first = resumable(harness)
    harness.remove("ada")
    assert harness.refused(hello("ada", resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    harness.crash()
    assert harness.refused(hello("ada", resume_id=first.resume_id)).code is Code.RESUME_REFUSED


def test_a_token_members_session_is_resumable_too(harness: BrokerHarness) -> None:
    token = harness.add("ada")
    attach = c.Attach(protocol=RELAY, credential=ByToken(token), resumable=True)
    first = harness.expect(Attached, attach)
    again = c.Attach(protocol=RELAY, credential=ByToken(token), resumable=True, resume_token=first.resume_token)
    assert harness.expect(Attached, again).resume_id == first.resume_id


# A session that there is not.

_GIVEN: dict[str, Any] = {
    "position": 0,
    "assignee": "ada",
    "busy": True,
    "change": o.Unblock(),
    "channel": "dev",
    "code": Code.FORBIDDEN,
    "content": content("*"),
    "events": (),
    "first": 1,
    "invitation_id": "1",
    "last": 1,
    "log": "main",
    "member": "ada",
    "message_id": "1",
    "name": "ada",
    "objective_id": "1",
    "outcome": "o",
    "protocol": RELAY,
    "query": "words",
    "ranges": ((1, 1),),
    "reason": "late",
    "secret": "an invitation",
    "start": 0,
    "thread": "*",
    "title": "t",
    "token": "a shared token",
    "token_id": "1",
    "what": "SEND",
}
"""Values for required fields of commands, by name of the field. The session is not included."""
_DONE_ALL_THE_SAME = (c.Detach, c.Offered, c.RecordRefusal)
"""Commands that do not fail after the end of their session. They may be on their way when the session ends."""


def of_nobody() -> Iterator[c.Command]:
    """Yield one command of each kind that has a session, with a session id that does not exist."""
    for kind in c.COMMANDS:
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if "session" in fields and kind not in _DONE_ALL_THE_SAME:
            needed = {name: _GIVEN[name] for name, field in fields.items() if field.required and name != "session"}
            if kind is c.ChangeChannel:
                needed["change"] = Enter()
            yield kind(session=SessionId("never"), **needed)


@pytest.mark.parametrize("command", list(of_nobody()), ids=lambda command: type(command).__name__)
def test_a_session_that_never_was_is_refused_whatever_it_asks(harness: BrokerHarness, command: c.Command) -> None:
    assert harness.refused(command).code is Code.UNKNOWN_SESSION
