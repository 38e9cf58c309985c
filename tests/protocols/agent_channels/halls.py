"""Test helper: a running channel with the log of its events, and clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.protocols.agent_channels.sockets import Log, Peer
from tieline.protocols.agent_channels.channel import Channel

MIB = 1024 * 1024


@asynccontextmanager
async def running(channel: Channel) -> AsyncIterator[tuple[Channel, Log]]:
    """Start a channel, yield it with the log of its events, and stop it at the end."""
    log = Log(channel)
    await channel.start()
    try:
        yield channel, log
    finally:
        await channel.stop()


async def join(channel: Channel, log: Log, count: int) -> list[Peer]:
    """Connect `count` clients one after the other, so that their ids are known. Return them."""
    peers = []
    for _ in range(count):
        before = channel.client_count
        peers.append(await Peer.unix(channel.path))
        await log.until(lambda before=before: channel.client_count == before + 1)  # type: ignore[misc]
    return peers


Hall = tuple[Channel, Log, list[Peer]]
