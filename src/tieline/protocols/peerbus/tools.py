"""Tools for agents, under the names that peerbus uses, such as `bus.send`. They answer in JSON, as in peerbus."""

from typing import Any

import msgspec

from tieline.protocols.mcp.framing import shortened
from tieline.protocols.mcp.tools.tool import Answer, Arguments, Nothing, Tool, ToolContext, claim_some, json_answer
from tieline.wire.native.frames import Message

_TEXT_KEYS = ("text", "message", "content")
_TAKEN_MAX = 100
_DATA_CHARS_MAX = 4_096
"""Most bytes, as JSON, of a message's data in the answer of a tool.

Longer data is left out, and the answer says how long it is.
"""


class Send(Arguments, frozen=True):
    """Arguments of `bus.send`."""

    to: str
    body: Any


class Broadcast(Arguments, frozen=True):
    """Arguments of `bus.broadcast`."""

    body: Any


async def send(context: ToolContext, asked: Send) -> Answer:
    """Send a message to one peer."""
    to = asked.to.removeprefix("@")
    return await _say(context, "*" if to == "*" else f"@{to}", asked.body)


async def broadcast(context: ToolContext, asked: Broadcast) -> Answer:
    """Send a message to every peer."""
    return await _say(context, "*", asked.body)


async def _say(context: ToolContext, target: str, body: Any) -> Answer:
    text, data = _spoken(body)
    accepted = await context.client.send(target, text, data=data, wire_id=context.wire_id)
    return json_answer({"id": accepted.id})


def _spoken(body: Any) -> tuple[str, dict[str, Any] | None]:
    """Convert a body (any JSON value) for a message of the hub. Return its text, and its data if it has more than text.

    The hub converts the body of an envelope in the same way.
    """
    if isinstance(body, str):
        return body, None
    if isinstance(body, dict):
        key = next((key for key in _TEXT_KEYS if isinstance(body.get(key), str) and body[key]), None)
        if key is not None:
            return body[key], {name: value for name, value in body.items() if name != key} or None
    return msgspec.json.encode(body).decode(), body if isinstance(body, dict) and body else None


async def peers(context: ToolContext, _asked: Nothing) -> Answer:
    """List the connected peers."""
    found = await context.client.members()
    return json_answer(
        {"self": context.member, "peers": [one.name for one in found if one.sessions and one.name != context.member]}
    )


async def drain(context: ToolContext, _asked: Nothing) -> Answer:
    """Claim the waiting messages and return them."""
    taken, _ = await claim_some(context, _TAKEN_MAX, told=lambda message: json_answer(_told(message), taken=True).text)
    context.shown.extend(item.message.id for item in taken)
    said = [_told(item.message) for item in taken]
    return json_answer({"messages": said}, taken=True)


def _told(message: Message) -> dict[str, Any]:
    told = {
        "id": message.id,
        "from": message.sender,
        "source": message.protocol,
        "body": shortened(message.body),
    }
    if not message.data:
        return told
    chars = len(msgspec.json.encode(message.data))
    return {**told, "data": message.data} if chars <= _DATA_CHARS_MAX else {**told, "data_left_out": chars}


TOOLS: tuple[Tool, ...] = (
    Tool("bus.send", "Send a message to one peer.", Send, send),
    Tool("bus.broadcast", "Send a message to every peer.", Broadcast, broadcast),
    Tool("bus.peers", "List the peers that are connected.", Nothing, peers),
    Tool("bus.drain", "Take the messages that wait.", Nothing, drain),
)
