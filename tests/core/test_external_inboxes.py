"""Tests of external inboxes: if the hub and a process outside both take a delivery, only the first one gets it."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core.doubles import BrokerHarness, FakeInbox, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.message import Kind, Message
from tieline.contract.reply import Accepted, Done
from tieline.core.external_inboxes import EVIDENCE
from tieline.core.inbox import Entry, Inbox

BOB = MemberName("bob")


class Shop(FakeInbox):
    """Test double for an external inbox.

    It answers that a delivery was taken by a process outside if the body is in `taken`, and that it does not know
    (`None`) if the body is in `unclear`.
    """

    def __init__(self) -> None:
        self.session = SessionId("")
        self.taken: set[str] = set()
        self.unclear: set[str] = set()
        self.reserved: list[str] = []
        self.finished: list[int] = []
        self.given_back: list[int] = []

    def reserve(self, message: Message, key: int) -> bool | None:
        del key
        body = message.content.body
        if body in self.unclear:
            return None
        if body in self.taken:
            return False
        self.reserved.append(body)
        return True

    def finish(self, keys: Sequence[int]) -> None:
        self.finished += keys

    def give_back(self, keys: Sequence[int]) -> None:
        self.given_back += keys


class Street:
    """Test helper in which alice sends messages to bob, who has an external inbox."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.alice, self.bob = harness.join("alice"), harness.join("bob")
        self.shop = Shop()
        self.keeper = self.shop.session = harness.attach("bob", "shop")
        harness.set_external_inbox(BOB, self.shop)

    def say(self, body: str, **fields: Any) -> MessageId:
        return self.harness.send(self.alice, "@bob", body, **fields).message_id

    def last_step(self, message_id: MessageId) -> tuple[State, str, str]:
        step = self.harness.receipts(self.alice, message_id)["bob"].steps[-1]
        return step.state, step.protocol, step.evidence


@pytest.fixture
def street(harness: BrokerHarness) -> Street:
    return Street(harness)


def test_a_claim_that_the_external_inbox_wins_is_the_claimers(street: Street) -> None:
    said = street.say("hello")
    assert street.harness.claim(street.bob, said) is not None
    assert street.shop.reserved == ["hello"]
    assert street.shop.finished == [1]
    assert street.harness.claim(street.bob, said) is None


def test_a_claim_for_what_was_taken_outside_gets_nothing_and_it_is_acknowledged(street: Street) -> None:
    street.shop.taken.add("hello")
    said = street.say("hello")
    assert street.harness.claim(street.bob, said) is None
    assert street.last_step(said) == (State.ACKED, "shop", EVIDENCE)
    assert street.shop.finished == []


def test_what_was_reserved_is_finished_only_after_the_commit(street: Street) -> None:
    street.say("hello")
    street.harness.decide(c.Advance(street.bob, ranges=((1, 1),)))
    assert street.shop.reserved == ["hello"]
    assert street.shop.finished == []
    street.harness.commit()
    assert street.shop.finished == [1]


def test_what_was_reserved_and_not_committed_is_never_finished(street: Street) -> None:
    said = street.say("hello")
    street.harness.decide(c.Advance(street.bob, ranges=((1, 1),)))
    street.harness.crash()
    street.harness.commit()
    assert street.shop.finished == []
    assert street.harness.state(said, "bob") is State.PENDING


def test_an_acknowledgement_of_many_settles_those_that_were_reserved_and_no_other(street: Street) -> None:
    street.shop.taken, street.shop.unclear = {"3"}, {"4"}
    said = [street.say(str(number)) for number in range(6)]
    street.harness.ask(c.Advance(street.bob, ranges=((1, 6),)))
    assert street.shop.reserved == ["0", "1", "2", "5"]
    states = [street.harness.state(each, "bob") for each in said]
    assert states == [State.ACKED] * 4 + [State.PENDING, State.ACKED]
    assert street.last_step(said[3])[2] == EVIDENCE
    assert street.shop.finished == [1, 2, 3, 6]


