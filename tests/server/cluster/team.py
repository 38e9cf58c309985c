"""Test helpers: several hubs of one team, each a process with a home of its own, on one database."""

import asyncio
import contextlib
import json
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.faults.processes import HubProcess
from tieline.client import Client, Disconnected, HubError, connect
from tieline.wire.home import KEY_FILE, Running

WAIT_SECONDS = 30


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TeamHub(HubProcess):
    """Test helper: a process of `tieline serve` that is one of several hubs of a team."""

    def __init__(self, home: Path, store: str, *arguments: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        super().__init__(home, f"127.0.0.1:{free_port()}", ("--store", store, "--cluster", self.address, *arguments))
        self.running: Running | None = None

    async def start(self) -> Running:
        """Start the hub, and wait until it leads or follows."""
        self.running = await super().start()
        return self.running

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self.running is not None, "started before"
        return self.running.pid

    @property
    def url(self) -> str:
        """The address of the HTTP port."""
        return f"http://{self.http}"

    def health(self) -> dict[str, Any]:
        """Return what `/healthz` says; empty if the hub does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return dict(json.load(error))
        except OSError:
            return {}

    async def until_role(self, role: str, status: str = "ok") -> dict[str, Any]:
        """Wait until the hub has this role and this status. Return what `/healthz` says."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            said = await asyncio.to_thread(self.health)
            if (said.get("role"), said.get("status")) == (role, status):
                return said
            assert time.monotonic() < deadline, (said, self.log.read_text(errors="replace")[-3000:])
            await asyncio.sleep(0.05)


class Team:
    """Test helper: hubs of one team, and the tokens of its members."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        # The URL of the database for the next hub.
        self.store = store
        self.hubs: list[TeamHub] = []
        self.tokens: dict[str, str] = {}

    async def add_hub(self, *arguments: str) -> TeamHub:
        """Start another hub. It has the key of the first one."""
        home = self._folder / f"hub{len(self.hubs) + 1}"
        if self.hubs:
            home.mkdir(mode=0o700)
            shutil.copy2(self.hubs[0].home / KEY_FILE, home)
        hub = TeamHub(home, self.store, *arguments)
        self.hubs.append(hub)
        await hub.start()
        return hub

    async def add_members(self, *names: str) -> None:
        """Make members by the first hub."""
        async with await connect(home=self.hubs[0].home) as operator:
            for name in names:
                self.tokens[name] = (await operator.add_member(name, permissions=())).token

    async def join(self, hub: TeamHub, name: str, *, receive: bool = False) -> Client:
        """Open a session of a member at a hub, as soon as the hub lets it in."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return await connect(token=self.tokens[name], url=hub.url, receive=receive)
            except (HubError, OSError):
                assert time.monotonic() < deadline, hub.log.read_text(errors="replace")[-3000:]
                await asyncio.sleep(0.05)

    async def send(self, hub: TeamHub, name: str, target: str, body: str) -> float:
        """Send a message by a new session, again and again until it is accepted. Return the seconds that this took."""
        started = time.monotonic()
        while True:
            try:
                async with await self.join(hub, name) as client:
                    await client.send(target, body)
                    return time.monotonic() - started
            except (HubError, Disconnected):
                assert time.monotonic() < started + WAIT_SECONDS, hub.log.read_text(errors="replace")[-3000:]
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def team_of(folder: Path, store: str, count: int) -> AsyncIterator[Team]:
    """Start a team with `count` hubs, of which the first one leads. Kill all at the end."""
    team = Team(folder, store)
    try:
        for _ in range(count):
            await team.add_hub()
        yield team
    finally:
        for hub in team.hubs:
            hub.kill()
