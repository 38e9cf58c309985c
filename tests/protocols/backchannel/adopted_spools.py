"""Test helper: a spool that a hub has adopted, with local agents that know nothing of the hub."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.protocols.backchannel.raw import Raw
from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub, until
from tieline.client import Client, connect

ROOT = Path(__file__).resolve().parents[3]
ROOM = "the room's token"

Condition = Callable[[], Awaitable[bool]]


async def eventually(condition: Condition) -> None:
    """Wait until an async function returns true. Fail after a deadline."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


class AdoptedSpool:
    """Test helper: a hub with its adopted spool.

    Bob and ben use the hub's own protocol; lea and lou are local agents.
    """

    def __init__(self, there: HubHarness, raw: Raw) -> None:
        self.there = there
        self.raw = raw

    async def local(self, name: str, *channels: str) -> None:
        """Make a local agent in the spool, and wait until the hub knows it."""
        self.raw.init(name, *channels)
        await self.known(name)

    async def known(self, name: str) -> None:
        operator = await self.there.operator()

        async def is_there() -> bool:
            return any(member.name == name and "spool" in member.sessions for member in await operator.members())

        await eventually(is_there)

    async def join(self, name: str, *, receive: bool = True) -> Client:
        """Make a member with a token, wait until the spool has its record, and open a session of it."""
        await self.there.add(name)
        await until(lambda: self.raw.record(name) is not None)
        return await self.there.join(name, receive=receive)

    async def as_local(self, name: str, *, receive: bool = False) -> Client:
        """Open a session of a local agent in the hub's own protocol, with the key of the home."""
        return self.there.keep(await connect(home=self.there.home, member=name, receive=receive))

    async def unread(self, name: str, *expected: str) -> None:
        """Wait until the unread messages of an agent in the spool have exactly these bodies."""

        def there() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return sorted(message["body"] for message in self.raw.inbox(name)) == sorted(expected)
            return False

        await until(there)

    async def state(self, client: Client, message_id: str, member: str, state: str) -> Any:
        """Wait until a member's delivery of a message has this state. Return its last step (state with evidence)."""
        found: list[Any] = []

        async def is_so() -> bool:
            receipts = await client.receipts(message_id)
            found.extend(each.steps[-1] for each in receipts if each.member == member and each.state == state)
            return bool(found)

        await eventually(is_so)
        return found[-1]

    async def history(self, name: str, peer: str | None = None) -> list[Any]:
        """Return the messages that a local agent can read, newest first, with one member (`peer`) or with all."""
        client = await self.as_local(name)
        return list(await client.history(peer=peer))

    def quiet(self) -> bool:
        """Return true if the hub has no unfinished work in the spool."""
        folders = (self.raw.root / "spool").glob("*/hub")
        names = {path.name for folder in folders for path in folder.iterdir()}
        return names <= {"mailbox.json", "placed"}


@contextlib.asynccontextmanager
async def adopted_spool(home: Path, **options: Any) -> AsyncIterator[AdoptedSpool]:
    raw = Raw(home / "spool-home")
    home.mkdir(exist_ok=True)
    if not (home / "tieline.toml").exists():
        (home / "tieline.toml").write_text(f'[backchannel]\nroom_token = "{ROOM}"\n')
    async with running_hub(home, **options) as there:
        yield AdoptedSpool(there, raw)


async def process(raw: Raw, *args: str) -> Any:
    """Run a command of the foreign program `raw` in its own process. Return its decoded result."""
    command = (sys.executable, "-m", "tests.protocols.backchannel.raw", str(raw.root), *args)
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
