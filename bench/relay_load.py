"""agent-relay through its real SDK, which is JavaScript: `bench/peers/relay_load.mjs` does the work in Node."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.plan import BODY, Plan
from bench.processes import NODE, PEERS
from bench.traffic import Times, Traffic
from tieline.wire.home import read_running

_LINE_BYTES_MAX = 2**20


class SdkTraffic(Traffic):
    """Commands for the script, each answered by one line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, **command: Any) -> Any:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None, "made with a pipe"
        assert self._process.stdout is not None, "made with a pipe"
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        answer = await self._process.stdout.readline()
        assert answer, "the script has ended; its errors are above"
        return json.loads(answer)

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        await self.ask(run=messages)

    async def one(self) -> Times:
        """Send a message that blocks until its recipient's answer."""
        return Times(0.0, (await self.ask(one=True))["seconds"])


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Start the script, and connect all senders and recipients."""
    path = plan.address
    if plan.is_hub:
        running = read_running(Path(plan.home))
        assert running is not None, "the hub runs"
        path = str(running.places["relay_socket"])
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(PEERS / "relay_load.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )

    async def end() -> None:
        assert process.stdin is not None, "made with a pipe"
        process.stdin.close()
        await process.wait()

    stack.push_async_callback(end)
    traffic = SdkTraffic(process)
    await traffic.ask(open=path, name=plan.name, pairs=plan.senders, window=plan.window, body=BODY)
    return traffic
