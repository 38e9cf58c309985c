"""The traffic that a client puts on a server. Each client module has `open_traffic(plan, stack)`, which returns one."""

import asyncio

from msgspec import Struct


class Times(Struct, frozen=True):
    """Seconds from the start of a send until its answer, and until its recipient had the message.

    `answered` is zero if nothing answers, or if the answer is the recipient's.
    """

    answered: float
    delivered: float


class Traffic:
    """Senders and recipients that are connected and wait for work."""

    async def prepare(self, messages: int) -> None:
        """Do what `run` needs and what is not measured."""

    async def run(self, messages: int) -> None:
        """Send this many messages in all; returns when they are accepted, received and acknowledged."""
        raise NotImplementedError

    async def one(self) -> Times:
        """Send one message, and wait until its recipient has it."""
        raise NotImplementedError

    async def check(self) -> None:
        """Raise unless the server knows that everything was acknowledged."""


class Meter:
    """Counts deliveries up to the expected number."""

    def __init__(self) -> None:
        self._left = 0
        self._done = asyncio.Event()

    def expect(self, deliveries: int) -> None:
        """Set the expected number, and start to count."""
        self._left = deliveries
        self._done.clear()

    def count(self, deliveries: int = 1) -> None:
        """Count received deliveries."""
        self._left -= deliveries
        if self._left <= 0:
            self._done.set()

    async def wait(self) -> None:
        """Wait for the last delivery."""
        await self._done.wait()
        assert self._left == 0, f"{-self._left} more deliveries than were sent"
