"""Tests of the forwarder, which pushes deliveries to an agent.

A pushed delivery is offered, evidence makes it seen, and no delivery is pushed twice or lost.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.server.hubs import HubHarness, until
from tieline.client import Client, Complete, Delivery, Disconnected, Item, Message
from tieline.protocols.mcp.forwarder import BACKLOG_PUSHED_MAX, Forwarder


class Agent:
    """Test double: bob's agent in one run of its program. It records the messages pushed to it."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.pushed: list[Delivery | Item] = []
        self.heard: list[Message] = []
        self.left_out: list[int] = []
        self.forwarder = Forwarder(
            "bob", self.push, hear=self.heard.append, left_out=self.note_left_out, takes=lambda scope: scope != "far"
        )

    async def push(self, delivery: Delivery | Item) -> None:
        self.pushed.append(delivery)
        self.bodies.append(delivery.message.body)

    async def note_left_out(self, count: int) -> None:
        self.left_out.append(count)

    @contextlib.asynccontextmanager
    async def session(self, client: Client) -> AsyncIterator[None]:
        """Forward deliveries of this session to the agent inside the `with` block.

        The end of the block is like a kill.
        """
        task = asyncio.create_task(self.forwarder.forward(client))
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Disconnected):
                await task
            await client.close()


async def steps(alice: Client, message_id: str) -> list[tuple[str, str]]:
    """Return the steps of a message for bob: the reached states, each with its evidence."""
    (receipt,) = await alice.receipts(message_id)
    return [(step.state, step.evidence) for step in receipt.steps]


async def state(alice: Client, message_id: str) -> str:
    """Return the last state of a message for bob."""
    return (await steps(alice, message_id))[-1][0]


