"""Tools for agents, under the names that backchannel uses, such as `bch_send`. Some agents know only these names."""

from typing import Literal

from tieline.contract.message import Priority
from tieline.contract.scope import matches
from tieline.protocols.mcp.tools.lean import full_target, members
from tieline.protocols.mcp.tools.tool import Answer, Arguments, Nothing, Tool, ToolContext, claim_some, held_note
from tieline.wire.prefix_ids import from_prefix_id

_TAKEN_MAX = 100  # more would fill an agent's context


class Send(Arguments, frozen=True):
    """Arguments of `bch_send`."""

    target: str
    body: str
    priority: Literal["normal", "urgent"] = "normal"
    scope: str = ""
    thread: str = ""
    refs: tuple[str, ...] = ()


async def send(context: ToolContext, asked: Send) -> Answer:
    """Send a message."""
    accepted = await context.client.send(
        full_target(asked.target),
        asked.body,
        priority=Priority(asked.priority),
        scope=asked.scope or None,
        thread=from_prefix_id(asked.thread) or None,
        refs=asked.refs,
        wire_id=context.wire_id,
    )
    return Answer(f"sent {accepted.id} to {asked.target}{held_note(accepted)}")


class Inbox(Arguments, frozen=True):
    """Arguments of `bch_inbox`."""

    match: str = ""


async def inbox(context: ToolContext, asked: Inbox) -> Answer:
    """Claim the waiting messages and return them as text."""
    takes = (lambda scope: matches(scope, asked.match)) if asked.match else context.takes
    taken, waiting = await claim_some(context, _TAKEN_MAX, takes)
    if not taken:
        return Answer("inbox empty")
    more = [waiting] if waiting else []
    return Answer("\n".join([*(context.frame(item.message) for item in taken), *more]))


class Subscribe(Arguments, frozen=True):
    """Arguments of `bch_subscribe`."""

    channel: str


async def subscribe(context: ToolContext, asked: Subscribe) -> Answer:
    """Join a channel."""
    name = asked.channel.removeprefix("#")
    await context.client.subscribe(name)
    return Answer(f"subscribed to #{name}")


TOOLS: tuple[Tool, ...] = (
    Tool("bch_send", "Send a message to an agent (@name) or a channel (#name).", Send, send),
    Tool("bch_inbox", "Read and claim your unread messages.", Inbox, inbox),
    Tool("bch_agents", "List the agents.", Nothing, members),
    Tool("bch_subscribe", "Subscribe to a channel.", Subscribe, subscribe),
)
