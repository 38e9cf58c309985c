"""Wire ids: the id that a sender gave on its wire makes repeating harmless."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted


def test_the_same_id_with_the_same_content_is_accepted_once(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    first = desk.send(ada, "@bob", "once", wire_id="w-1")
    again = desk.send(ada, "@bob", "once", wire_id="w-1")
    assert not first.duplicate
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert desk.outcome.posts == []
    assert desk.bodies(bob) == ["once"]


def test_the_same_id_with_other_content_is_refused(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "one", wire_id="w-1")
    for other in (content("@bob", "two"), content("@bob", "one", title="t"), content("*", "one")):
        assert desk.refused(c.Send(ada, content=other, wire_id="w-1")).code is Code.WIRE_ID_REUSED
    assert desk.bodies(bob) == ["one"]


def test_an_id_belongs_to_one_member_on_one_protocol(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    ada_elsewhere = desk.attach("ada", "peerbus")
    desk.add("cy")
    ids = {
        desk.send(ada, "@cy", "from ada", wire_id="1").message_id,
        desk.send(bob, "@cy", "from bob", wire_id="1").message_id,
        desk.send(ada_elsewhere, "@cy", "from ada, elsewhere", wire_id="1").message_id,
    }
    assert len(ids) == 3


def test_another_session_of_the_member_on_that_protocol_repeats_harmlessly(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    first = desk.send(ada, "@bob", wire_id="1")
    assert desk.send(desk.attach("ada"), "@bob", wire_id="1").message_id == first.message_id


def test_a_repetition_within_one_batch_is_seen(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    first, again, other = desk.ask_all(
        c.Send(ada, content=content("@bob", "one"), wire_id="1"),
        c.Send(ada, content=content("@bob", "one"), wire_id="1"),
        c.Send(ada, content=content("@bob", "two"), wire_id="1"),
    )
    assert isinstance(first, Accepted)
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert isinstance(other, Refusal)
    assert other.code is Code.WIRE_ID_REUSED
    assert desk.bodies(bob) == ["one"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_repetition_after_the_hub_came_back_is_seen(desk: Desk, how: str) -> None:
    desk.add("ada")
    desk.add("bob")
    first = desk.send(desk.attach("ada"), "@bob", "one", wire_id="1", data={"a": 1, "b": [1.5, None]})
    getattr(desk, how)()
    again = desk.send(desk.attach("ada"), "@bob", "one", wire_id="1", data={"a": 1, "b": [1.5, None]})
    assert again == Accepted(message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True)
    assert (
        desk.refused(c.Send(desk.attach("ada"), content=content("@bob", "two"), wire_id="1")).code
        is Code.WIRE_ID_REUSED
    )


def test_an_id_of_a_message_that_was_never_committed_is_free_again(desk: Desk) -> None:
    desk.add("ada")
    desk.add("bob")
    desk.decide(c.Send(desk.attach("ada"), content=content("@bob", "lost"), wire_id="1"))
    desk.crash()
    assert not desk.send(desk.attach("ada"), "@bob", "kept", wire_id="1").duplicate


def test_a_repetition_is_answered_even_when_the_recipient_is_gone(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.send(ada, "@bob", wire_id="1")
    desk.remove("bob")
    assert desk.send(ada, "@bob", wire_id="1").duplicate


def test_a_repetition_says_how_many_it_went_to(desk: Desk) -> None:
    ada = desk.join("ada")
    for name in ("b1", "b2", "b3"):
        desk.add(name)
    desk.send(ada, "*", wire_id="1")
    desk.add("b4")
    assert desk.send(ada, "*", wire_id="1").recipients == 3


def test_an_id_is_neither_empty_nor_longer_than_the_limit(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(text_bytes_max=8))
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.send(ada, "@bob", wire_id="é" * 4)
    for wire_id in ("", "x" * 9, "é" * 5):
        assert desk.refused(c.Send(ada, content=content("@bob"), wire_id=wire_id)).code is Code.INVALID_MESSAGE


def test_messages_without_an_id_are_never_taken_for_each_other(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "same")
    desk.send(ada, "@bob", "same")
    assert desk.bodies(bob) == ["same", "same"]


def test_a_name_made_anew_does_not_inherit_the_ids_that_its_predecessor_used(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "from the first ada", wire_id="1")
    desk.remove("ada")
    assert not desk.send(desk.join("ada"), "@bob", "from the second ada", wire_id="1").duplicate
    assert desk.bodies(bob) == ["from the first ada", "from the second ada"]
