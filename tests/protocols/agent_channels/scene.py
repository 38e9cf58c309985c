"""Test helper: a running hub with its folder of sockets, and raw clients of these sockets."""

import asyncio
import json
from pathlib import Path

from tests.protocols.agent_channels.sockets import Peer
from tests.server.hubs import HubHarness, until
from tieline.client import Client
from tieline.protocols.agent_channels.posts import PROTOCOL
from tieline.protocols.agent_channels.server import ChannelsServer


class Scene(HubHarness):
    """Test helper: a running hub with its folder of sockets."""

    peers: list[Peer]

    @property
    def sockets(self) -> Path:
        assert self.running.places["channels_dir"] is not None
        return Path(self.running.places["channels_dir"])

    def group(self) -> list[str]:
        """Return the names in `group.json`."""
        return [entry["name"] for entry in json.loads((self.sockets / "group.json").read_bytes())["channels"]]

    async def dial(self, name: str) -> Peer:
        """Connect to a socket of the folder. Wait first until it exists."""
        await until((self.sockets / f"{name}.sock").exists)
        peer = await Peer.unix(self.sockets / f"{name}.sock")
        self.peers.append(peer)
        return peer

    async def listener(self, member: str) -> Peer:
        """Connect to a member's inbox and wait until the hub opens a session for this listener."""
        before = await self.listeners(member)
        peer = await self.dial(f"inbox-{member}")
        async with asyncio.timeout(10):
            while await self.listeners(member) == before:
                pass
        return peer

    async def listeners(self, member: str) -> int:
        """Return the number of sessions of listeners at a member's inbox."""
        members = {view.name: view for view in await self.operator_client.members()}
        return members[member].sessions.count("agent-channels")

    operator_client: Client

    @property
    def server(self) -> ChannelsServer:
        """Return the hub's server of these sockets."""
        found = self.hub.servers[PROTOCOL]
        assert isinstance(found, ChannelsServer)
        return found

    async def listening(self, member: str) -> Peer:
        """Connect to a member's inbox and stay silent until the hub treats the client as a listener."""
        clients = self.server._places[f"inbox-{member}"]._clients
        before = set(clients)
        peer = await self.dial(f"inbox-{member}")
        await until(lambda: any(client.listens for name, client in clients.items() if name not in before))
        return peer


async def open_scene(built: HubHarness) -> Scene:
    made = Scene(built.home, built.hub, built.running)
    made._clients = built._clients
    made.peers = []
    made.operator_client = await made.operator()
    return made
