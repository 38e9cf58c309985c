"""The nine default tools. Their descriptions are short, because a model reads all descriptions before every turn."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

from msgspec import Meta

from tieline.contract.identifiers import GENERAL, MessageId
from tieline.contract.message import Level, Priority
from tieline.contract.objective import AnyChange, Block, Cancel, Complete, Status, Unblock, Watch, kind_of
from tieline.contract.objective import Reassign as ReassignChange
from tieline.protocols.mcp.framing import age, attribute
from tieline.protocols.mcp.open_objectives import Open
from tieline.protocols.mcp.tools.tool import (
    Answer,
    Arguments,
    Nothing,
    Tool,
    ToolContext,
    claim_some,
    fail,
    fit,
    held_note,
    lines_answer,
    list_open,
    plain_text,
)
from tieline.wire.native.frames import (
    ChannelView,
    Item,
    MemberView,
    Message,
    ObjectiveEventView,
    ObjectiveView,
    ReceiptView,
)
from tieline.wire.prefix_ids import from_prefix_id

_WAIT_SECONDS_MAX = 600  # an agent that waits longer should end its turn
_START_CHARS = 100  # enough to choose, and never a whole document
_HISTORY_MAX = 100  # more would fill an agent's context
_LIST_MAX = 500  # more lines would fill an agent's context
_EVENTS_MAX = 50  # the newest events; a whole long log would fill an agent's context


class Send(Arguments, frozen=True):
    """Arguments of the tool `send`: the target, the message, and the message that it answers, if any."""

    to: Annotated[str, Meta(description="@name, #channel, * (everybody) or obj:<id>")]
    body: str
    reply_to: Annotated[str, Meta(description="msg_id that this answers")] = ""
    title: str = ""
    level: Literal["debug", "info", "notice", "warning", "error", "critical"] = "info"
    urgent: bool = False


async def send(context: ToolContext, asked: Send) -> Answer:
    """Send a message. The answer has its id and the number of recipients."""
    # The agent may have the id from the command line, which prints prefix ids.
    reply_to = MessageId(from_prefix_id(asked.reply_to)) if asked.reply_to else None
    if reply_to:
        context.named.append(reply_to)
    accepted = await context.client.send(
        await _place(context, asked.to),
        asked.body,
        title=asked.title or None,
        level=Level(asked.level),
        priority=Priority.URGENT if asked.urgent else Priority.NORMAL,
        reply_to=reply_to,
        wire_id=context.wire_id,
    )
    recipients = "1 recipient" if accepted.recipients == 1 else f"{accepted.recipients} recipients"
    return Answer(f"accepted {accepted.id} for {recipients}{held_note(accepted)}")


async def _place(context: ToolContext, text: str) -> str:
    """Return the target that an agent wrote in the hub's notation. An agent may also write a channel as `chan:<id>`."""
    if not text.startswith("chan:"):
        return full_target(text)
    return f"#{(await context.client.channel(text.removeprefix('chan:'))).name}"


def full_target(text: str) -> str:
    """Return a target in the hub's notation. A name without a prefix (`@`, `#`, `*` or `obj:`) becomes `@name`."""
    return text if not text or text[0] in "@#*" or text.startswith("obj:") else f"@{text}"


class Drain(Arguments, frozen=True):
    """Arguments of the tool `drain`: the largest number of messages to take, and the time to wait for the first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    wait: Annotated[int, Meta(ge=0, le=_WAIT_SECONDS_MAX, description="seconds to wait if there is none")] = 0


async def drain(context: ToolContext, asked: Drain) -> Answer:
    """Take waiting messages from the inbox. If none waits, wait for the first one, for the time that was asked for."""
    taken, waiting = await claim_some(context, asked.limit)
    seconds = asked.wait - context.waited_seconds
    if not taken and seconds > 0:
        with suppress(TimeoutError):
            async with context.arrivals() as arrived:
                taken, waiting = await _drain_later(context, asked.limit, arrived, seconds)
    if not taken:
        return Answer(f"Nothing came in {asked.wait} seconds." if asked.wait else "Nothing waits.")
    more = [f"{waiting}: drain again."] if waiting else []
    return Answer("\n".join([*(context.frame(item.message) for item in taken), *more]))


async def _drain_later(
    context: ToolContext, limit: int, arrived: asyncio.Event, seconds: float
) -> tuple[Sequence[Item], str]:
    """Wait for messages, claim them, and return them, with a text that says how many still wait.

    Raises `TimeoutError` if none arrives within `seconds`. The timeout never interrupts a claim.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        # Cleared before the inbox is read, so that no arrival is missed.
        arrived.clear()
        taken, waiting = await claim_some(context, limit)
        if taken:
            return taken, waiting
        async with asyncio.timeout_at(deadline):
            await arrived.wait()