def test_thousands_are_reserved_page_by_page(street: Street) -> None:
    for number in range(700):
        street.say(str(number), kind=Kind.EVENT)
    street.harness.ask(c.Advance(street.bob, ranges=((1, 10_000),)))
    assert street.shop.reserved == [str(number) for number in range(700)]
    assert street.harness.fetch(street.bob) == ()


def test_the_inboxs_own_session_settles_without_being_asked(street: Street) -> None:
    said = street.say("hello")
    street.harness.expect(Done, c.AcknowledgeIds(street.keeper, message_ids=(said,), evidence="sold"))
    assert street.shop.reserved == []
    assert street.last_step(said) == (State.ACKED, "shop", "sold")


def test_acknowledging_by_the_id_of_a_message_has_to_be_reserved_too(street: Street) -> None:
    street.shop.taken.add("taken")
    lost, reserved = street.say("taken"), street.say("there")
    street.harness.expect(Done, c.AcknowledgeIds(street.bob, message_ids=(lost, reserved)))
    assert street.last_step(lost)[2] == EVIDENCE
    assert street.last_step(reserved)[2] == ""
    assert street.shop.finished == [2]


def test_discarding_has_to_be_reserved_too(street: Street) -> None:
    street.shop.taken.add("taken")
    lost, reserved = street.say("taken"), street.say("there")
    street.harness.expect(Done, c.Discard(street.bob, ranges=((1, 2),), reason="not ours"))
    assert street.harness.state(lost, "bob") is State.ACKED
    assert street.harness.state(reserved, "bob") is State.EXPIRED
    assert street.shop.reserved == ["there"]


def test_what_was_held_is_released_when_the_external_inbox_comes(harness: BrokerHarness) -> None:
    alice, bob = harness.join("alice"), harness.join("bob")
    harness.expect(Done, c.PauseThread(harness.operator, thread="@alice+@bob"))
    assert harness.send(alice, "@bob", "held").held
    assert harness.bodies(bob) == []
    harness.set_external_inbox(BOB, Shop())
    harness.attach("bob", "shop")
    assert harness.bodies(bob) == ["held"]


def test_a_time_to_live_that_passes_ends_what_nobody_has_taken(street: Street) -> None:
    street.shop.taken.add("taken")
    lost, reserved = street.say("taken", ttl_ms=10), street.say("there", ttl_ms=10)
    street.harness.pass_ms(20)
    assert street.harness.state(lost, "bob") is State.ACKED
    assert street.harness.state(reserved, "bob") is State.EXPIRED


def test_deliveries_that_expire_together_are_one_command_for_their_member(street: Street) -> None:
    said = [street.say(str(number), ttl_ms=10) for number in range(300)]
    street.harness.clock_and_ids.time_ms += 20
    street.harness.decide(c.Tick())
    assert [(settle.member, settle.ranges) for settle in street.harness.outcome.settle_commands()] == [
        (BOB, ((1, 300),))
    ]
    assert {street.harness.state(each, "bob") for each in said} == {State.EXPIRED}


def test_a_time_to_live_that_passes_is_not_lost_if_the_external_inbox_cannot_tell_at_first(street: Street) -> None:
    street.shop.unclear.add("hello")
    said = street.say("hello", ttl_ms=10)
    street.harness.pass_ms(20)
    assert street.harness.state(said, "bob") is State.PENDING
    street.shop.unclear.clear()
    street.harness.pass_ms(60_000)
    assert street.harness.state(said, "bob") is State.EXPIRED