async def test_a_push_is_offered_and_a_later_act_of_the_agent_makes_it_seen(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = await alice.send("@bob", "one")
        await until(lambda: agent.bodies == ["one"])
        assert await state(alice, sent.id) == "offered"
        assert agent.forwarder.evidence("tool call: send") == 1
        await asyncio.sleep(0)
        await alice.members()
        assert await steps(alice, sent.id) == [("pending", ""), ("offered", ""), ("seen", "tool call: send")]


async def test_evidence_twice_counts_once(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = await alice.send("@bob", "one")
        await until(lambda: agent.bodies == ["one"])
        assert agent.forwarder.evidence("first") == 1
        assert agent.forwarder.evidence("second") == 0
        await alice.members()
        assert [step for step in await steps(alice, sent.id) if step[0] == "seen"] == [("seen", "first")]


async def test_evidence_covers_what_was_pushed_with_its_keys(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = [await alice.send("@bob", body) for body in ("one", "two", "three")]
        await until(lambda: len(agent.bodies) == 3)
        assert agent.forwarder.evidence("turn", keys=[one.key for one in agent.pushed[:2]]) == 2
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["seen", "seen", "offered"]


async def test_an_end_between_push_and_evidence_has_it_pushed_again(home: HubHarness) -> None:
    alice = await home.join("alice")
    first = Agent()
    async with first.session(await home.join("bob", receive=True)):
        sent = await alice.send("@bob", "one")
        await until(lambda: first.bodies == ["one"])
    second = Agent()
    async with second.session(await home.join("bob", receive=True)):
        await until(lambda: second.bodies == ["one"])
        second.forwarder.evidence("late")
        await alice.members()
        assert (await steps(alice, sent.id))[-1] == ("seen", "late")


async def test_what_arrived_while_away_comes_once(home: HubHarness) -> None:
    alice = await home.join("alice")
    for body in ("one", "two"):
        await alice.send("@bob", body)
    first = Agent()
    async with first.session(await home.join("bob", receive=True)):
        await until(lambda: first.bodies == ["one", "two"])
        first.forwarder.evidence("read")
        await alice.members()
    second = Agent()
    async with second.session(await home.join("bob", receive=True)):
        await alice.send("@bob", "three")
        await until(lambda: "three" in second.bodies)
        assert second.bodies == ["three"]
        assert [message.body for message in second.heard] == ["one", "two", "three"]


async def test_a_hub_that_comes_back_pushes_nothing_again(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = await alice.send("@bob", "one")
        await until(lambda: agent.bodies == ["one"])
    assert agent.forwarder.evidence("while the hub was away") == 1
    async with agent.session(await home.join("bob", receive=True)):
        await alice.send("@bob", "two")
        await until(lambda: len(agent.bodies) == 2)
        assert agent.bodies == ["one", "two"]
        assert (await steps(alice, sent.id))[-1] == ("seen", "while the hub was away")


async def test_evidence_that_the_hub_may_not_have_heard_is_told_again_and_counts_once(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    first = await home.join("bob", receive=True)
    forwarding = asyncio.create_task(agent.forwarder.forward(first))
    sent = [await alice.send("@bob", body) for body in ("one", "two")]
    await until(lambda: len(agent.bodies) == 2)
    agent.forwarder.evidence("heard", keys=[agent.pushed[0].key])
    await alice.members()
    # The connection breaks, and nobody here has noticed when the agent acts.
    first.connection_lost("the network is gone")
    agent.forwarder.evidence("not heard")
    agent.forwarder.named(sent[0].id)
    with pytest.raises(Disconnected):
        await forwarding
    assert [await state(alice, one.id) for one in sent] == ["seen", "offered"]
    async with agent.session(await home.join("bob", receive=True)):
        await alice.send("@bob", "three")
        await until(lambda: agent.bodies == ["one", "two", "three"])
        assert [await state(alice, one.id) for one in sent] == ["acked", "acked"]
        assert [step for step in await steps(alice, sent[0].id) if step[0] == "seen"] == [("seen", "heard")]
        assert ("seen", "not heard") in await steps(alice, sent[1].id)


async def test_a_push_that_failed_is_made_again(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    failures = [Disconnected("gone")]

    async def push(delivery: Delivery | Item) -> None:
        if failures:
            raise failures.pop()
        agent.bodies.append(delivery.message.body)

    forwarder = Forwarder("bob", push)
    await alice.send("@bob", "one")
    with pytest.raises(Disconnected):
        await forwarder.forward(await home.join("bob", receive=True))
    task = asyncio.create_task(forwarder.forward(await home.join("bob", receive=True)))
    await until(lambda: agent.bodies == ["one"])
    task.cancel()


async def test_ones_own_chat_is_not_pushed_but_what_one_did_to_an_objective_is(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    bob = await home.join("bob")
    async with agent.session(await home.join("bob", receive=True)):
        made = await alice.create_objective("Fix it", "It works", "bob")
        await bob.send("@bob", "a note to myself")
        await bob.send(f"obj:{made.id}", "looking at it")
        await bob.change_objective(made.id, Complete("fixed"))
        await until(lambda: len(agent.bodies) == 2)
        kinds = [body.split("]")[0] for body in agent.bodies]
        assert kinds == ["[objective assigned", "[objective completed"]
        assert agent.pushed[1].message.sender == "bob"


async def test_of_a_long_backlog_the_rest_is_counted_and_left(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    for number in range(BACKLOG_PUSHED_MAX + 3):
        await alice.send("@bob", str(number))
    async with agent.session(await home.join("bob", receive=True)):
        await until(lambda: agent.left_out == [3])
        assert agent.bodies == [str(number) for number in range(BACKLOG_PUSHED_MAX)]
        await alice.send("@bob", "new")
        await until(lambda: agent.bodies[-1] == "new")
        left = await (await home.join("bob")).inbox()
        assert len(left.items) == BACKLOG_PUSHED_MAX + 4


async def test_messages_of_another_scope_are_left(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        await alice.send("@bob", "there", scope="far")
        await alice.send("@bob", "here", scope="near")
        await until(lambda: agent.bodies == ["here"])
        assert agent.forwarder.evidence("read") == 1


async def test_a_seen_message_stays_to_be_taken_until_the_agent_names_it(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = [await alice.send("@bob", body) for body in ("one", "two")]
        await until(lambda: len(agent.bodies) == 2)
        agent.forwarder.evidence("tool call")
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["seen", "seen"]
        agent.forwarder.named(sent[0].id)
        await alice.members()
        # It named what it can only know from a push, so pushes are shown to it.
        assert [await state(alice, one.id) for one in sent] == ["acked", "acked"]
        third = await alice.send("@bob", "three")
        await until(lambda: len(agent.bodies) == 3)
        assert await state(alice, third.id) == "offered"
        agent.forwarder.evidence("tool call")
        await alice.members()
        assert await state(alice, third.id) == "acked"


async def test_naming_what_a_tool_showed_proves_nothing_about_pushes(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = [await alice.send("@bob", body) for body in ("one", "two")]
        await until(lambda: len(agent.bodies) == 2)
        agent.forwarder.evidence("tool call")
        agent.forwarder.shown(sent[0].id)
        agent.forwarder.named(sent[0].id)
        agent.forwarder.named("never heard of")
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["acked", "seen"]
        assert not agent.forwarder.proved


async def test_what_the_agent_took_by_itself_is_awaited_no_more(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = await alice.send("@bob", "one")
        await until(lambda: len(agent.bodies) == 1)
        agent.forwarder.settled(sent.id)
        assert agent.forwarder.evidence("tool call") == 0


async def test_what_did_not_reach_the_agent_after_all_is_not_covered_by_later_evidence(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = [await alice.send("@bob", body) for body in ("one", "two")]
        await until(lambda: len(agent.bodies) == 2)
        agent.forwarder.withdraw(agent.pushed[0].key)
        assert agent.forwarder.evidence("turn", keys=[one.key for one in agent.pushed]) == 1
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["offered", "seen"]


async def test_what_is_finished_is_settled_alone(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True)):
        sent = [await alice.send("@bob", body) for body in ("one", "two")]
        await until(lambda: len(agent.bodies) == 2)
        agent.forwarder.evidence("turn")
        agent.forwarder.finished(sent[0].id)
        agent.forwarder.finished("never heard of")
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["acked", "seen"]


@pytest.mark.slow
async def test_a_full_window_does_not_end_the_pushes(home: HubHarness) -> None:
    alice, agent = await home.join("alice"), Agent()
    async with agent.session(await home.join("bob", receive=True, window=3)):
        for number in range(8):
            await alice.send("@bob", str(number))
        await until(lambda: agent.bodies == [str(number) for number in range(8)])
