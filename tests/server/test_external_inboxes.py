"""Tests that a command waits for the answer of an external inbox, and that its session waits with it."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import KEY, Office
from tieline.contract import command as c
from tieline.contract.delivery import SETTLED, State
from tieline.contract.hub import Question
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, Done, Fetched, Receipts, Reply

BOB = MemberName("bob")


@pytest.fixture(params=[False, True], ids=["local", "remote"])
def remote(request: pytest.FixtureRequest) -> bool:
    """Fixture: true if the tests of this module use the hub over a link."""
    return bool(request.param)


class Keeper:
    """Test double: an external inbox whose answers the test gives."""

    def __init__(self, there: Office) -> None:
        self.hub = there.hub
        self.questions: list[Question] = []
        self.finished: list[int] = []
        self.given_back: list[int] = []
        self.fails = False
        there.hub.set_external_inbox(BOB, SessionId(""), self)

    def asked(self, question: Question) -> None:
        self.questions.append(question)

    def finish(self, keys: Sequence[int]) -> None:
        assert not self.fails, "a bug in an external inbox"
        self.finished += keys

    def give_back(self, keys: Sequence[int]) -> None:
        self.given_back += keys

    async def question(self, count: int = 1) -> Question:
        await until(lambda: len(self.questions) == count)
        return self.questions[-1]

    async def reserve(self, count: int = 1) -> None:
        question = await self.question(count)
        self.hub.resolve(question.number, [key for key, _ in question.deliveries], ())

    async def lose(self, count: int = 1) -> None:
        question = await self.question(count)
        self.hub.resolve(question.number, (), [key for key, _ in question.deliveries])


def ask(there: Office, *commands: c.Command) -> list[Reply]:
    replies: list[Reply] = []
    there.hub.submit(commands, replies.extend)
    return replies


async def say(there: Office, body: str, **fields: Any) -> MessageId:
    reply = await there.hub.ask(c.Send(there.alice, content=content("@bob", body, **fields)))
    assert isinstance(reply, Accepted)
    return reply.message_id


async def pass_ms(there: Office, milliseconds: int) -> None:
    """Wait for this real time, and let the hub do the work that is due."""
    end = time.monotonic() + milliseconds / 1000
    await until(lambda: time.monotonic() > end)
    await there.hub.ask(c.ListMembers(there.alice))


async def state(there: Office, message_id: MessageId) -> State:
    reply = await there.hub.ask(c.ReadReceipts(there.alice, message_id=message_id))
    assert isinstance(reply, Receipts)
    return reply.receipts[0].state


async def settled(there: Office, *message_ids: MessageId) -> list[State]:
    """Wait until the deliveries of all messages are settled. Return their states."""
    states = [State.PENDING]
    while not SETTLED.issuperset(states):
        states = [await state(there, each) for each in message_ids]
    return states


async def test_a_claim_is_answered_only_after_the_external_inbox_has_reserved_it(office: Office) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
    question = await keeper.question()
    assert (question.member, [key for key, _ in question.deliveries]) == (BOB, [1])
    assert await state(office, said.message_id) is State.PENDING, "others are served meanwhile"
    assert claimed == []
    await keeper.reserve()
    await until(lambda: bool(claimed))
    assert isinstance(claimed[0], Claimed)
    assert claimed[0].delivery is not None
    await until(lambda: keeper.finished == [1])
    assert keeper.given_back == []


async def test_a_claim_for_what_was_taken_gets_nothing_and_that_is_acknowledged(office: Office) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
    await keeper.lose()
    await until(lambda: claimed == [Claimed(None)])
    assert await state(office, said.message_id) is State.ACKED
    assert (keeper.finished, keeper.given_back) == ([], [])


async def test_what_a_session_asks_after_a_claim_waits_with_it_and_nobody_else_does(office: Office) -> None:
    keeper = Keeper(office)
    for body in ("one", "two"):
        await office.accepted(body)
    other = await office.attach("bob")
    acked = ask(office, c.Advance(office.bob, ranges=((1, 1),)))
    left = ask(office, c.Fetch(office.bob))
    await keeper.question()
    seen = await office.hub.ask(c.Fetch(other))
    assert isinstance(seen, Fetched)
    assert [delivery.key for delivery in seen.deliveries] == [1, 2]
    assert (acked, left) == ([], [])
    await keeper.reserve()
    await until(lambda: bool(left))
    assert acked == [Done()]
    assert isinstance(left[0], Fetched)
    assert [delivery.key for delivery in left[0].deliveries] == [2]


async def test_of_two_claims_of_one_delivery_one_has_it_and_the_external_inbox_is_asked_once(office: Office) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    other = await office.attach("bob")
    first, second = (ask(office, c.Claim(session, message_id=said.message_id)) for session in (office.bob, other))
    await keeper.reserve()
    await until(lambda: bool(first) and bool(second))
    assert [reply.delivery is not None for reply in (*first, *second) if isinstance(reply, Claimed)] == [True, False]
    assert len(keeper.questions) == 1


async def test_what_was_reserved_for_a_failed_commit_is_given_back_and_can_be_reserved_again(
    office: Office,
) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    office.store.failures = 1
    claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
    await keeper.reserve()
    await until(lambda: bool(claimed) and keeper.given_back == [1])
    assert isinstance(claimed[0], Refusal)
    assert claimed[0].code is Code.STORE_FAILED

    async def again() -> Reply:
        while isinstance(reply := await office.hub.ask(c.Claim(office.bob, message_id=said.message_id)), Refusal):
            assert reply.code is Code.STORE_FAILED
            await asyncio.sleep(0.05)
        return reply

    claim = asyncio.create_task(again())
    await keeper.reserve(2)
    reply = await claim
    assert isinstance(reply, Claimed)
    assert reply.delivery is not None
    await until(lambda: keeper.finished == [1])


async def test_what_was_reserved_and_is_not_settled_after_all_is_given_back(office: Office) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    # Another session may be able to show what this one gives up, so the delivery stays.
    await office.attach("bob")
    given_up = ask(office, c.Advance(office.bob, ranges=((1, 1),), state=State.DEAD))
    await keeper.reserve()
    await until(lambda: given_up == [Done()] and keeper.given_back == [1])
    assert keeper.finished == []
    assert await state(office, said.message_id) is State.PENDING


async def test_a_claim_is_decided_when_its_external_inbox_goes(office: Office) -> None:
    keeper = Keeper(office)
    said = await office.accepted()
    claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
    await keeper.question()
    office.hub.set_external_inbox(BOB, SessionId(""), None)
    await until(lambda: bool(claimed))
    assert isinstance(claimed[0], Claimed)
    assert claimed[0].delivery is not None


async def test_a_time_to_live_that_passes_ends_what_the_external_inbox_wins(office: Office) -> None:
    keeper = Keeper(office)
    there = await say(office, "there", ttl_ms=1)
    await keeper.reserve(1)
    taken = await say(office, "taken", ttl_ms=1)
    await keeper.lose(2)
    await until(lambda: keeper.finished == [1])
    assert [await state(office, each) for each in (there, taken)] == [State.EXPIRED, State.ACKED]


async def test_an_external_inbox_that_fails_after_the_commit_does_not_undo_it(office: Office) -> None:
    keeper = Keeper(office)
    keeper.fails = True
    said = await office.accepted()
    with capture_logs() as logs:
        claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
        await keeper.reserve()
        await until(lambda: any(entry["event"] == "an external inbox failed" for entry in logs) and bool(claimed))
    assert isinstance(claimed[0], Claimed)
    assert await state(office, said.message_id) is State.ACKED


async def test_what_waits_for_an_external_inbox_is_refused_when_the_hub_stops(folder: Path) -> None:
    there = Office(folder, Limits())
    await there.open()
    keeper = Keeper(there)
    said = await there.accepted()
    claimed = ask(there, c.Claim(there.bob, message_id=said.message_id))
    await keeper.question()
    await there.local.stop()
    assert isinstance(claimed[0], Refusal)
    assert claimed[0].code is Code.SHUTTING_DOWN


async def test_a_time_to_live_that_passes_ends_every_delivery_of_an_external_inbox_that_goes(office: Office) -> None:
    keeper = Keeper(office)
    said = [await say(office, "asked for", ttl_ms=1)]
    await keeper.question()
    said.append(await say(office, "behind the open question", ttl_ms=1))
    await pass_ms(office, 2)
    office.hub.set_external_inbox(BOB, SessionId(""), None)
    assert await settled(office, *said) == [State.EXPIRED, State.EXPIRED]
    assert len(keeper.questions) == 1


# External inboxes that do not answer.

SILENT = pytest.mark.parametrize("office", [Limits(external_inbox_ms=50)], indirect=True)


class Quick:
    """Test double: an external inbox that reserves all deliveries at once."""

    def __init__(self, there: Office, member: MemberName) -> None:
        self.hub = there.hub
        there.hub.set_external_inbox(member, SessionId(""), self)

    def asked(self, question: Question) -> None:
        self.hub.resolve(question.number, [key for key, _ in question.deliveries], ())

    def finish(self, keys: Sequence[int]) -> None: ...

    def give_back(self, keys: Sequence[int]) -> None: ...


@SILENT
async def test_an_external_inbox_that_does_not_answer_holds_up_no_other_and_no_session(office: Office) -> None:
    keeper = Keeper(office)
    Quick(office, MemberName("alice"))
    said = await office.accepted()
    answer = await office.hub.ask(c.Send(office.bob, content=content("@alice")))
    assert isinstance(answer, Accepted)
    acked = ask(office, c.Advance(office.bob, ranges=((1, 1),)))
    await keeper.question()
    claimed = ask(office, c.Claim(office.alice, message_id=answer.message_id))
    left = ask(office, c.Detach(office.bob))
    await until(lambda: bool(acked) and bool(claimed) and bool(left))
    assert isinstance(claimed[0], Claimed)
    assert claimed[0].delivery is not None
    assert await state(office, said.message_id) is State.PENDING, "nobody knows if it was taken"


@SILENT
async def test_an_external_inbox_is_not_asked_again_before_its_late_answer_which_is_given_back(office: Office) -> None:
    keeper = Keeper(office)
    said = [await office.accepted(body) for body in ("there", "taken", "later")]
    acked = ask(office, c.Advance(office.bob, ranges=((1, 2),)))
    question = await keeper.question()
    await until(lambda: bool(acked))
    assert await office.hub.ask(c.Claim(office.bob, message_id=said[2].message_id)) == Claimed(None)
    assert keeper.questions == [question]
    office.hub.resolve(question.number, (1,), (2,))
    await until(lambda: keeper.given_back == [1])
    await keeper.lose(2)
    await settled(office, said[1].message_id)
    claimed = ask(office, c.Claim(office.bob, message_id=said[2].message_id))
    await keeper.reserve(3)
    await until(lambda: bool(claimed))
    assert [await state(office, each.message_id) for each in said] == [State.PENDING, State.ACKED, State.ACKED]


@SILENT
async def test_a_new_external_inbox_is_asked_although_the_one_before_never_answered(office: Office) -> None:
    silent = Keeper(office)
    said = await office.accepted()
    assert await office.hub.ask(c.Claim(office.bob, message_id=said.message_id)) == Claimed(None)
    assert len(silent.questions) == 1
    office.hub.set_external_inbox(BOB, SessionId(""), None)
    keeper = Keeper(office)
    claimed = ask(office, c.Claim(office.bob, message_id=said.message_id))
    await keeper.reserve()
    await until(lambda: bool(claimed))
    assert isinstance(claimed[0], Claimed)
    assert claimed[0].delivery is not None


# Sessions that replace each other.


async def test_of_two_sessions_that_replace_a_waiting_one_the_later_stays(office: Office) -> None:
    keeper = Keeper(office)
    for body in ("one", "two"):
        await office.accepted(body)
    attach = c.Attach(protocol="exclusive", credential=ByHomeKey(KEY), member=BOB, exclusive=True)
    old = await office.hub.ask(attach)
    assert isinstance(old, Attached)
    acked = ask(office, c.Advance(old.session, ranges=((1, 1),)))
    others = ask(office, c.Advance(office.bob, ranges=((2, 2),)))
    first = ask(office, attach)
    await keeper.reserve(1)
    await keeper.question(2)
    await until(lambda: bool(acked))
    second = ask(office, attach)
    # Commands of other sessions are decided in the meantime.
    await office.hub.ask(c.ListMembers(office.alice))
    await keeper.reserve(2)
    await until(lambda: bool(others) and bool(first) and bool(second))
    assert isinstance(first[0], Attached)
    assert isinstance(second[0], Attached)
    assert isinstance(await office.hub.ask(c.Fetch(first[0].session)), Refusal)
    assert isinstance(await office.hub.ask(c.Fetch(second[0].session)), Fetched)
