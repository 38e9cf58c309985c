"""Test helpers for a program under `tieline run`: shell commands that send messages, and checks of the results."""

import asyncio
import shlex

from tests.cli.hub_process import HubProcess
from tieline.client import Message, ReceiptView


def bash(script: str) -> list[str]:
    return ["--", "bash", "--norc", "--noprofile", "-c", script]


def fence(target: str, body: str, tags: str = "") -> str:
    """Return a shell command that prints an instruction to send a message.

    `tieline run` finds such text and sends it.
    """
    return f"printf '%s\\n' {shlex.quote(f'->relay:{target} {tags}<<<')} {shlex.quote(f'{body}>>>')}"


def waiting(hub: HubProcess, member: str) -> list[Message]:
    """Return the messages that wait for a member."""

    async def look() -> list[Message]:
        async with await hub.connect(member) as client:
            return [item.message for item in (await client.inbox(limit=1000)).items]

    return asyncio.run(look())


def bodies(hub: HubProcess, member: str) -> list[str]:
    return [message.body for message in waiting(hub, member)]


def receipt(hub: HubProcess, sender: str, message_id: str) -> ReceiptView:
    async def ask() -> ReceiptView:
        async with await hub.connect(sender) as client:
            (found,) = await client.receipts(message_id)
            return found

    return asyncio.run(ask())


def evidence(hub: HubProcess, sender: str, message_id: str) -> list[tuple[str, str]]:
    """Return the states `seen` and `acked` of a message to one recipient, each with its evidence."""
    steps = receipt(hub, sender, message_id).steps
    return [(step.state, step.evidence) for step in steps if step.state in ("seen", "acked")]
