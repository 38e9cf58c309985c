"""Puppet (scripted client) of the toy protocol."""

import asyncio

from tieline.wire.puppet import ANSWER_SECONDS, Heard, NotSpoken, Puppet

from . import codec


class ToyPuppet(Puppet):
    """Puppet (scripted client): one connection to the toy protocol's socket."""

    protocol = "toy"

    async def open(self) -> None:
        path = self.place.places.get("toy_socket")
        if path is None:
            raise NotSpoken(self.protocol)
        self._reader, self._writer = await asyncio.open_unix_connection(path, limit=1 << 24)
        self._writer.write(codec.encode(codec.Hello(self.place.name, self.place.token)))
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = codec.decode_hub(await self._reader.readline())
        assert answer == codec.Welcome(), answer

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        del urgent
        self._writer.write(codec.encode(codec.Say(target, body)))
        await self._writer.drain()

    async def hear(self) -> Heard:
        given = codec.decode_hub(await self._reader.readline())
        assert isinstance(given, codec.Given), given
        return Heard(given.sender, given.body, urgent=False, delivery=given.key)

    async def acknowledge(self, heard: Heard) -> None:
        self._writer.write(codec.encode(codec.Ack(heard.delivery)))
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
