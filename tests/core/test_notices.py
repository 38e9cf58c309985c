"""What the hub itself tells members: that a conversation is held, that a message cannot be delivered."""

import shlex

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk
from tieline.contract.delivery import State
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind, Message
from tieline.core import holds
from tieline.core.notices import SPEAKER

LIMITS = Limits(hops_max=4, backlog_max=12)


def told(desk: Desk, name: str) -> list[Message]:
    """What the hub told a member."""
    return [one.message for one in desk.fetch(desk.attach(name)) if one.message.sender == SPEAKER]


def loop(desk: Desk) -> None:
    ada, bob = desk.attach("ada"), desk.attach("bob")
    for turn in range(5):
        desk.send(*((ada, "@bob") if turn % 2 == 0 else (bob, "@ada")))
        desk.advance(bob if turn % 2 == 0 else ada, turn // 2 + 1)
        desk.pass_ms(1000)
    assert desk.send(bob, "@ada").held


def test_those_who_looped_and_the_humans_are_told_once(make_desk: MakeDesk) -> None:
    desk = make_desk(LIMITS)
    for name in ("ada", "bob", "cy"):
        desk.join(name)
    desk.join("hana", kind=MemberKind.HUMAN)
    loop(desk)
    assert desk.send(desk.attach("ada"), "@bob").held
    for name in ("ada", "bob", "hana"):
        (notice,) = told(desk, name)
        assert notice.content.kind is Kind.EVENT
        assert notice.content.data == {"event": "held", "conversation": "@ada+@bob", "by": "bob"}
        assert "tieline resume @ada+@bob" in notice.content.body
        assert notice.content.body.count("tieline allow") == 1
        assert "one message passes every 10 min." in notice.content.body
    assert told(desk, "cy") == []


def test_in_a_channel_only_those_who_looped_are_told(make_desk: MakeDesk) -> None:
    desk = make_desk(LIMITS)
    sessions = {name: desk.join(name) for name in ("ada", "bob", "cy")}
    for session in sessions.values():
        desk.subscribe(session, "dev")
    for turn in range(5):
        one, other = ("ada", "bob") if turn % 2 == 0 else ("bob", "ada")
        desk.send(sessions[one], "#dev")
        desk.advance(sessions[other], turn // 2 + 1)
        desk.pass_ms(1000)
    assert desk.send(sessions["bob"], "#dev").held
    assert [len(told(desk, name)) for name in ("ada", "bob", "cy")] == [1, 1, 0]


def test_the_command_that_is_named_can_be_entered_whatever_a_conversation_is_called() -> None:
    assert holds.command("resume", "@ada+@bob") == "tieline resume @ada+@bob"
    assert holds.command("resume", "#dev") == "tieline resume '#dev'"
    hostile = "thread:x'; rm -rf ~; '"
    assert shlex.split(holds.command("allow", hostile)) == ["tieline", "allow", hostile]


def test_a_sender_is_told_that_its_message_does_not_fit(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", "too much")
    desk.advance(bob, 1, State.DEAD, "too_large")
    (notice,) = told(desk, "ada")
    assert notice.content.data == {
        "event": "dead",
        "message": sent.message_id,
        "member": "bob",
        "reason": "too_large",
    }
    desk.advance(bob, 1, State.DEAD, "too_large")
    assert len(told(desk, "ada")) == 1, "a delivery dies once"


def test_nobody_is_told_that_a_notice_does_not_fit(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "too much")
    desk.advance(bob, 1, State.DEAD, "too_large")
    desk.advance(ada, 1, State.DEAD, "too_large")
    assert told(desk, "ada") == told(desk, "bob") == []


def test_one_whose_inbox_is_full_is_not_told(make_desk: MakeDesk) -> None:
    desk = make_desk(LIMITS)
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    desk.send(ada, "@bob", "too much")
    for _ in range(LIMITS.backlog_max):
        desk.send(cy, "@ada")
    desk.advance(bob, 1, State.DEAD, "too_large")
    assert told(desk, "ada") == []
