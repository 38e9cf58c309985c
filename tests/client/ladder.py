"""Test helpers that get the state of a message, as its sender sees it."""

import asyncio

from tieline.client import Client


async def state_of(client: Client, message_id: str) -> str:
    """Return the state of a message that has one recipient."""
    (receipt,) = await client.receipts(message_id)
    return receipt.state


async def reached(client: Client, message_id: str, state: str) -> None:
    """Wait until a message that has one recipient is in this state."""
    async with asyncio.timeout(10):
        while await state_of(client, message_id) != state:
            pass
