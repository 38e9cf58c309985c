"""Tests of the recipients that a message reaches, for each kind of target."""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.identifiers import ChannelName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Attached


def receivers(harness: BrokerHarness) -> list[str]:
    """Return the recipients of the last message, sorted."""
    (post,) = harness.outcome.posts
    assert len(post.keys) == len(post.stream_seqs) == len(post.recipients)
    return sorted(post.recipients)


def unnamed(harness: BrokerHarness, label: str = "client-1", place: str = "dev") -> SessionId:
    return harness.expect(Attached, c.Attach(protocol="agent-channels", credential=Unnamed(label, place))).session


def test_a_direct_message_reaches_its_member_alone(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    accepted = harness.send(ada, "@bob", "psst")
    assert accepted.recipients == 1
    assert receivers(harness) == ["bob"]
    assert (harness.bodies(ada), harness.bodies(bob), harness.bodies(cy)) == ([], ["psst"], [])


def test_the_sender_is_stamped_by_the_hub(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    message = harness.fetch(bob)[0].message
    assert (message.sender, message.protocol, message.verified) == ("ada", "hub", True)
    assert message.sent_at_ms == harness.clock_and_ids.time_ms


def test_a_member_may_write_to_itself(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.send(ada, "@ada", "note to self")
    assert harness.bodies(ada) == ["note to self"]


def test_a_channel_message_reaches_the_other_subscribers(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    harness.subscribe(ada, "dev")
    harness.subscribe(bob, "dev")
    assert harness.send(ada, "#dev").recipients == 1
    assert receivers(harness) == ["bob"]
    assert harness.send(cy, "#dev").recipients == 2
    assert receivers(harness) == ["ada", "bob"]


@pytest.mark.parametrize("target", ["*", "#general"])
def test_everybody_and_general_hold_every_member_but_the_sender(harness: BrokerHarness, target: str) -> None:
    ada = harness.join("ada")
    for name in ("bob", "cy"):
        harness.add(name)
    assert harness.send(ada, target).recipients == 2
    assert receivers(harness) == ["bob", "cy"]


@pytest.mark.parametrize("target", ["*", "#general", "#dev"])
def test_one_without_an_identity_reaches_everybody_it_addresses(harness: BrokerHarness, target: str) -> None:
    for name in ("ada", "bob"):
        harness.subscribe(harness.join(name), "dev")
    client = unnamed(harness)
    harness.send(client, target)
    assert receivers(harness) == ["ada", "bob"]
    message = harness.fetch(harness.attach("ada"))[0].message
    assert (message.sender, message.verified) == ("client-1@dev", False)


@pytest.mark.parametrize("target", ["*", "#general", "#dev"])
def test_who_comes_later_does_not_get_what_was_sent_before(harness: BrokerHarness, target: str) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.subscribe(bob, "dev")
    harness.send(ada, target)
    cy = harness.join("cy")
    harness.subscribe(cy, "dev")
    assert harness.bodies(cy) == []
    assert harness.bodies(bob) == ["hello"]


def test_who_left_a_channel_keeps_what_was_sent_before_and_gets_nothing_more(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    harness.subscribe(bob, "dev")
    harness.subscribe(cy, "dev")
    harness.send(ada, "#dev", "one")
    harness.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    harness.send(ada, "#dev", "two")
    assert harness.bodies(bob) == ["one"]
    assert harness.bodies(cy) == ["one", "two"]


def test_an_unknown_member_is_refused_with_the_nearest_names(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for name in ("reviewer", "reviewer2", "builder"):
        harness.add(name)
    refusal = harness.refused(c.Send(ada, content=content("@reviewr")))
    assert refusal.code is Code.UNKNOWN_MEMBER
    assert refusal.near[0] == "reviewer"
    assert "builder" not in refusal.near
    assert "reviewer" in refusal.message


def test_a_name_in_another_case_is_unknown_and_the_right_case_is_suggested(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.add("Bob")
    refusal = harness.refused(c.Send(ada, content=content("@bob")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_MEMBER, ("Bob",))


def test_an_unknown_channel_is_refused_with_the_nearest_names(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.subscribe(ada, "deploys")
    refusal = harness.refused(c.Send(ada, content=content("#deploy")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_CHANNEL, ("#deploys",))


@pytest.mark.parametrize("target", ["#dev", "*", "#general"])
def test_a_message_that_nobody_else_would_get_is_refused(harness: BrokerHarness, target: str) -> None:
    ada = harness.join("ada")
    harness.subscribe(ada, "dev")
    assert harness.refused(c.Send(ada, content=content(target))).code is Code.NO_RECIPIENTS


@pytest.mark.parametrize("target", ["#dev", "#never-heard-of", "*"])
def test_a_message_that_nobody_else_would_get_is_kept_when_the_sender_allows_it(
    harness: BrokerHarness, target: str
) -> None:
    ada = harness.join("ada")
    harness.subscribe(ada, "dev")
    accepted = harness.expect(Accepted, c.Send(ada, content=content(target), allow_empty=True))
    assert accepted.recipients == 0
    assert harness.receipts(ada, accepted.message_id) == {}


def test_an_unknown_member_is_refused_even_when_nobody_need_get_it(harness: BrokerHarness) -> None:
    refusal = harness.refused(c.Send(harness.join("ada"), content=content("@nobody"), allow_empty=True))
    assert refusal.code is Code.UNKNOWN_MEMBER


def test_an_unknown_objective_is_refused(harness: BrokerHarness) -> None:
    assert harness.refused(c.Send(harness.join("ada"), content=content("obj:o-1"))).code is Code.UNKNOWN_OBJECTIVE


def test_a_message_to_more_members_than_the_limit_is_refused(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(recipients_max=2))
    ada = harness.join("ada")
    harness.add("b1")
    harness.add("b2")
    assert harness.send(ada, "*").recipients == 2
    harness.add("b3")
    assert harness.refused(c.Send(ada, content=content("*"))).code is Code.TOO_MANY_RECIPIENTS


def test_a_member_with_a_full_backlog_gets_no_more_until_it_acknowledges(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(backlog_max=2))
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.send(ada, "@bob")
    assert harness.refused(c.Send(ada, content=content("@bob"))).code is Code.BACKLOG_FULL
    harness.advance(bob, 1)
    harness.send(ada, "@bob")


def test_content_that_breaks_a_limit_is_refused_before_anything_else(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(body_bytes_max=4))
    refusal = harness.refused(c.Send(harness.join("ada"), content=content("@nobody", "12345")))
    assert refusal.code is Code.MESSAGE_TOO_LARGE


def test_text_that_is_no_unicode_is_refused_and_does_not_break_the_batch_it_came_in(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    good, bad = harness.ask_all(
        c.Send(ada, content=content("@bob", "fine")), c.Send(ada, content=content("@bob", "not \ud800 fine"))
    )
    assert isinstance(good, Accepted)
    assert getattr(bad, "code", None) is Code.INVALID_MESSAGE
    assert harness.bodies(bob) == ["fine"]


def test_an_ended_session_cannot_speak(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.ask(c.Detach(ada))
    assert harness.refused(c.Send(ada, content=content("*"))).code is Code.UNKNOWN_SESSION


def test_the_operator_has_no_voice_of_its_own(harness: BrokerHarness) -> None:
    harness.add("ada")
    assert harness.refused(c.Send(harness.operator, content=content("@ada"))).code is Code.FORBIDDEN


def test_a_message_larger_than_the_hub_stores_is_refused_whatever_part_is_large(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(message_bytes_max=1000))
    ada = harness.join("ada")
    harness.add("bob")
    harness.ask(c.Send(ada, content=content("@bob", "fits", data={"k": "x" * 500})))
    assert (
        harness.refused(c.Send(ada, content=content("@bob", "large", data={"k": "x" * 1000}))).code
        is Code.MESSAGE_TOO_LARGE
    )
