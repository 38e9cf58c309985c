"""Tests of the channel of all humans, of channels to which only their members may write, and of invited members."""

import pytest

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.identifiers import USERS, ChannelName, MemberName
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Channels, Done, History

DEV = ChannelName("dev")


def subscribers(harness: BrokerHarness, channel: ChannelName) -> list[str]:
    (view,) = harness.expect(Channels, c.ListChannels(harness.operator, channel=channel)).channels
    assert view.name == channel
    return list(view.subscribers)


def test_users_are_every_human_but_the_sender_and_no_agent(harness: BrokerHarness) -> None:
    ada, _bob = harness.join("ada"), harness.join("bob")
    una, ugo = (harness.join(name, kind=MemberKind.HUMAN) for name in ("una", "ugo"))
    assert harness.send(ada, "#users", "to the people").recipients == 2
    assert harness.send(una, "#users", "to the others").recipients == 1
    assert (harness.bodies(una), harness.bodies(ugo)) == (["to the people"], ["to the people", "to the others"])


def test_users_are_in_their_channel_without_joining_and_others_cannot_join(harness: BrokerHarness) -> None:
    ada, una = harness.join("ada"), harness.join("una", kind=MemberKind.HUMAN)
    harness.expect(Done, c.Subscribe(una, channel=USERS))
    assert harness.refused(c.Subscribe(ada, channel=USERS)).code is Code.FORBIDDEN
    for session in (ada, una):
        assert harness.refused(c.Unsubscribe(session, channel=USERS)).code is Code.FORBIDDEN
    assert subscribers(harness, USERS) == ["una"]


def test_users_may_read_back_what_was_said_to_them_and_agents_may_not(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    una = harness.join("una", kind=MemberKind.HUMAN)
    harness.send(ada, "#users", "to the people")
    for session, heard in ((una, 1), (ada, 1), (bob, 0)):
        assert len(harness.expect(History, c.ReadHistory(session)).messages) == heard


def test_no_member_is_called_users(harness: BrokerHarness) -> None:
    assert harness.refused(c.AddMember(harness.operator, name=MemberName("Users"))).code is Code.RESERVED_NAME


@pytest.mark.parametrize("allow_empty", [True, False])
def test_a_message_for_members_only_is_refused_from_outside_the_channel(
    harness: BrokerHarness, allow_empty: bool
) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.subscribe(ada, "dev")
    send = c.Send(bob, content=content("#dev"), allow_empty=allow_empty, members_only=True)
    assert harness.refused(send).code is Code.FORBIDDEN
    harness.subscribe(bob, "dev")
    harness.expect(Accepted, send)
    assert harness.bodies(ada) == ["hello"]


def test_everybody_may_write_to_general_as_its_member(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.expect(Accepted, c.Send(ada, content=content("#general"), members_only=True))
    assert harness.bodies(bob) == ["hello"]


def test_who_manages_members_brings_another_into_a_channel_and_out_of_it(harness: BrokerHarness) -> None:
    ada, boss = harness.join("ada"), harness.join("boss", "members.manage")
    bob = MemberName("bob")
    harness.add(bob)
    for command in (c.Subscribe, c.Unsubscribe):
        assert harness.refused(command(ada, channel=DEV, member=bob)).code is Code.FORBIDDEN
        assert harness.refused(command(boss, channel=DEV, member=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER
    harness.expect(Done, c.Subscribe(ada, channel=DEV, member=MemberName("ada")))
    harness.expect(Done, c.Subscribe(boss, channel=DEV, member=bob))
    assert subscribers(harness, DEV) == ["ada", "bob"]
    harness.expect(Done, c.Unsubscribe(boss, channel=DEV, member=bob))
    assert subscribers(harness, DEV) == ["ada"]


def test_a_channel_that_nobody_is_in_is_shown_empty_to_whoever_asks_for_it(harness: BrokerHarness) -> None:
    assert subscribers(harness, ChannelName("nowhere")) == []
