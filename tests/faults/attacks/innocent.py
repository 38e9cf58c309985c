"""Process with an innocent session, which an attack must not slow down: `python -m tests.faults.attacks.innocent HOME`.

The member `ann` sends to `bob`, one message after the other, and waits for each acknowledgement. It runs in another
process than the attacker, so that only the hub makes it wait. It prints a line when it is ready. For each line on its
standard input, it prints its waiting times since the last line. It ends when its standard input ends.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from tieline.client import Client, connect

SENDER, RECIPIENT = "ann", "bob"
READY = "ready"
PACE_SECONDS = 0.002
"""Pause between two messages, so that this session does not flood the hub itself."""


async def _acknowledge(recipient: Client) -> None:
    async for delivery in recipient.deliveries():
        recipient.ack(delivery)


async def _send(sender: Client, body: str) -> None:
    """Send a message and wait until it is acknowledged."""
    sent = await sender.send(f"@{RECIPIENT}", body)
    receipts = await sender.follow(sent.id)
    if all(receipt.state == "acked" for receipt in receipts):
        return
    async for step in sender.progress():
        if step.id == sent.id and step.state == "acked":
            return


class _Talk:
    """Test helper: collects waiting times, and prints a summary when a line comes on standard input."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._asked = asyncio.Queue[None]()
        self.ended = False
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._listen)

    def _listen(self) -> None:
        if os.read(sys.stdin.fileno(), 1):
            self._asked.put_nowait(None)
        else:
            self.ended = True
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def add(self, seconds: float) -> None:
        """Add a waiting time. Print the summary of all waiting times if a line came on standard input."""
        self._waits.append(seconds)
        if not self._asked.empty():
            self._asked.get_nowait()
            waits, self._waits = sorted(self._waits), []
            middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
            _say(json.dumps({"count": len(waits), "p50": middle, "p99": late}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(home: Path) -> None:
    """Send messages from `ann` to `bob` until standard input ends."""
    async with (
        await connect(home=home, member=SENDER) as sender,
        await connect(home=home, member=RECIPIENT, receive=True) as recipient,
    ):
        acknowledging = asyncio.create_task(_acknowledge(recipient))
        await _send(sender, "the first")
        talk = _Talk()
        _say(READY)
        while not talk.ended:
            started = time.perf_counter()
            await _send(sender, "another")
            talk.add(time.perf_counter() - started)
            await asyncio.sleep(PACE_SECONDS)
        acknowledging.cancel()
        await asyncio.gather(acknowledging, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
