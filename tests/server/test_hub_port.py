"""Tests of the Hub port, for each of its implementations: the local hub, and a remote hub over a link."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import KEY, TO_BOB, Ear, Eye, Office
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.hub import Interest, MemberAppeared, Notice
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Message
from tieline.contract.reply import Accepted, Attached, Claimed, Fetched, Reply, Roster
from tieline.contract.target import to_member


@pytest.fixture(params=[False, True], ids=["local", "remote"])
def remote(request: pytest.FixtureRequest) -> bool:
    """Fixture: true if the tests of this module use the hub over a link."""
    return bool(request.param)


async def test_what_a_session_said_before_it_was_replaced_is_all_accepted(office: Office) -> None:
    def attach(name: str, resume_id: str | None = None) -> c.Attach:
        return c.Attach(
            protocol="test",
            credential=ByHomeKey(KEY),
            member=MemberName(name),
            exclusive=resume_id is None,
            resumable=True,
            resume_id=resume_id,
        )

    first, taken_up = await office.hub.ask(attach("alice")), await office.hub.ask(attach("bob"))
    assert isinstance(first, Attached)
    assert isinstance(taken_up, Attached)
    for old, newer in ((first, attach("alice")), (taken_up, attach("bob", taken_up.resume_id))):
        said: list[Reply] = []
        office.hub.submit(
            [c.Send(old.session, content=content("@bob", f"{number}")) for number in range(600)], said.extend
        )
        office.hub.submit((c.Detach(old.session),))
        assert isinstance(await office.hub.ask(newer), Attached)
        await until(lambda said=said: len(said) == 600)  # type: ignore[misc]
        assert all(isinstance(reply, Accepted) for reply in said)


async def test_a_sender_hears_accepted_and_a_recipient_hears_the_message_only_after_the_commit(office: Office) -> None:
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    before = office.rows()
    replies = await office.hold(office.send())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert replies == []
    assert ear.keys == []
    assert eye.messages == []
    assert office.rows() == before
    office.store.gate.set()
    await until(lambda: bool(replies))
    assert isinstance(replies[0], Accepted)
    assert ear.keys == [1]
    assert eye.messages == ["hello"]
    assert office.rows() == before + 1


async def test_a_claim_is_answered_only_after_the_commit(office: Office) -> None:
    sent = await office.accepted()
    replies = await office.hold(c.Claim(office.bob, message_id=sent.message_id))
    # That nothing comes can only be seen when its time is over.
    await asyncio.sleep(0.02)
    assert replies == []
    office.store.gate.set()
    await until(lambda: bool(replies))
    assert isinstance(replies[0], Claimed)
    assert replies[0].delivery is not None


async def test_replies_come_in_the_order_of_the_commands(office: Office) -> None:
    heard: list[int] = []
    for number in range(50):
        command = office.send(str(number)) if number % 3 else c.ListMembers(office.alice)

        def done(_: Sequence[Reply], number: int = number) -> None:
            heard.append(number)

        office.hub.submit((command,), done)
    await until(lambda: len(heard) == 50)
    assert heard == list(range(50))


async def test_a_receiver_that_fails_keeps_nobody_else_from_hearing(office: Office) -> None:
    deaf, ear = office.listen(), Ear()
    office.hub.listen(await office.attach("bob"), ear, MemberName("bob"))
    blind, eye = Eye(), Eye()
    office.hub.watch(TO_BOB, blind)
    office.hub.watch(TO_BOB, eye)
    deaf.deaf = blind.blind = True

    def broken(_: Sequence[Reply]) -> None:
        raise RuntimeError("a bug in a protocol")

    replies: list[Reply] = []
    with capture_logs() as logs:
        office.hub.submit((office.send("one"),), broken)
        office.hub.submit((office.send("two"), c.AddMember(office.operator, name=MemberName("carol"))), replies.extend)
        await until(lambda: len(replies) == 2 and len(ear.keys) == 2)
    assert deaf.keys == ear.keys == [1, 2]
    assert blind.messages == eye.messages == ["one", "two"]
    assert eye.changes == [MemberAppeared(MemberName("carol"))]
    assert len([entry for entry in logs if entry["event"] == "a receiver failed"]) >= 4
    assert office.local.counters.accepted == 2


async def test_a_listener_that_is_forgotten_hears_nothing_more_and_its_sibling_does(office: Office) -> None:
    ear = office.listen()
    other, sibling = await office.attach("bob"), Ear()
    office.hub.listen(other, sibling, MemberName("bob"))
    await office.accepted()
    office.hub.forget(office.bob)
    office.hub.forget(office.bob)
    await office.accepted()
    assert ear.keys == [1]
    assert sibling.keys == [1, 2]


async def test_a_watch_over_changes_alone_is_shown_no_messages(office: Office) -> None:
    eye = Eye()
    stop = office.hub.watch(Interest(members=True), eye)
    await office.accepted("hello")
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("carol")))
    assert eye.messages == []
    assert eye.changes == [MemberAppeared(MemberName("carol"))]
    stop()
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("dave")))
    assert len(eye.changes) == 1


async def test_a_watch_lasts_until_it_is_stopped(office: Office) -> None:
    eye = Eye()
    stop = office.hub.watch(TO_BOB, eye)
    await office.accepted("seen")
    stop()
    await office.accepted("unseen")
    assert eye.messages == ["seen"]


async def test_a_watch_that_is_stopped_twice_is_stopped_and_no_other_misses_anything(office: Office) -> None:
    told: list[Notice] = []
    second = Eye()

    def leave(notice: Notice) -> None:
        told.append(notice)
        stop()
        stop()

    stop = office.hub.watch(TO_BOB, leave)
    office.hub.watch(TO_BOB, second)
    await office.accepted("one")
    await office.accepted("two")
    assert (len(told), second.messages) == (1, ["one", "two"])


@pytest.mark.slow
async def test_a_watch_is_told_of_the_targets_and_senders_that_it_named_and_of_nothing_else(office: Office) -> None:
    to_alice, by_alice, both, wakes = Eye(), Eye(), Eye(), Eye()
    alice = MemberName("alice")
    office.hub.watch(Interest(targets=(to_member(alice),)), to_alice)
    office.hub.watch(Interest(senders=(alice,)), by_alice)
    office.hub.watch(msgspec.structs.replace(TO_BOB, senders=(alice,)), both)
    office.hub.watch(Interest(said=True), wakes)
    await office.accepted("to bob")
    assert isinstance(await office.hub.ask(c.Send(office.bob, content=content("@alice", "to alice"))), Accepted)
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("carol")))
    assert (to_alice.messages, by_alice.messages) == (["to alice"], ["to bob"])
    assert both.messages == ["to bob"], "once, although two of its wishes match"
    assert (wakes.wakes, wakes.messages) == (2, [])
    assert [len(eye.changes) for eye in (to_alice, by_alice, both, wakes)] == [0, 0, 1, 0]


async def test_a_listener_that_leaves_while_it_is_told_something_keeps_its_sibling_from_nothing(office: Office) -> None:
    first = office.listen()
    session, second = await office.attach("bob"), Ear()
    office.hub.listen(session, second, MemberName("bob"))

    def leave(message: Message, key: int, stream_seq: int) -> None:
        del message, key, stream_seq
        office.hub.forget(office.bob)
        office.hub.forget(office.bob)

    first.offer = leave  # type: ignore[method-assign]
    await office.accepted()
    await office.accepted()
    assert second.keys == [1, 2]


async def test_a_listener_that_says_twice_that_it_listens_hears_once_and_is_gone_when_forgotten(office: Office) -> None:
    ear = office.listen()
    office.hub.listen(office.bob, ear, MemberName("bob"))
    await office.accepted()
    office.hub.forget(office.bob)
    await office.accepted()
    assert ear.keys == [1]


async def test_a_session_that_nobody_waits_for_any_more_ends(office: Office) -> None:
    asked = asyncio.create_task(office.attach("bob"))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    question = c.ListMembers(office.operator, name=MemberName("bob"))
    # The first answer comes after the attach, the second after its end.
    await office.hub.ask(question)
    roster = await office.hub.ask(question)
    assert isinstance(roster, Roster)
    assert len(roster.members[0].sessions) == 1


async def test_a_session_that_follows_a_message_is_told_of_its_steps(office: Office) -> None:
    ear = Ear()
    office.hub.listen(office.alice, ear)
    sent = await office.accepted()
    await office.hub.ask(c.Follow(office.alice, message_id=sent.message_id))
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),), state=State.SEEN, evidence="read"))
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
    await until(lambda: len(ear.steps) == 2)
    assert [step.state for step in ear.steps] == [State.SEEN, State.ACKED]
    assert {step.message_id for step in ear.steps} == {MessageId(sent.message_id)}


async def test_a_held_delivery_is_not_offered_before_it_is_released_and_then_its_key_is_told(office: Office) -> None:
    ear = office.listen()
    await office.hub.ask(c.PauseThread(office.operator, thread="@alice+@bob"))
    held = await office.accepted("held")
    assert held.held
    other = await office.hub.ask(c.Send(office.bob, content=content("@bob", "another stream")))
    assert isinstance(other, Accepted)
    assert (ear.keys, ear.free) == ([2], [])
    await office.hub.ask(c.ResumeThread(office.operator, thread="@alice+@bob"))
    assert (ear.keys, ear.free) == ([2], [1])
    page = await office.hub.ask(c.Fetch(office.bob, keys=(1,)))
    assert isinstance(page, Fetched)
    assert [item.message.content.body for item in page.deliveries] == ["held"]
