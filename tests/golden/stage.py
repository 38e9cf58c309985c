"""A real hub for a golden conversation: on a clock of its own, with names for all that its machine brings in."""

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

ALONE: dict[str, Any] = dict.fromkeys(
    ("agent_channels", "agent_relay", "backchannel", "peerbus", "ac7", "mcp", "adopt"), False
)
"""A hub that speaks its own protocol only."""

_ROUNDS = 3
"""An answer may have the hub do something more, and that again; then it writes to its disk."""


class Stage:
    """A hub, and the transcript of the conversation with it."""

    def __init__(self, there: HubHarness, recorder: Recorder) -> None:
        self.there = there
        self.recorder = recorder
        # Hangs up on everything that is still open.
        self.closing = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """The HTTP port."""
        return self.there.running.http

    async def turn(self, seconds: int = 1) -> None:
        """Wait until the hub is idle, move the clock, and wait until the hub has done the work that is due."""
        await self.settle()
        for _ in range(seconds):
            self.recorder.clock.step()
            await self.settle()

    async def settle(self) -> None:
        """Wait until the hub has nothing to do."""
        local_hub: Hub | None = self.there.hub.local_hub
        assert local_hub is not None, "it runs"
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(_ROUNDS):
                assert await local_hub.ask(Tick()) is not None, "it has done its chores, and all that was asked before"


@contextlib.asynccontextmanager
async def stage(
    folder: Path, recorder: Recorder, configuration: str = "", *, store: str = "sqlite:unsafe", **options: Any
) -> AsyncIterator[Stage]:
    """A hub with this configuration."""
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
