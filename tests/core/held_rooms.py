"""Test helper for holds: a room of members that answer each other until their messages are slowed and held."""

from typing import Any

from tests.core.doubles import BrokerHarness
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.reply import Accepted
from tieline.core.hub_messages import SPEAKER

LIMITS = Limits(
    hops_soft=4, hops_max=8, objective_hops_soft=40, objective_hops_max=60, space_ms_min=5000, space_ms_max=20_000
)
STEP_MS = 1000


class Room:
    """Test helper with members that read their messages and answer them."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.sessions: dict[str, SessionId] = {}
        # The bodies delivered to each member, in order.
        self.given: dict[str, list[str]] = {}

    def join(self, *names: str, kind: MemberKind = MemberKind.AGENT) -> None:
        for name in names:
            self.sessions[name] = self.harness.join(name, kind=kind)
            self.given[name] = []

    def attach(self) -> None:
        """Open new sessions of all members, after a restart of the hub."""
        for name in self.sessions:
            self.sessions[name] = self.harness.attach(name)

    def say(self, sender: str, target: str, body: str = "thanks", **fields: Any) -> Accepted:
        return self.harness.send(self.sessions[sender], target, body, **fields)

    def read(self, name: str) -> list[str]:
        """Read and acknowledge all messages of a member, except notices of the hub. Return the bodies."""
        waiting = self.harness.fetch(self.sessions[name])
        deliveries = [delivery for delivery in waiting if delivery.message.sender != SPEAKER]
        for delivery in deliveries:
            self.harness.offered(self.sessions[name], delivery.key)
            self.harness.advance(self.sessions[name], delivery.key)
        bodies = [delivery.message.content.body for delivery in deliveries]
        self.given[name] += bodies
        return bodies

    def notices(self, name: str) -> list[str]:
        """Return the events in the hub's notices to a member. The notices stay in the inbox."""
        deliveries = self.harness.fetch(self.sessions[name])
        told = [delivery.message.content.data for delivery in deliveries if delivery.message.sender == SPEAKER]
        return [data["event"] for data in told if data is not None]

    def alternate(self, one: str, other: str, turns: int, **fields: Any) -> list[Accepted]:
        """Let two members answer each other, `turns` messages in total. Return the replies of the hub.

        Each member answers as soon as it got the last message.
        """
        said = []
        pair = (one, other)
        for turn in range(turns):
            speaker, hearer = pair[turn % 2], pair[1 - turn % 2]
            said.append(self.say(speaker, f"@{hearer}", f"{turn}", **fields))
            self.wait_for(hearer)
            self.harness.pass_ms(STEP_MS)
        return said

    def wait_for(self, name: str, most_ms: int = 200_000) -> None:
        """Move the clock forward until a member gets a message. Fail after `most_ms`."""
        for _ in range(most_ms // 250):
            if self.read(name):
                return
            self.harness.pass_ms(250)
        raise AssertionError(f"{name} was given nothing in {most_ms} ms")


def bodies(count: int) -> list[str]:
    return [f"held {number}" for number in range(count)]
