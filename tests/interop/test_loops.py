"""Tests of agents that answer each other without end, on any protocol.

The hub first slows their messages, then holds them. No message is lost, and other conversations continue.
"""

import asyncio
from pathlib import Path

import pytest

from tests.interop.drivers import CONFIG, Driver, Heard, mixed_hub
from tests.server.hubs import HubHarness, until
from tieline.contract.member import MemberKind
from tieline.core.hub_messages import SPEAKER

SOFT, HARD = 3, 8
LIMITED = f"""{CONFIG}
[limits]
hops_soft = {SOFT}
hops_max = {HARD}
hop_ms_min = 0
space_ms_min = 50
space_ms_max = 100
"""
RING = ("agent-relay", "backchannel", "peerbus")


class Agent:
    """Test agent: it answers each message that it gets with a new message to one other member."""

    def __init__(self, driver: Driver, following: str, to: str = "") -> None:
        self.driver = driver
        self.following = following
        self.to = to or f"@{following}"
        self.heard: list[str] = []
        self.said: list[str] = []
        self.notices: list[Heard] = []

    async def run(self) -> None:
        """Answer messages until cancelled."""
        while True:
            try:
                heard = await self.driver.hear()
            except TimeoutError:
                continue
            if heard.sender == SPEAKER:
                self.notices.append(heard)
                continue
            self.heard.append(heard.body)
            self.said.append(f"{self.driver.name}{len(self.said)} thanks for {heard.body[:30]}")
            await self.driver.send(self.to, self.said[-1])


async def held_in(there: HubHarness, conversation: str) -> int:
    """Return the number of deliveries that are held in a conversation."""
    pauses = await (await there.operator()).pauses()
    return next((pause.held for pause in pauses if pause.thread == conversation), 0)


async def until_held(there: HubHarness, conversation: str, count: int) -> None:
    async with asyncio.timeout(30):
        while await held_in(there, conversation) < count:
            pass


def events(notices: list[Heard]) -> list[str]:
    """Return `held` or `slowed` for each notice, read from its text, because not every protocol carries its data."""
    return ["held" if "held: " in notice.body else "slowed" if "slowed: " in notice.body else "?" for notice in notices]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3), ids=RING)
async def test_a_ring_over_three_protocols_is_slowed_then_held_and_loses_nothing(folder: Path, first: int) -> None:
    protocols = [RING[(first + turn) % 3] for turn in range(3)]
    async with mixed_hub(folder / "h", config=LIMITED) as place, asyncio.TaskGroup() as tasks:
        await place.there.add("hana", kind=MemberKind.HUMAN)
        agents = [
            Agent(await place.driver(protocol, name), following)
            for protocol, name, following in zip(protocols, "abc", "bca", strict=True)
        ]
        a, b, c = agents
        human = await place.driver("ac7", "hana")
        running = [tasks.create_task(agent.run()) for agent in agents]
        await place.there.add("starter", kind=MemberKind.SCRIPT)
        starter = await place.there.join("starter", receive=True)
        await starter.send("@a", "go")
        told = [await human.hear(), await human.hear()]
        assert [(notice.sender, notice.raw["data"]["event"]) for notice in told] == [
            (SPEAKER, "slowed"),
            (SPEAKER, "held"),
        ]
        stuck = told[1].raw["data"]["conversation"]
        assert stuck == "@a+@b"
        assert f"tieline resume {stuck}" in told[1].body
        assert f"hops_max = {HARD}" in told[1].body
        await until(lambda: events(a.notices) == events(b.notices) == events(c.notices) == ["held"])
        await until_held(place.there, stuck, 1)
        # Others may go on; what follows in the stream that is held waits behind it.
        await starter.send("@b", "not a loop")
        await until(lambda: any("not a loop" in body for body in c.heard))
        await starter.send("@a", "more")
        await starter.send("@a", "and more")
        await until(lambda: any("and more" in said for said in a.said))
        await until_held(place.there, stuck, 3)
        before = len([body for body in b.heard if body.startswith("a")])
        assert len(a.said) >= before + 3
        await (await place.there.operator()).resume_thread(stuck)
        expected = list(a.said)
        await until(lambda: [body for body in b.heard if body.startswith("a")][: len(expected)] == expected)
        for task in running:
            task.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("pair", [("peerbus", "peerbus"), ("agent-relay", "backchannel")])
