"""One agent of the demo, as a process: it takes orders on stdin and reports messages on stdout.

Used by: `stage`, which starts it and may kill it. Uses: a puppet (a small client for tests) of its protocol, the
agent's only way to the hub. The process ends when its stdin ends, so that it never outlives the process that started
it.
"""

import asyncio
import sys
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from tieline.protocols import named
from tieline.wire.puppet import Heard, Place, Puppet

Json = dict[str, Any]


class Join(Struct, frozen=True, tag="join", tag_field="do"):
    """Order to an agent of the demo: connect to the hub by a protocol."""

    n: int
    protocol: str
    place: Place


class Say(Struct, frozen=True, tag="say", tag_field="do"):
    """Order to an agent of the demo: send a message."""

    n: int
    target: str
    body: str
    urgent: bool = False


class Hold(Struct, frozen=True, tag="hold", tag_field="do"):
    """Order to an agent of the demo: acknowledge no message from now on."""

    n: int


class Race(Struct, frozen=True, tag="race", tag_field="do"):
    """Order to an agent of the demo: claim the last message twice at once, and report the result of both claims.

    The protocol must have claims.
    """

    n: int


class Ask(Struct, frozen=True, tag="ask", tag_field="do"):
    """Order to an agent of the demo: make an HTTP request of its protocol, for example to change an objective.

    Only for an agent whose protocol has HTTP requests beside its messages.
    """

    n: int
    method: str
    path: str
    form: Json


Order = Join | Say | Hold | Race | Ask


class Done(Struct, frozen=True, tag="done", tag_field="tells"):
    """Report of an agent of the demo: order number `n` was carried out, or it failed for the reason `failed`."""

    n: int
    value: Any = None
    failed: str = ""


class News(Struct, frozen=True, tag="news", tag_field="tells"):
    """Report of an agent of the demo: the agent received a message."""

    sender: str
    body: str
    urgent: bool


Report = Done | News


@runtime_checkable
class Claiming(Protocol):
    """Interface of a puppet (a small client for tests) whose protocol has claims."""

    async def take(self, heard: Heard) -> bool:
        """Claim a message. Return true if the claim got the message, and false if another reader was first."""


@runtime_checkable
class Asking(Protocol):
    """Interface of a puppet (a small client for tests) whose protocol has HTTP requests in addition to messages."""

    async def ask(self, method: str, path: str, form: Json | None = None) -> Json:
        """Make an HTTP request and return the answer."""


_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class Agent:
    """One agent of the demo: carries out orders, and listens for messages at the same time."""

    def __init__(self) -> None:
        self._puppet: Puppet | None = None
        # True if messages stay unacknowledged.
        self._holding = False
        self._last: Heard | None = None
        # Kept, because the event loop does not keep a task from garbage collection.
        self._listening: asyncio.Task[None] | None = None

    async def obey(self, order: Order) -> Any:
        """Carry out an order and return its result, which is sent back to the process that gave the order."""
        match order:
            case Join(protocol=protocol, place=place):
                self._puppet = named(protocol).puppet()(place)
                await self._puppet.open()
                self._listening = asyncio.create_task(self._listen(self._puppet))
                return None
            case Hold():
                self._holding = True
                return None
            case Say(target=target, body=body, urgent=urgent):
                assert self._puppet is not None, "it joined first"
                return await self._puppet.say(target, body, urgent=urgent)
            case Race():
                assert isinstance(self._puppet, Claiming), "no other protocol has it"
                assert self._last is not None, "something was heard"
                takes = [self._puppet.take(self._last) for _ in range(2)]
                self._holding = False
                return await asyncio.gather(*takes)
            case Ask(method=method, path=path, form=form):
                assert isinstance(self._puppet, Asking), "no other protocol has it"
                return await self._puppet.ask(method, path, form)

    async def _listen(self, puppet: Puppet) -> None:
        while True:
            heard = self._last = await puppet.hear()
            holding = self._holding
            tell(News(heard.sender, heard.body, heard.urgent))
            if not holding:
                await puppet.acknowledge(heard)


def tell(report: Report) -> None:
    """Write a report as one line of JSON on stdout, for the process that started this agent."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    """Read orders from stdin and carry them out, until stdin ends."""
    agent = Agent()
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        order = _orders.decode(line)
        try:
            tell(Done(order.n, await agent.obey(order)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the play's verdict has it
            tell(Done(order.n, failed=f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    asyncio.run(main())
