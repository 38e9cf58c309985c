"""backchannel's own tools, for agents that were taught those names."""

from typing import Literal

from tieline.agents.tools.lean import full_target, members
from tieline.agents.tools.tool import Answer, Arguments, Nothing, Tool, ToolContext, claim_some, held_note
from tieline.contract.message import Priority
from tieline.contract.scope import matches

_TAKEN_MAX = 100  # more would fill an agent's context


class Send(Arguments, frozen=True):
    """What `bch_send` takes."""

    target: str
    body: str
    priority: Literal["normal", "urgent"] = "normal"
    scope: str = ""
    thread: str = ""
    refs: tuple[str, ...] = ()


async def send(context: ToolContext, asked: Send) -> Answer:
    """Say something."""
    accepted = await context.client.send(
        full_target(asked.target),
        asked.body,
        priority=Priority(asked.priority),
        scope=asked.scope or None,
        thread=asked.thread or None,
        refs=asked.refs,
        wire_id=context.wire_id,
    )
    return Answer(f"sent {accepted.id} to {asked.target}{held_note(accepted)}")


class Inbox(Arguments, frozen=True):
    """What `bch_inbox` takes."""

    match: str = ""


async def inbox(context: ToolContext, asked: Inbox) -> Answer:
    """Take what waits."""
    takes = (lambda scope: matches(scope, asked.match)) if asked.match else context.takes
    taken, waiting = await claim_some(context, _TAKEN_MAX, takes)
    if not taken:
        return Answer("inbox empty")
    more = [waiting] if waiting else []
    return Answer("\n".join([*(context.frame(item.message) for item in taken), *more]))


class Subscribe(Arguments, frozen=True):
    """What `bch_subscribe` takes."""

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
