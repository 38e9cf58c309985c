"""One agent of the demo, as a process: it does what it is told on stdin and tells on stdout what it hears.

Above: `stage`, which starts it and may kill it. Below: a puppet of its protocol, the agent's one way to the hub. It
ends when its stdin does, so that it never outlives whoever started it.
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
    """Connect by a protocol."""

    n: int
    protocol: str
    place: Place


class Say(Struct, frozen=True, tag="say", tag_field="do"):
    """Say something."""

    n: int
    target: str
    body: str
    urgent: bool = False


class Hold(Struct, frozen=True, tag="hold", tag_field="do"):
    """From now on, acknowledge nothing that is heard."""

    n: int


class Race(Struct, frozen=True, tag="race", tag_field="do"):
    """Take the message heard last twice at once, and tell which of the two got it, by a protocol that has claims."""

    n: int


class Ask(Struct, frozen=True, tag="ask", tag_field="do"):
    """Make a request that is no message, by a protocol that has such."""

    n: int
    method: str
    path: str
    form: Json


Order = Join | Say | Hold | Race | Ask


class Done(Struct, frozen=True, tag="done", tag_field="tells"):
    """An order was carried out, or not and why."""

    n: int
    value: Any = None
    failed: str = ""


class News(Struct, frozen=True, tag="news", tag_field="tells"):
    """A message came."""

    sender: str
    body: str
    urgent: bool


Report = Done | News


@runtime_checkable
class Claiming(Protocol):
    """A puppet of a protocol that has claims."""

    async def take(self, heard: Heard) -> bool:
        """Take a message; false when somebody else was first."""


@runtime_checkable
class Asking(Protocol):
    """A puppet of a protocol that has requests beside messages."""

    async def ask(self, method: str, path: str, form: Json | None = None) -> Json:
        """Make a request."""


_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class Agent:
    """Carries out orders, and listens meanwhile."""

    def __init__(self) -> None:
        self._puppet: Puppet | None = None
        # Whether what is heard stays unacknowledged.
        self._holding = False
        self._last: Heard | None = None
        # Kept, because the loop itself would let a task be collected.
        self._listening: asyncio.Task[None] | None = None

    async def obey(self, order: Order) -> Any:
        """Carry out an order; what is returned goes back to whoever gave it."""
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
    """One line on stdout."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    """Obey until there are no more orders."""
    agent = Agent()
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        order = _orders.decode(line)
        try:
            tell(Done(order.n, await agent.obey(order)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the play's verdict has it
            tell(Done(order.n, failed=f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    asyncio.run(main())