class Inbox(Arguments, frozen=True):
    """Arguments of the tool `inbox`: the largest number of messages to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20


async def inbox(context: ToolContext, asked: Inbox) -> Answer:
    """List waiting messages, one line each. They stay in the inbox."""
    page = await context.client.inbox(limit=_LIST_MAX)
    found = [item.message for item in page.items if context.takes(item.message.scope)]
    lines = [_waiting_line(message, context.now_ms) for message in found[: asked.limit]]
    bound = "" if page.complete else "at least "
    more = [f"{bound}{len(found) - len(lines)} more wait"] if len(found) > len(lines) or not page.complete else []
    return lines_answer([*lines, *more], empty="Nothing waits.")


def _waiting_line(message: Message, now_ms: int) -> str:
    urgent = ", urgent" if message.priority is Priority.URGENT else ""
    start = message.body if len(message.body) <= _START_CHARS else f"{message.body[:_START_CHARS]}…"
    told = age((now_ms - message.sent_at_ms) // 1000)
    to = attribute(message.target)
    return f"{message.id} from {attribute(message.sender)} to {to}, {told}{urgent}: {attribute(start)}"


async def members(context: ToolContext, _asked: Nothing) -> Answer:
    """List the members."""
    lines = [_member_line(one) for one in (await context.client.members())[:_LIST_MAX] if one.name != context.member]
    return Answer(f"You are {context.member}.\n{lines_answer(lines, empty='Nobody else is here.').text}")


def _member_line(one: MemberView) -> str:
    there = "busy" if one.busy else "here" if one.sessions else "away"
    about = f" – {attribute(one.title)}" if one.title else ""
    return f"{one.name} ({one.kind}, {there}){about}"


class Channels(Arguments, frozen=True):
    """Arguments of the tool `channels`: a channel to join and one to leave; either may be empty."""

    join: str = ""
    leave: str = ""


async def channels(context: ToolContext, asked: Channels) -> Answer:
    """Join or leave a channel if asked, then list the channels."""
    if asked.join:
        await context.client.subscribe(asked.join.removeprefix("#"))
    if asked.leave:
        await context.client.unsubscribe(asked.leave.removeprefix("#"))
    lines = [_channel_line(one, context.member) for one in (await context.client.channels())[:_LIST_MAX]]
    return lines_answer(lines, empty="There are no channels.")


def _channel_line(one: ChannelView, member: str) -> str:
    joined = ", joined" if member in one.subscribers or one.name == GENERAL else ""
    archived = ", archived" if one.archived_at_ms is not None else ""
    return f"#{one.name} ({len(one.subscribers)} members{joined}{archived}) chan:{one.id}"


class History(Arguments, frozen=True, rename={"peer": "with"}):
    """Arguments of the tool `history`: with whom or where, words to find, and the largest number of messages."""

    peer: Annotated[str, Meta(description="@name, #channel or obj:<id>; all if left out")] = ""
    query: Annotated[str, Meta(description='words, "phrases" or begin*; all must be there')] = ""
    limit: Annotated[int, Meta(ge=1, le=_HISTORY_MAX)] = 20


async def history(context: ToolContext, asked: History) -> Answer:
    """Show earlier messages, oldest first."""
    found = await find_messages(context, asked.peer, asked.query, asked.limit)
    # The newest messages matter most, so the oldest are left out.
    shown, left = fit(context.frame(message) for message in found)
    more = [f"{left} older ones are left out: ask for fewer."] if left else []
    return Answer("\n".join([*more, *reversed(shown)]) or "Nothing was said.")


async def find_messages(context: ToolContext, peer: str, query: str, limit: int) -> Sequence[Message]:
    """Return at most `limit` messages that the member may see, newest first.

    `peer` selects messages with one member or in one channel. `query` selects messages with these words. Either may be
    empty.
    """
    if query:
        place = peer if peer.startswith("chan:") else full_target(peer)
        return await context.client.search(query, place=place or None, limit=limit)
    return await context.client.history(peer.removeprefix("@") or None, limit=limit)


class Receipts(Arguments, frozen=True):
    """Arguments of the tool `receipts`: the id of the message."""

    id: str


async def receipts(context: ToolContext, asked: Receipts) -> Answer:
    """Show the receipts of a message."""
    found = await context.client.receipts(from_prefix_id(asked.id))
    lines = [_receipt_line(one, context.now_ms) for one in found[:_LIST_MAX]]
    return lines_answer(lines, empty="Nobody received it.")


def _receipt_line(one: ReceiptView, now_ms: int) -> str:
    step = one.steps[-1] if one.steps else None
    since = f", {(now_ms - step.at_ms) // 1000}s ago" if step is not None else ""
    why = f" ({attribute(step.evidence)})" if step is not None and step.evidence else ""
    return f"{one.member}: {one.state}{since}{why}"


class Objectives(Arguments, frozen=True):
    """Arguments of the tool `objectives`: the id of the objective to show; empty to list the open ones."""

    id: Annotated[str, Meta(description="show this one whole")] = ""


async def objectives(context: ToolContext, asked: Objectives) -> Answer:
    """List the open objectives that the member has a part in, or show one objective with its events."""
    if asked.id:
        return await view_objective(context, asked.id)
    found = (await context.client.objectives(statuses=(Status.ACTIVE, Status.BLOCKED), limit=100)).objectives
    others = [one for one in found if one.assignee != context.member]
    lines = [list_open(tuple(one for one in found if one.assignee == context.member))]
    lines += [f"{one.id} [{one.status}] of {one.assignee}: {attribute(one.title)}" for one in others]
    return lines_answer(lines, empty="There are no open objectives.")


async def view_objective(context: ToolContext, objective_id: str) -> Answer:
    """Show one objective with its newest events."""
    story = await context.client.objective(objective_id.removeprefix("obj:"))
    one = story.objective
    fields = {
        "status": one.status,
        "title": one.title,
        "outcome": one.outcome,
        "assignee": one.assignee,
        "originator": one.originator,
        "watchers": ", ".join(one.watchers),
        "block reason": one.block_reason or "",
        "result": one.result or "",
        "body": one.body,
    }
    # Further lines of a value are indented, so that no such line looks like a field.
    told = {name: plain_text(value).replace("\n", "\n    ") for name, value in fields.items() if value}
    lines = [one.id, *(f"{name}: {value}" for name, value in told.items())]
    return Answer("\n".join([*lines, *(_event_line(event) for event in story.events[-_EVENTS_MAX:])]))


def _event_line(event: ObjectiveEventView) -> str:
    return f"- {kind_of(event.what)} by {event.actor}"


class Objective(Arguments, frozen=True):
    """Arguments of the tool `objective`: the action (create, block…), the objective, and texts for the action."""

    do: Literal["create", "block", "unblock", "complete", "cancel", "reassign", "watch", "unwatch"]
    id: str = ""
    text: Annotated[str, Meta(description="outcome, reason, result or note")] = ""
    to: Annotated[str, Meta(description="assignee or watcher")] = ""
    title: str = ""


_NEEDS: dict[str, tuple[str, ...]] = {
    "create": ("title", "text", "to"),
    "block": ("id", "text"),
    "complete": ("id", "text"),
    "unblock": ("id",),
    "cancel": ("id",),
    "reassign": ("id", "to"),
    "watch": ("id", "to"),
    "unwatch": ("id", "to"),
}
"""The arguments that each action of the tool `objective` needs, by action."""


def _describe_needs() -> str:
    """Return a text that lists the actions of `objective` and the fields that each action needs.

    Actions with equal fields are listed together.
    """
    together: dict[tuple[str, ...], list[str]] = {}
    for action, fields in _NEEDS.items():
        together.setdefault(fields, []).append(action)
    return "; ".join(f"{', '.join(actions)}: {', '.join(fields)}" for fields, actions in together.items())


async def objective(context: ToolContext, asked: Objective) -> Answer:
    """Create an objective, or change one."""
    needed = _NEEDS[asked.do]
    missing = [name for name in needed if not getattr(asked, name)]
    if missing:
        return fail(f"'{asked.do}' needs {', '.join(needed)}; missing: {', '.join(missing)}")
    if asked.do == "create":
        made = await context.client.create_objective(asked.title, asked.text, asked.to.removeprefix("@"))
        return Answer(f"created {made.id}, assigned to {made.assignee}")
    return Answer(state_line(await context.client.change_objective(asked.id.removeprefix("obj:"), _change(asked))))


def state_line(one: ObjectiveView) -> str:
    """Return one line with the status and assignee of an objective."""
    return f"{one.id} is {one.status}, assigned to {one.assignee}"


def _change(asked: Objective) -> AnyChange:
    name = asked.to.removeprefix("@")
    match asked.do:
        case "block":
            return Block(asked.text)
        case "complete":
            return Complete(asked.text)
        case "unblock":
            return Unblock()
        case "cancel":
            return Cancel(asked.text or None)
        case "reassign":
            return ReassignChange(name, asked.text or None)
        case "watch":
            return Watch(add=(name,))
        case _:
            return Watch(remove=(name,))


def _describe_objectives(open_objectives: Open) -> str:
    return f"Objectives you have a part in, or one with its log. {list_open(open_objectives)}"


TOOLS: tuple[Tool, ...] = (
    Tool("send", "Send a message. Say it once; no thanks, no acknowledgements.", Send, send),
    Tool("drain", "Take messages that wait for you, or wait for one. Pushed ones arrive by themselves.", Drain, drain),
    Tool("inbox", "List waiting messages; they stay.", Inbox, inbox),
    Tool("members", "List the members.", Nothing, members),
    Tool("channels", "List channels; join or leave one.", Channels, channels),
    Tool("history", "Past messages, oldest first.", History, history),
    Tool("receipts", "Receipts of a message you sent.", Receipts, receipts),
    Tool("objectives", _describe_objectives, Objectives, objectives),
    Tool(
        "objective",
        f"Create an objective, or change one. Fields: {_describe_needs()}.",
        Objective,
        objective,
        repeatable=False,
    ),
)
