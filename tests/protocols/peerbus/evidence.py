"""Test helpers that check messages of peerbus through the hub's own interfaces: audit chain and receipts."""

import asyncio
import json

from tests.protocols.peerbus.peers import (
    Bus,
)
from tests.server.hubs import WAIT_SECONDS
from tieline.client import Client


async def refusals(operator: Client, *expected: str) -> None:
    """Wait until the audit chain has exactly these refusals of sends, by code."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            rows = [json.loads(row.event) for row in (await operator.read_log("main", 0, 10_000)).rows]
            found = sorted(row["code"] for row in rows if row["event"] == "refuse" and row["what"] == "Send")
            if found == sorted(expected):
                return


async def receipts(hub: Bus, wire_id: str) -> dict[str, tuple[str, str]]:
    """Return the state and the last evidence of each delivery of a message, by recipient."""
    operator = await hub.operator()
    (message,) = [one for one in await operator.history(limit=1000) if one.wire_id == wire_id]
    found = await operator.receipts(message.id)
    return {receipt.member: (receipt.state, receipt.steps[-1].evidence) for receipt in found}
