"""Agents on three protocols that pass everything on to the next are stopped, and nobody else is."""

import asyncio
from pathlib import Path

import pytest

from tests.interop.drivers import CONFIG, Driver, Heard, Refused, town
from tests.server.hubs import until
from tieline.contract.member import MemberKind
from tieline.core.notices import SPEAKER

HOPS_MAX = 12
LIMITED = f"{CONFIG}\n[limits]\nhops_max = {HOPS_MAX}\n"
RING = ("agent-relay", "backchannel", "peerbus")


class Forwarder:
    """An agent that passes on whatever it hears, in a message of its own."""

    def __init__(self, driver: Driver, following: str) -> None:
        self.driver = driver
        self.following = following
        self.heard: list[str] = []
        self.notices: list[Heard] = []
        self.refusals: list[str] = []

    async def run(self) -> None:
        """Go on until somebody stops it."""
        while True:
            try:
                heard = await self.driver.hear()
                if heard.sender == SPEAKER:
                    self.notices.append(heard)
                    continue
                self.heard.append(heard.body)
                await self.driver.send(self.following, f"{self.driver.name} says: {heard.body[-40:]}")
            except Refused as refused:
                self.refusals.append(str(refused))
            except TimeoutError:
                continue


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3), ids=RING)
async def test_a_ring_over_three_protocols_is_stopped_and_other_conversations_go_on(folder: Path, first: int) -> None:
    protocols = [RING[(first + turn) % 3] for turn in range(3)]
    async with town(folder / "h", config=LIMITED) as place, asyncio.TaskGroup() as tasks:
        await place.there.add("hana", kind=MemberKind.HUMAN)
        agents = [
            Forwarder(await place.driver(protocol, name), f"@{following}")
            for protocol, name, following in zip(protocols, "abc", "bca", strict=True)
        ]
        human = await place.driver("ac7", "hana")
        running = [tasks.create_task(agent.run()) for agent in agents]
        await place.there.add("starter")
        starter = await place.there.join("starter", receive=True)
        await starter.send("@a", "go")
        # Everybody who has a part in it is told, and a human, who can let it go on.
        told = await human.hear()
        assert (told.sender, told.raw["data"]["conversation"]) == (SPEAKER, "@a+@b")
        assert "tieline resume '@a+@b'" in told.body
        await until_told(agents[0], agents[1])
        rounds = [len(agent.heard) for agent in agents]
        assert all(HOPS_MAX // 3 <= count <= HOPS_MAX // 3 + 2 for count in rounds), rounds
        # Others may go on, also those who looped, also with each other in another thread.
        await starter.send("@b", "not a loop", thread="another")
        await until(lambda: agents[2].heard[-1] == "b says: not a loop")
        before = len(agents[1].heard)
        await starter.send("@a", "still paused")
        await until_told(agents[0])
        assert len(agents[1].heard) == before
        await (await place.there.operator()).resume_thread("@a+@b")
        await starter.send("@a", "again")
        await until(lambda: any("again" in body for body in agents[2].heard))
        for task in running:
            task.cancel()


async def until_told(*agents: Forwarder) -> None:
    """Wait until these heard that they are paused, or were refused in their own words."""
    await until(lambda: all(agent.notices or agent.refusals for agent in agents))
