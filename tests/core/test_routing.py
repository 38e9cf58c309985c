"""Who receives a message."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.identifiers import ChannelName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Attached


def receivers(desk: Desk) -> list[str]:
    """Who the last message was posted to."""
    (post,) = desk.outcome.posts
    assert len(post.keys) == len(post.stream_seqs) == len(post.recipients)
    return sorted(post.recipients)


def unnamed(desk: Desk, label: str = "client-1", place: str = "dev") -> SessionId:
    return desk.expect(Attached, c.Attach(protocol="agent-channels", credential=Unnamed(label, place))).session


def test_a_direct_message_reaches_its_member_alone(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    accepted = desk.send(ada, "@bob", "psst")
    assert accepted.recipients == 1
    assert receivers(desk) == ["bob"]
    assert (desk.bodies(ada), desk.bodies(bob), desk.bodies(cy)) == ([], ["psst"], [])


def test_the_sender_is_stamped_by_the_hub(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    message = desk.fetch(bob)[0].message
    assert (message.sender, message.protocol, message.verified) == ("ada", "hub", True)
    assert message.sent_at_ms == desk.clock_and_ids.time_ms


def test_a_member_may_write_to_itself(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.send(ada, "@ada", "note to self")
    assert desk.bodies(ada) == ["note to self"]


def test_a_channel_message_reaches_the_other_subscribers(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    desk.subscribe(ada, "dev")
    desk.subscribe(bob, "dev")
    assert desk.send(ada, "#dev").recipients == 1
    assert receivers(desk) == ["bob"]
    assert desk.send(cy, "#dev").recipients == 2
    assert receivers(desk) == ["ada", "bob"]


@pytest.mark.parametrize("target", ["*", "#general"])
def test_everybody_and_general_hold_every_member_but_the_sender(desk: Desk, target: str) -> None:
    ada = desk.join("ada")
    for name in ("bob", "cy"):
        desk.add(name)
    assert desk.send(ada, target).recipients == 2
    assert receivers(desk) == ["bob", "cy"]


@pytest.mark.parametrize("target", ["*", "#general", "#dev"])
def test_one_without_an_identity_reaches_everybody_it_addresses(desk: Desk, target: str) -> None:
    for name in ("ada", "bob"):
        desk.subscribe(desk.join(name), "dev")
    client = unnamed(desk)
    desk.send(client, target)
    assert receivers(desk) == ["ada", "bob"]
    message = desk.fetch(desk.attach("ada"))[0].message
    assert (message.sender, message.verified) == ("client-1@dev", False)


@pytest.mark.parametrize("target", ["*", "#general", "#dev"])
def test_who_comes_later_does_not_get_what_was_sent_before(desk: Desk, target: str) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.subscribe(bob, "dev")
    desk.send(ada, target)
    cy = desk.join("cy")
    desk.subscribe(cy, "dev")
    assert desk.bodies(cy) == []
    assert desk.bodies(bob) == ["hello"]


def test_who_left_a_channel_keeps_what_was_sent_before_and_gets_nothing_more(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    desk.subscribe(bob, "dev")
    desk.subscribe(cy, "dev")
    desk.send(ada, "#dev", "one")
    desk.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    desk.send(ada, "#dev", "two")
    assert desk.bodies(bob) == ["one"]
    assert desk.bodies(cy) == ["one", "two"]


def test_an_unknown_member_is_refused_with_the_nearest_names(desk: Desk) -> None:
    ada = desk.join("ada")
    for name in ("reviewer", "reviewer2", "builder"):
        desk.add(name)
    refusal = desk.refused(c.Send(ada, content=content("@reviewr")))
    assert refusal.code is Code.UNKNOWN_MEMBER
    assert refusal.near[0] == "reviewer"
    assert "builder" not in refusal.near
    assert "reviewer" in refusal.message


def test_a_name_in_another_case_is_unknown_and_the_right_case_is_suggested(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.add("Bob")
    refusal = desk.refused(c.Send(ada, content=content("@bob")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_MEMBER, ("Bob",))


def test_an_unknown_channel_is_refused_with_the_nearest_names(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.subscribe(ada, "deploys")
    refusal = desk.refused(c.Send(ada, content=content("#deploy")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_CHANNEL, ("#deploys",))


@pytest.mark.parametrize("target", ["#dev", "*", "#general"])
def test_a_message_that_nobody_else_would_get_is_refused(desk: Desk, target: str) -> None:
    ada = desk.join("ada")
    desk.subscribe(ada, "dev")
    assert desk.refused(c.Send(ada, content=content(target))).code is Code.NO_RECIPIENTS


@pytest.mark.parametrize("target", ["#dev", "#never-heard-of", "*"])
def test_a_message_that_nobody_else_would_get_is_kept_when_the_sender_allows_it(desk: Desk, target: str) -> None:
    ada = desk.join("ada")
    desk.subscribe(ada, "dev")
    accepted = desk.expect(Accepted, c.Send(ada, content=content(target), allow_empty=True))
    assert accepted.recipients == 0
    assert desk.receipts(ada, accepted.message_id) == {}


def test_an_unknown_member_is_refused_even_when_nobody_need_get_it(desk: Desk) -> None:
    refusal = desk.refused(c.Send(desk.join("ada"), content=content("@nobody"), allow_empty=True))
    assert refusal.code is Code.UNKNOWN_MEMBER


def test_an_unknown_objective_is_refused(desk: Desk) -> None:
    assert desk.refused(c.Send(desk.join("ada"), content=content("obj:o-1"))).code is Code.UNKNOWN_OBJECTIVE


def test_a_message_to_more_members_than_the_limit_is_refused(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(recipients_max=2))
    ada = desk.join("ada")
    desk.add("b1")
    desk.add("b2")
    assert desk.send(ada, "*").recipients == 2
    desk.add("b3")
    assert desk.refused(c.Send(ada, content=content("*"))).code is Code.TOO_MANY_RECIPIENTS


def test_a_member_with_a_full_backlog_gets_no_more_until_it_acknowledges(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(backlog_max=2))
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    desk.send(ada, "@bob")
    assert desk.refused(c.Send(ada, content=content("@bob"))).code is Code.BACKLOG_FULL
    desk.advance(bob, 1)
    desk.send(ada, "@bob")


def test_content_that_breaks_a_limit_is_refused_before_anything_else(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(body_bytes_max=4))
    refusal = desk.refused(c.Send(desk.join("ada"), content=content("@nobody", "12345")))
    assert refusal.code is Code.MESSAGE_TOO_LARGE


def test_text_that_is_no_unicode_is_refused_and_does_not_break_the_batch_it_came_in(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    good, bad = desk.ask_all(
        c.Send(ada, content=content("@bob", "fine")), c.Send(ada, content=content("@bob", "not \ud800 fine"))
    )
    assert isinstance(good, Accepted)
    assert getattr(bad, "code", None) is Code.INVALID_MESSAGE
    assert desk.bodies(bob) == ["fine"]


def test_an_ended_session_cannot_speak(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.ask(c.Detach(ada))
    assert desk.refused(c.Send(ada, content=content("*"))).code is Code.UNKNOWN_SESSION


def test_the_operator_has_no_voice_of_its_own(desk: Desk) -> None:
    desk.add("ada")
    assert desk.refused(c.Send(desk.operator, content=content("@ada"))).code is Code.FORBIDDEN


def test_a_message_larger_than_the_hub_stores_is_refused_whatever_part_is_large(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(message_bytes_max=1000))
    ada = desk.join("ada")
    desk.add("bob")
    desk.ask(c.Send(ada, content=content("@bob", "fits", data={"k": "x" * 500})))
    assert (
        desk.refused(c.Send(ada, content=content("@bob", "large", data={"k": "x" * 1000}))).code
        is Code.MESSAGE_TOO_LARGE
    )
