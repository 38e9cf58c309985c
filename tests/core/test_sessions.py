"""Local members, sessions that take over, and sessions that are taken up again."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
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


def resumable(desk: Desk, name: str = "ada", **fields: object) -> Attached:
    return desk.expect(Attached, hello(name, resumable=True, **fields))


def test_a_local_session_makes_its_member(desk: Desk) -> None:
    attached = desk.expect(Attached, hello("ada", kind=MemberKind.HUMAN))
    assert desk.outcome.changes == [MemberAppeared(MemberName("ada"))]
    member = desk.roster()["ada"].member
    assert (attached.speaker, member.origin, member.kind) == ("ada", Origin.LOCAL, MemberKind.HUMAN)
    desk.restart()
    assert desk.expect(Attached, hello("ada")).member == "ada"


@pytest.mark.parametrize("name", ["ada", "Ada"])
def test_a_local_session_cannot_take_a_name_that_a_token_made(desk: Desk, name: str) -> None:
    desk.add("ada")
    assert desk.refused(hello(name)).code is Code.NAME_TAKEN


def test_a_local_name_in_another_case_is_refused(desk: Desk) -> None:
    desk.expect(Attached, hello("ada"))
    assert desk.refused(hello("ADA")).code is Code.NAME_TAKEN


@pytest.mark.parametrize(
    ("name", "code"), [("", Code.INVALID_NAME), ("_x", Code.INVALID_NAME), ("all", Code.RESERVED_NAME)]
)
def test_a_local_name_follows_the_rule_for_names(desk: Desk, name: str, code: Code) -> None:
    assert desk.refused(hello(name)).code is code


# Local names that get a token


def give_token(desk: Desk, name: str) -> str:
    return desk.expect(Issued, c.RotateToken(desk.operator, name=MemberName(name))).token


def test_a_local_name_can_be_given_a_token_to_which_it_then_belongs(desk: Desk) -> None:
    desk.expect(Attached, hello("loc", kind=MemberKind.HUMAN))
    token = give_token(desk, "loc")
    assert desk.outcome.changes == []
    assert Registered("loc", "operator", "token for a local member") in desk.events()
    for again in (desk.crash, desk.restart):
        member = desk.roster()["loc"].member
        assert (member.origin, member.kind) == (Origin.TOKEN, MemberKind.HUMAN)
        assert desk.refused(hello("loc")).code is Code.NAME_TAKEN
        desk.attach_by_token(token)
        again()


def test_what_waits_for_a_local_name_waits_for_its_new_owner(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.subscribe(desk.expect(Attached, hello("loc")).session, "dev")
    desk.send(ada, "@loc", "before")
    token = give_token(desk, "loc")
    desk.send(ada, "#dev", "after")
    assert desk.bodies(desk.attach_by_token(token)) == ["before", "after"]


def test_sessions_that_showed_nothing_end_when_a_token_gets_their_name(desk: Desk) -> None:
    local = desk.expect(Attached, hello("loc")).session
    place = desk.attach("loc", "agent-channels")
    give_token(desk, "loc")
    assert [(session, why.code) for session, why in desk.outcome.ended] == [(local, Code.NAME_TAKEN)]
    assert desk.refused(c.Fetch(local)).code is Code.UNKNOWN_SESSION
    assert desk.bodies(place) == []


@pytest.mark.parametrize("name", ["ada", "ADA", "loc", "LOC", "owned"])
def test_no_name_that_a_member_has_is_made_again(desk: Desk, name: str) -> None:
    desk.add("ada")
    desk.expect(Attached, hello("loc"))
    desk.expect(Attached, hello("owned"))
    give_token(desk, "owned")
    assert desk.refused(c.AddMember(desk.operator, name=MemberName(name))).code is Code.NAME_TAKEN
    assert desk.expect(Attached, hello("loc")).member == "loc"


def test_a_shared_token_never_opens_a_name_that_a_local_session_made(desk: Desk) -> None:
    desk.send(desk.join("ada"), "@" + str(desk.expect(Attached, hello("loc")).member))
    for name in ("loc", "LOC"):
        peer = c.Attach(protocol="peers", credential=ByShared("a token of all peers"), member=MemberName(name))
        assert desk.refused(peer).code is Code.NAME_TAKEN


@pytest.mark.parametrize(("name", "found"), [("ada", ["Ada"]), ("Ada", ["Ada"]), ("bo", []), ("", [])])
def test_the_roster_can_be_asked_for_one_name_in_whatever_case(desk: Desk, name: str, found: list[str]) -> None:
    desk.add("Ada")
    desk.add("bob")
    roster = desk.expect(Roster, c.ListMembers(desk.operator, name=MemberName(name)))
    assert [presence.member.name for presence in roster.members] == found


def test_everybody_leaves_out_local_members_that_are_away(desk: Desk) -> None:
    ada = desk.join("ada")
    local = desk.expect(Attached, hello("loc"))
    desk.add("bob")
    assert desk.send(ada, "*").recipients == 2
    desk.ask(c.Detach(local.session))
    assert desk.send(ada, "*").recipients == 1
    assert desk.send(ada, "@loc").recipients == 1
    assert desk.send(ada, "#general").recipients == 2


def test_an_exclusive_session_takes_over_from_its_siblings_on_the_same_protocol(desk: Desk) -> None:
    first = desk.expect(Attached, hello("ada", exclusive=True))
    second = desk.expect(Attached, hello("ada", exclusive=True))
    assert [(session, why.code) for session, why in desk.outcome.ended] == [(first.session, Code.TAKEN_OVER)]
    assert desk.refused(c.Send(first.session, content=content("*"))).code is Code.UNKNOWN_SESSION
    assert TakenOver("ada", first.session, second.session) in desk.events()


def test_sessions_that_are_not_exclusive_stay_side_by_side(desk: Desk) -> None:
    desk.expect(Attached, hello("ada"))
    desk.expect(Attached, hello("ada"))
    assert desk.roster()["ada"].sessions == (RELAY, RELAY)


def test_a_resumed_session_keeps_its_id_and_gets_a_new_token(desk: Desk) -> None:
    first = resumable(desk)
    desk.ask(c.Detach(first.session))
    second = resumable(desk, resume_token=first.resume_token)
    assert (second.resume_id, second.resumed) == (first.resume_id, True)
    assert second.session != first.session
    assert second.resume_token not in (None, first.resume_token)


def test_a_session_can_be_taken_up_while_the_old_connection_lingers(desk: Desk) -> None:
    first = resumable(desk)
    second = resumable(desk, resume_token=first.resume_token)
    assert [session for session, _ in desk.outcome.ended] == [first.session]
    assert second.resume_id == first.resume_id
    assert desk.roster()["ada"].sessions == (RELAY,)


def test_a_session_can_be_resumed_by_its_id_after_a_restart(desk: Desk) -> None:
    first = resumable(desk)
    desk.crash()
    assert resumable(desk, resume_id=first.resume_id).resume_id == first.resume_id


def test_a_token_is_good_again_while_its_successor_was_not_used(desk: Desk) -> None:
    first = resumable(desk)
    for _ in range(3):  # each answer is lost
        again = resumable(desk, resume_token=first.resume_token)
        assert again.resume_id == first.resume_id


def test_a_token_whose_successor_was_used_is_a_replay_and_refused(desk: Desk) -> None:
    first = resumable(desk)
    second = resumable(desk, resume_token=first.resume_token)
    desk.ask(c.Confirm(second.session))
    refusal = desk.refused(hello("ada", resumable=True, resume_token=first.resume_token))
    assert refusal.code is Code.RESUME_REFUSED
    assert any(isinstance(event, Refused) and event.code == Code.RESUME_REFUSED for event in desk.events())
    desk.crash()
    assert desk.refused(hello("ada", resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    assert resumable(desk, resume_token=second.resume_token).resume_id == first.resume_id


def test_a_lost_answer_leaves_only_the_last_token_and_its_predecessor(desk: Desk) -> None:
    first = resumable(desk)
    lost = resumable(desk, resume_token=first.resume_token)
    third = resumable(desk, resume_token=first.resume_token)
    assert desk.refused(hello("ada", resume_token=lost.resume_token)).code is Code.RESUME_REFUSED
    assert resumable(desk, resume_token=third.resume_token).resumed


def test_another_members_token_and_session_are_refused(desk: Desk) -> None:
    ada = resumable(desk, "ada")
    assert desk.refused(hello("bob", resume_token=ada.resume_token)).code is Code.RESUME_REFUSED
    assert desk.refused(hello("bob", resume_id=ada.resume_id)).code is Code.RESUME_REFUSED


def test_a_token_for_another_session_than_the_one_named_is_refused(desk: Desk) -> None:
    one, other = resumable(desk), resumable(desk)
    refusal = desk.refused(hello("ada", resume_token=one.resume_token, resume_id=other.resume_id))
    assert refusal.code is Code.RESUME_REFUSED


def test_a_token_expires(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(resume_ms=1000))
    first = resumable(desk)
    desk.clock_and_ids.time_ms += 999
    second = resumable(desk, resume_token=first.resume_token)
    desk.clock_and_ids.time_ms += 1000
    assert desk.refused(hello("ada", resume_token=second.resume_token)).code is Code.RESUME_REFUSED


def test_an_unknown_token_or_session_is_refused(desk: Desk) -> None:
    assert desk.refused(hello("ada", resume_token="made up")).code is Code.RESUME_REFUSED
    assert desk.refused(hello("ada", resume_id="made up")).code is Code.RESUME_REFUSED


def test_a_removed_members_sessions_cannot_be_resumed_by_its_successor(desk: Desk) -> None:
    first = resumable(desk)
    desk.remove("ada")
    assert desk.refused(hello("ada", resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    desk.crash()
    assert desk.refused(hello("ada", resume_id=first.resume_id)).code is Code.RESUME_REFUSED


def test_a_token_members_session_is_resumable_too(desk: Desk) -> None:
    token = desk.add("ada")
    attach = c.Attach(protocol=RELAY, credential=ByToken(token), resumable=True)
    first = desk.expect(Attached, attach)
    again = c.Attach(protocol=RELAY, credential=ByToken(token), resumable=True, resume_token=first.resume_token)
    assert desk.expect(Attached, again).resume_id == first.resume_id


# A session that there is not.

_GIVEN: dict[str, Any] = {
    "assignee": "ada",
    "busy": True,
    "change": o.Unblock(),
    "channel": "dev",
    "code": Code.FORBIDDEN,
    "content": content("*"),
    "events": (),
    "first": 1,
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
    "start": 0,
    "thread": "*",
    "title": "t",
    "token_id": "1",
    "what": "SEND",
}
"""What commands need beside their session, by the name of the field."""
_DONE_ALL_THE_SAME = (c.Detach, c.Offered, c.RecordRefusal)
"""A session may end while one of these is on its way, and nobody waits for the answer."""


def of_nobody() -> Iterator[c.Command]:
    """Every command that a session gives, from one that never was."""
    for kind in get_args(c.Command):
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if "session" in fields and kind not in _DONE_ALL_THE_SAME:
            needed = {name: _GIVEN[name] for name, field in fields.items() if field.required and name != "session"}
            if kind is c.ChangeChannel:
                needed["change"] = Enter()
            yield kind(session=SessionId("never"), **needed)


@pytest.mark.parametrize("command", list(of_nobody()), ids=lambda command: type(command).__name__)
def test_a_session_that_never_was_is_refused_whatever_it_asks(desk: Desk, command: c.Command) -> None:
    assert desk.refused(command).code is Code.UNKNOWN_SESSION
