"""Tests of wire ids (ids that senders give to messages).

If a message is sent again with its id, it is accepted once.
"""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted


def test_the_same_id_with_the_same_content_is_accepted_once(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    first = harness.send(ada, "@bob", "once", wire_id="w-1")
    again = harness.send(ada, "@bob", "once", wire_id="w-1")
    assert not first.duplicate
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert harness.outcome.posts == []
    assert harness.bodies(bob) == ["once"]


def test_the_same_id_with_other_content_is_refused(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "one", wire_id="w-1")
    for other in (content("@bob", "two"), content("@bob", "one", title="t"), content("*", "one")):
        assert harness.refused(c.Send(ada, content=other, wire_id="w-1")).code is Code.WIRE_ID_REUSED
    assert harness.bodies(bob) == ["one"]


def test_a_session_that_has_ended_does_not_keep_others_from_repeating(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sends = [c.Send(session, content=content("@bob"), wire_id="w-1") for session in (ada, bob)]
    harness.ask_all(*sends)
    harness.ask(c.Detach(bob))
    again, refusal = harness.ask_all(*sends)
    assert isinstance(again, Accepted)
    assert again.duplicate
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.UNKNOWN_SESSION


def test_an_id_belongs_to_one_member_on_one_protocol(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    ada_elsewhere = harness.attach("ada", "peerbus")
    harness.add("cy")
    ids = {
        harness.send(ada, "@cy", "from ada", wire_id="1").message_id,
        harness.send(bob, "@cy", "from bob", wire_id="1").message_id,
        harness.send(ada_elsewhere, "@cy", "from ada, elsewhere", wire_id="1").message_id,
    }
    assert len(ids) == 3


def test_another_session_of_the_member_on_that_protocol_repeats_harmlessly(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    first = harness.send(ada, "@bob", wire_id="1")
    assert harness.send(harness.attach("ada"), "@bob", wire_id="1").message_id == first.message_id


def test_a_repetition_within_one_batch_is_seen(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    first, again, other = harness.ask_all(
        c.Send(ada, content=content("@bob", "one"), wire_id="1"),
        c.Send(ada, content=content("@bob", "one"), wire_id="1"),
        c.Send(ada, content=content("@bob", "two"), wire_id="1"),
    )
    assert isinstance(first, Accepted)
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert isinstance(other, Refusal)
    assert other.code is Code.WIRE_ID_REUSED
    assert harness.bodies(bob) == ["one"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_repetition_after_the_hub_came_back_is_seen(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    harness.add("bob")
    first = harness.send(harness.attach("ada"), "@bob", "one", wire_id="1", data={"a": 1, "b": [1.5, None]})
    getattr(harness, how)()
    again = harness.send(harness.attach("ada"), "@bob", "one", wire_id="1", data={"a": 1, "b": [1.5, None]})
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert (
        harness.refused(c.Send(harness.attach("ada"), content=content("@bob", "two"), wire_id="1")).code
        is Code.WIRE_ID_REUSED
    )


def test_an_id_of_a_message_that_was_never_committed_is_free_again(harness: BrokerHarness) -> None:
    harness.add("ada")
    harness.add("bob")
    harness.decide(c.Send(harness.attach("ada"), content=content("@bob", "lost"), wire_id="1"))
    harness.crash()
    assert not harness.send(harness.attach("ada"), "@bob", "kept", wire_id="1").duplicate


def test_a_repetition_is_answered_even_when_the_recipient_is_gone(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.send(ada, "@bob", wire_id="1")
    harness.remove("bob")
    assert harness.send(ada, "@bob", wire_id="1").duplicate


def test_a_repetition_says_how_many_it_went_to(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for name in ("b1", "b2", "b3"):
        harness.add(name)
    harness.send(ada, "*", wire_id="1")
    harness.add("b4")
    assert harness.send(ada, "*", wire_id="1").recipients == 3


def test_an_id_is_neither_empty_nor_longer_than_the_limit(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(text_bytes_max=8))
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.send(ada, "@bob", wire_id="é" * 4)
    for wire_id in ("", "x" * 9, "é" * 5):
        assert harness.refused(c.Send(ada, content=content("@bob"), wire_id=wire_id)).code is Code.INVALID_MESSAGE


def test_messages_without_an_id_are_never_taken_for_each_other(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "same")
    harness.send(ada, "@bob", "same")
    assert harness.bodies(bob) == ["same", "same"]


def test_a_name_made_anew_does_not_inherit_the_ids_that_its_predecessor_used(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "from the first ada", wire_id="1")
    harness.remove("ada")
    assert not harness.send(harness.join("ada"), "@bob", "from the second ada", wire_id="1").duplicate
    assert harness.bodies(bob) == ["from the first ada", "from the second ada"]