def test_a_time_to_live_that_passes_is_not_lost_if_the_messages_cannot_be_read_at_first(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = street.say("hello", ttl_ms=10)
    with monkeypatch.context() as patch:
        patch.setattr(street.harness.broker.settlement, "needs", lambda *_: None)
        street.harness.pass_ms(20)
    assert street.harness.state(said, "bob") is State.PENDING
    street.harness.pass_ms(60_000)
    assert street.harness.state(said, "bob") is State.EXPIRED


def test_a_large_acknowledgement_is_read_once_to_ask_and_once_to_settle(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 1300
    for number in range(count):
        street.say(str(number), kind=Kind.EVENT)
    read, entries = Inbox.read, []

    def counted(inbox: Inbox, *arguments: Any, **options: Any) -> tuple[list[Entry], int]:
        found = read(inbox, *arguments, **options)
        entries.extend(found[0])
        return found

    monkeypatch.setattr(Inbox, "read", counted)
    street.harness.ask(c.Advance(street.bob, ranges=((600, 2000), (1, 600))))
    assert street.shop.reserved == [str(number) for number in range(count)]
    assert street.harness.fetch(street.bob) == ()
    assert len(entries) < 2.5 * count


def test_a_member_that_is_removed_leaves_dead_what_nobody_has_taken(street: Street) -> None:
    street.shop.taken.add("taken")
    lost, reserved = street.say("taken"), street.say("there")
    street.harness.remove("bob")
    assert street.harness.state(lost, "bob") is State.ACKED
    assert street.harness.state(reserved, "bob") is State.DEAD


def test_offering_and_seeing_need_not_be_reserved(street: Street) -> None:
    said = street.say("hello")
    street.harness.offered(street.bob, 1)
    street.harness.advance(street.bob, 1, State.SEEN)
    assert street.harness.state(said, "bob") is State.SEEN
    assert street.shop.reserved == []


def test_a_message_that_expires_while_it_is_held_was_never_in_the_inbox_and_need_not_be_reserved(
    harness: BrokerHarness,
) -> None:
    alice, _ = harness.join("alice"), harness.join("bob")
    harness.expect(Done, c.PauseThread(harness.operator, thread="@alice+@bob"))
    held = harness.send(alice, "@bob", ttl_ms=1000).message_id
    shop = Shop()
    harness.set_external_inbox(BOB, shop)
    harness.pass_ms(1000)
    assert harness.state(held, "bob") is State.EXPIRED
    assert shop.reserved == []


def test_what_came_after_the_question_is_settled_by_no_acknowledgement(street: Street) -> None:
    street.harness.ask_all(
        c.Send(street.alice, content=content("@bob", "just now")), c.Advance(street.bob, ranges=((1, 1),))
    )
    assert street.harness.bodies(street.bob) == ["just now"]
    assert street.shop.reserved == []
    street.harness.advance(street.bob, 1)
    assert street.shop.reserved == ["just now"]


def test_other_members_are_not_asked_for(street: Street) -> None:
    said = street.harness.send(street.bob, "@alice").message_id
    assert street.harness.claim(street.alice, said) is not None
    assert street.shop.reserved == []


# Messages whose recipients their sender has chosen.


def test_a_sender_that_has_chosen_its_recipients_reaches_them_and_nobody_else(harness: BrokerHarness) -> None:
    sessions = {name: harness.join(name) for name in ("ada", "bob", "cy")}
    for session in sessions.values():
        harness.subscribe(session, "dev")
    only = (MemberName("bob"), MemberName("ada"), MemberName("bob"))
    accepted = harness.expect(Accepted, c.Send(sessions["ada"], content=content("#dev"), only=only))
    assert accepted.recipients == 2
    assert {name: harness.bodies(session) for name, session in sessions.items()} == {
        "ada": ["hello"],
        "bob": ["hello"],
        "cy": [],
    }
    (delivery,) = harness.fetch(sessions["bob"])
    assert str(delivery.message.content.target) == "#dev"


def test_a_chosen_recipient_that_nobody_knows_is_refused(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    refusal = harness.refused(c.Send(ada, content=content("#dev"), only=(MemberName("ad"),)))
    assert refusal.code == "unknown_member"
    assert refusal.near == ("ada",)


@pytest.mark.parametrize("unverified", [False, True])
def test_a_name_that_somebody_wrote_down_is_not_verified(harness: BrokerHarness, *, unverified: bool) -> None:
    ada = harness.join("ada")
    harness.expect(Accepted, c.Send(ada, content=content("@ada"), unverified=unverified))
    (delivery,) = harness.fetch(ada)
    assert delivery.message.sender == "ada"
    assert delivery.message.verified is not unverified
