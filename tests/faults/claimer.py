"""Process that races with others to claim one member's deliveries: `python -m tests.faults.claimer SEED HOME URL`.

With an empty URL it uses the hub's socket. It prints `ready`, waits for a line, claims as many deliveries as it can,
and prints the ids of their messages.
"""

import asyncio
import json
import random
import sys
from pathlib import Path

from tieline.client import Client, connect

PIPELINE = 50


async def claim_all(client: Client, chance: random.Random) -> list[str]:
    """Claim every unsettled message in a random order. Return the ids of the successful claims."""
    page = await client.inbox(limit=10_000)
    ids = [item.message.id for item in page.items]
    chance.shuffle(ids)
    won: list[str] = []
    for start in range(0, len(ids), PIPELINE):
        items = await asyncio.gather(*(client.claim(each) for each in ids[start : start + PIPELINE]))
        won += [item.message.id for item in items if item is not None]
    return won


async def main(seed: str, home: str, url: str) -> None:
    """Connect, wait for a line, claim all messages in a random order, and print the ids of the successful claims."""
    token = sys.stdin.readline().strip()
    client = await connect(token=token, url=url or None, home=None if url else Path(home))
    async with client:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        won = await claim_all(client, random.Random(int(seed)))
    sys.stdout.write(json.dumps(won) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
