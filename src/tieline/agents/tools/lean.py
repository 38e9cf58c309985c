"""The default tools: eight, each described in one or two sentences, because a model reads them before every turn."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from tieline.agents.framing import attribute
from tieline.agents.open_objectives import Open
from tieline.agents.tools.tool import (
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
from tieline.client import (
    Block,
    Cancel,
    ChannelView,
    Complete,
    MemberView,
    Message,
    ObjectiveEventView,
    ObjectiveView,
    ReceiptView,
    Unblock,
    Watch,
)
from tieline.client import Reassign as ReassignChange
from tieline.contract.identifiers import GENERAL
from tieline.contract.message import Level, Priority
from tieline.contract.objective import AnyChange, Status, kind_of

_HISTORY_MAX = 100  # more would fill an agent's context
_LIST_MAX = 500  # more lines would fill an agent's context
_EVENTS_MAX = 50  # the newest events; a whole long log would fill an agent's context


class Send(Arguments, frozen=True):
    """What `send` takes."""

    to: Annotated[str, Meta(description="@name, #channel, * (everybody) or obj:<id>")]
    body: str
    reply_to: Annotated[str, Meta(description="msg_id that this answers")] = ""
    title: str = ""
    level: Literal["debug", "info", "notice", "warning", "error", "critical"] = "info"
    urgent: bool = False


async def send(context: ToolContext, asked: Send) -> Answer:
    """Send a message."""
    if asked.reply_to:
        context.named.append(asked.reply_to)
    accepted = await context.client.send(
        await _place(context, asked.to),
        asked.body,
        title=asked.title or None,
        level=Level(asked.level),
        priority=Priority.URGENT if asked.urgent else Priority.NORMAL,
        reply_to=asked.reply_to or None,
        wire_id=context.wire_id,
    )
    recipients = "1 recipient" if accepted.recipients == 1 else f"{accepted.recipients} recipients"
    return Answer(f"accepted {accepted.id} for {recipients}{held_note(accepted)}")


async def _place(context: ToolContext, text: str) -> str:
    """The target of a message. A channel may be given by its id (`chan:<id>`), as frames show it."""
    if not text.startswith("chan:"):
        return full_target(text)
    return f"#{(await context.client.channel(text.removeprefix('chan:'))).name}"


def full_target(text: str) -> str:
    """A target in the hub's notation. A bare name means a member."""
    return text if not text or text[0] in "@#*" or text.startswith("obj:") else f"@{text}"


class Drain(Arguments, frozen=True):
    """What `drain` takes."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20


async def drain(context: ToolContext, asked: Drain) -> Answer:
    """Take waiting messages from the inbox."""
    taken, waiting = await claim_some(context, asked.limit)
    if not taken:
        return Answer("Nothing waits.")
    more = [f"{waiting}: drain again."] if waiting else []
    return Answer("\n".join([*(context.frame(item.message) for item in taken), *more]))


async def members(context: ToolContext, _asked: Nothing) -> Answer:
    """List the members."""
    lines = [_member_line(one) for one in (await context.client.members())[:_LIST_MAX] if one.name != context.member]
    return Answer(f"You are {context.member}.\n{lines_answer(lines, empty='Nobody else is here.').text}")


def _member_line(one: MemberView) -> str:
    there = "busy" if one.busy else "here" if one.sessions else "away"
    about = f" – {attribute(one.title)}" if one.title else ""
    return f"{one.name} ({one.kind}, {there}){about}"


class Channels(Arguments, frozen=True):
    """What `channels` takes."""

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
    """What `history` takes."""

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
    """Find messages that the member may see, newest first."""
    if query:
        place = peer if peer.startswith("chan:") else full_target(peer)
        return await context.client.search(query, place=place or None, limit=limit)
    return await context.client.history(peer.removeprefix("@") or None, limit=limit)


class Receipts(Arguments, frozen=True):
    """What `receipts` takes."""

    id: str


async def receipts(context: ToolContext, asked: Receipts) -> Answer:
    """Show the receipts of a message."""
    found = await context.client.receipts(asked.id)
    lines = [_receipt_line(one, context.now_ms) for one in found[:_LIST_MAX]]
    return lines_answer(lines, empty="Nobody received it.")


def _receipt_line(one: ReceiptView, now_ms: int) -> str:
    step = one.steps[-1] if one.steps else None
    since = f", {(now_ms - step.at_ms) // 1000}s ago" if step is not None else ""
    why = f" ({attribute(step.evidence)})" if step is not None and step.evidence else ""
    return f"{one.member}: {one.state}{since}{why}"


class Objectives(Arguments, frozen=True):
    """What `objectives` takes."""

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
    """What `objective` takes."""

    do: Literal["create", "block", "unblock", "complete", "cancel", "reassign", "watch", "unwatch"]
    id: str = ""
    text: Annotated[str, Meta(description="the outcome, reason, result or note")] = ""
    to: Annotated[str, Meta(description="assignee or watcher")] = ""
    title: str = ""


async def objective(context: ToolContext, asked: Objective) -> Answer:
    """Create an objective, or change one."""
    if asked.do == "create":
        made = await context.client.create_objective(asked.title, asked.text, asked.to.removeprefix("@"))
        return Answer(f"created {made.id}, assigned to {made.assignee}")
    change = _change(asked)
    if change is None:
        return fail(f"'{asked.do}' needs {'to' if asked.do in ('reassign', 'watch', 'unwatch') else 'text'}")
    if not asked.id:
        return fail(f"'{asked.do}' needs id")
    return Answer(state_line(await context.client.change_objective(asked.id.removeprefix("obj:"), change)))


def state_line(one: ObjectiveView) -> str:
    """One line with the status and assignee of an objective."""
    return f"{one.id} is {one.status}, assigned to {one.assignee}"


def _change(asked: Objective) -> AnyChange | None:
    name = asked.to.removeprefix("@")
    match asked.do:
        case "block":
            return Block(asked.text) if asked.text else None
        case "complete":
            return Complete(asked.text) if asked.text else None
        case "unblock":
            return Unblock()
        case "cancel":
            return Cancel(asked.text or None)
        case "reassign":
            return ReassignChange(name, asked.text or None) if name else None
        case "watch":
            return Watch(add=(name,)) if name else None
        case "unwatch":
            return Watch(remove=(name,)) if name else None
        case _:
            return None


def _describe_objectives(open_objectives: Open) -> str:
    return f"Objectives you have a part in, or one with its log. {list_open(open_objectives)}"


TOOLS: tuple[Tool, ...] = (
    Tool("send", "Send a message. Say it once; no thanks, no acknowledgements.", Send, send),
    Tool("drain", "Take messages that wait for you. Pushed ones arrive by themselves.", Drain, drain),
    Tool("members", "Who is on the bus.", Nothing, members),
    Tool("channels", "List channels; join or leave one.", Channels, channels),
    Tool("history", "What was said, oldest first.", History, history),
    Tool("receipts", "What became of a message you sent.", Receipts, receipts),
    Tool("objectives", _describe_objectives, Objectives, objectives),
    Tool("objective", "Create an objective, or say how one goes.", Objective, objective, repeatable=False),
)
