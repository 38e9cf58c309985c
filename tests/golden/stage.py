"""Test helper that runs a real hub for a golden test (comparison with a recorded conversation), on a fake clock.

The transcript shows names in place of the machine's paths and ports.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.golden.recorder import Recorder
from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub
from tieline.contract.command import Tick
from tieline.contract.hub import Hub

_CONFIGURATION = """
[console]
owner = "owner"

[limits]
lazy_commit_ms = 0
"""

_ROUNDS = 3
"""Number of times that the hub must finish its work before it counts as idle, because an answer can cause more work."""


class Stage:
    """Test helper: a running hub, and the recorder of the conversation with it."""

    def __init__(self, there: HubHarness, recorder: Recorder) -> None:
        self.there = there
        self.recorder = recorder
        # Hangs up on everything that is still open.
        self.closing = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """Return the address of the HTTP port."""
        return self.there.running.http

    async def turn(self, seconds: int = 1) -> None:
        """Wait until the hub is idle.

        Then move the clock by `seconds`, and wait until the hub has done the work that is due.
        """
        await self.settle()
        for _ in range(seconds):
            self.recorder.clock.step()
            await self.settle()

    async def settle(self) -> None:
        """Wait until the hub has done all work that is due."""
        local_hub: Hub | None = self.there.hub.local_hub
        assert local_hub is not None, "it runs"
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(_ROUNDS):
                assert await local_hub.ask(Tick()) is not None, "it has done its chores, and all that was asked before"


@contextlib.asynccontextmanager
async def stage(
    folder: Path, recorder: Recorder, configuration: str = "", *, store: str = "sqlite:unsafe", **options: Any
) -> AsyncIterator[Stage]:
    """Start a hub with this configuration and these options, and yield it with its recorder."""
    home = folder / "home"
    home.mkdir(mode=0o700, parents=True)
    (home / "tieline.toml").write_text(_CONFIGURATION + configuration)
    async with running_hub(home, store=store, **options) as there:
        port = urlsplit(there.running.http).port
        recorder.know(str(home), "home")
        recorder.know(f"127.0.0.1:{port}", "http")
        made = Stage(there, recorder)
        async with made.closing:
            yield made