async def test_two_agents_that_thank_each_other_are_slowed_then_held_and_lose_nothing(
    folder: Path, pair: tuple[str, str]
) -> None:
    async with mixed_hub(folder / "h", config=LIMITED) as place, asyncio.TaskGroup() as tasks:
        await place.there.add("hana", kind=MemberKind.HUMAN)
        one = Agent(await place.driver(pair[0], "a"), "b")
        other = Agent(await place.driver(pair[1], "b"), "a")
        human = await place.driver("ac7", "hana")
        running = [tasks.create_task(agent.run()) for agent in (one, other)]
        await place.there.add("starter", kind=MemberKind.HUMAN)
        await (await place.there.join("starter")).send("@a", "be nice")
        assert events([await human.hear(), await human.hear()]) == ["slowed", "held"]
        await until_held(place.there, "@a+@b", 1)
        await until(lambda: events(one.notices) == events(other.notices) == ["held"])
        assert len(one.said) + len(other.said) == HARD + 2
        operator = await place.there.operator()
        (last,) = [one for one in await operator.history(limit=1, everything=True) if one.sender != SPEAKER]
        (receipt,) = await operator.receipts(last.id)
        assert (receipt.state, receipt.held[:6]) == ("pending", "held: ")
        await operator.resume_thread("@a+@b")
        counts = (len(one.said), len(other.said))
        await until(lambda: (len(one.said), len(other.said)) > counts)
        for task in running:
            task.cancel()
        said, heard = [*one.said, *other.said], [*one.heard[1:], *other.heard]
        assert set(heard) <= set(said)
        assert one.heard[1:] == other.said[: len(one.heard) - 1]
        assert other.heard == one.said[: len(other.heard)]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["agent-channels", "agent-relay", "backchannel", "peerbus", "ac7"])
async def test_what_was_held_reaches_every_protocol_in_order_after_what_came_meanwhile(
    folder: Path, protocol: str
) -> None:
    async with mixed_hub(folder / "h", config=CONFIG) as place:
        hearer = await place.driver(protocol, "bob")
        await place.there.add("ada", "cy")
        ada, cy, operator = await place.there.join("ada"), await place.there.join("cy"), await place.there.operator()
        await operator.pause_thread("@ada+@bob")
        held = [await ada.send("@bob", f"held {number}") for number in range(3)]
        await cy.send("@bob", "meanwhile")
        assert await heard_by(hearer) == "meanwhile"
        assert [(await ada.receipts(one.id))[0].held[:6] for one in held] == ["held: "] * 3
        await operator.resume_thread("@ada+@bob")
        await ada.send("@bob", "after")
        assert [await heard_by(hearer) for _ in range(4)] == ["held 0", "held 1", "held 2", "after"]
        # It comes once, and what the wire can say of it, it says.
        await cy.send("@bob", "last")
        assert await heard_by(hearer) == "last"
        wanted = "acked" if hearer.acknowledges else "offered"
        async with asyncio.timeout(30):
            while (await ada.receipts(held[0].id))[0].state != wanted:
                pass


async def heard_by(driver: Driver) -> str:
    """Return the body of the next message of a member. Skip the hub's own notices."""
    while True:
        heard = await driver.hear()
        if "@hub" not in heard.sender:
            return heard.body


@pytest.mark.slow
async def test_streams_of_five_hundred_each_way_between_two_peers_are_all_delivered(folder: Path) -> None:
    async with mixed_hub(folder / "h", config=CONFIG) as place:
        one, other = await place.driver("peerbus", "a"), await place.driver("peerbus", "b")

        async def speak(driver: Driver, target: str) -> None:
            for number in range(500):
                await driver.send(target, f"{number}")
                # So that the two meet on their way.
                await asyncio.sleep(0.001)

        async def listen(driver: Driver) -> list[str]:
            return [(await driver.hear()).body for _ in range(500)]

        _, _, *heard = await asyncio.gather(speak(one, "@b"), speak(other, "@a"), listen(one), listen(other))
        assert heard == [[f"{number}" for number in range(500)]] * 2
        assert await (await place.there.operator()).pauses() == ()


@pytest.mark.slow
async def test_two_programs_that_answer_each_other_at_once_are_never_slowed(folder: Path) -> None:
    async with mixed_hub(folder / "h", config=CONFIG) as place:
        pair = await place.driver("peerbus", "a"), await place.driver("agent-relay", "b")
        await pair[0].send("@b", "0")
        for number in range(1, 400):
            speaker, hearer = pair[number % 2], pair[(number + 1) % 2]
            assert (await speaker.hear()).body == f"{number - 1}"
            await speaker.send(f"@{hearer.name}", f"{number}")
        said = await (await place.there.operator()).history(limit=400, everything=True)
        assert max(message.hops for message in said) < 40


@pytest.mark.slow
async def test_ten_workers_that_report_to_one_are_all_heard(folder: Path) -> None:
    async with mixed_hub(folder / "h", config=CONFIG) as place:
        lead = await place.driver("peerbus", "lead")
        workers = [await place.driver(RING[number % 3], f"w{number}") for number in range(10)]
        for turn in range(5):
            for worker in workers:
                await lead.send(f"@{worker.name}", f"{turn}")
            for worker in workers:
                assert (await worker.hear()).body == f"{turn}"
                await worker.send("@lead", f"{worker.name} did {turn}")
            reports = {(await lead.hear()).body for _ in workers}
            assert reports == {f"{worker.name} did {turn}" for worker in workers}
        assert await (await place.there.operator()).pauses() == ()
