"""The agents' tools under ac7's own names. A tool that needs a permission is listed only for members that have it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tieline.contract import permission
from tieline.contract.identifiers import GENERAL
from tieline.contract.message import Level
from tieline.contract.objective import Block, Cancel, Complete, Reassign, Status, Unblock, Watch
from tieline.protocols.mcp.open_objectives import Open
from tieline.protocols.mcp.tools.lean import find_messages, full_target, members, state_line, view_objective
from tieline.protocols.mcp.tools.tool import (
    Answer,
    Arguments,
    Nothing,
    Tool,
    ToolContext,
    fail,
    fit,
    held_note,
    json_answer,
    list_open,
)

LevelName = Literal["debug", "info", "notice", "warning", "error", "critical"]
_RECENT_MAX = 100  # more would fill an agent's context


class Broadcast(Arguments, frozen=True):
    """Arguments of `broadcast`."""

    body: str
    title: str = ""
    level: LevelName = "info"


class Send(Arguments, frozen=True):
    """Arguments of `send`."""

    to: str
    body: str
    title: str = ""
    level: LevelName = "info"


class Post(Arguments, frozen=True):
    """Arguments of `channels_post`."""

    channel: Annotated[str, Meta(description="its name or id")]
    body: str
    title: str = ""
    level: LevelName = "info"


async def broadcast(context: ToolContext, asked: Broadcast) -> Answer:
    """Send a message to everybody."""
    return await _say(context, "*", asked)


async def send(context: ToolContext, asked: Send) -> Answer:
    """Send a message to one member."""
    return await _say(context, full_target(asked.to), asked)


async def post(context: ToolContext, asked: Post) -> Answer:
    """Send a message to a channel."""
    wanted = asked.channel.removeprefix("#").removeprefix("chan:")
    name = wanted if wanted == GENERAL else (await context.client.channel(wanted)).name
    return await _say(context, f"#{name}", asked)


async def _say(context: ToolContext, target: str, asked: Broadcast | Send | Post) -> Answer:
    accepted = await context.client.send(
        target, asked.body, title=asked.title or None, level=Level(asked.level), wire_id=context.wire_id
    )
    return Answer(f"delivered to {accepted.recipients} recipients as {accepted.id}{held_note(accepted)}")


async def channels_list(context: ToolContext, _asked: Nothing) -> Answer:
    """List the channels."""
    found = await context.client.channels()
    return json_answer(
        {
            "channels": [
                {
                    "id": one.id,
                    "slug": one.name,
                    "joined": context.member in one.subscribers or one.name == GENERAL,
                    "memberCount": len(one.subscribers),
                    "archivedAt": one.archived_at_ms,
                }
                for one in found
            ]
        }
    )


class Recent(Arguments, frozen=True, rename={"peer": "with"}):
    """Arguments of `recent`."""

    peer: str = ""
    channel: str = ""
    limit: Annotated[int, Meta(ge=1, le=_RECENT_MAX)] = 20


async def recent(context: ToolContext, asked: Recent) -> Answer:
    """Show recent messages."""
    if asked.peer and asked.channel:
        return fail("give with or channel, not both")
    wanted = asked.channel.removeprefix("#").removeprefix("chan:")
    place = (
        f"#{(await context.client.channel(wanted)).name}" if wanted and wanted != GENERAL else wanted and f"#{GENERAL}"
    )
    shown, left = fit(context.frame(one) for one in await find_messages(context, place or asked.peer, "", asked.limit))
    more = [f"{left} older ones are left out"] if left else []
    return Answer("\n".join([*more, *reversed(shown)]) or "no messages")


class List(Arguments, frozen=True):
    """Arguments of `objectives_list`."""

    status: Literal["", "active", "blocked", "done", "cancelled"] = ""


class ById(Arguments, frozen=True):
    """Arguments that name one objective."""

    id: str


class Update(Arguments, frozen=True):
    """Arguments of `objectives_update`."""

    id: str
    status: Literal["active", "blocked"]
    blockReason: str = ""  # noqa: N815 - ac7's own spelling


class Discuss(Arguments, frozen=True):
    """Arguments of `objectives_discuss`."""

    id: str
    body: str


class Finish(Arguments, frozen=True):
    """Arguments of `objectives_complete`."""

    id: str
    result: str


class Create(Arguments, frozen=True):
    """Arguments of `objectives_create`."""

    title: str
    outcome: str
    assignee: str
    body: str = ""
    watchers: tuple[str, ...] = ()


class Drop(Arguments, frozen=True):
    """Arguments of `objectives_cancel`."""

    id: str
    reason: str = ""


class Watchers(Arguments, frozen=True):
    """Arguments of `objectives_watchers`."""

    id: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Move(Arguments, frozen=True):
    """Arguments of `objectives_reassign`."""

    id: str
    to: str
    note: str = ""


async def objectives_list(context: ToolContext, asked: List) -> Answer:
    """List the objectives that the member may see."""
    statuses = (Status(asked.status),) if asked.status else (Status.ACTIVE, Status.BLOCKED)
    found = (await context.client.objectives(statuses=statuses, limit=100)).objectives
    keys = ("id", "title", "outcome", "status", "assignee", "originator")
    return json_answer({"objectives": [{key: getattr(one, key) for key in keys} for one in found]})


async def objectives_view(context: ToolContext, asked: ById) -> Answer:
    """Show one objective with its events."""
    return await view_objective(context, asked.id)


async def objectives_update(context: ToolContext, asked: Update) -> Answer:
    """Block an objective, or set it active again."""
    if asked.status == "blocked":
        return (
            await _change(context, asked.id, Block(asked.blockReason))
            if asked.blockReason
            else fail("blockReason is needed")
        )
    return await _change(context, asked.id, Unblock())


async def objectives_discuss(context: ToolContext, asked: Discuss) -> Answer:
    """Send a message to an objective's thread."""
    accepted = await context.client.send(f"obj:{asked.id.removeprefix('obj:')}", asked.body, wire_id=context.wire_id)
    return Answer(f"posted as {accepted.id}")


async def objectives_complete(context: ToolContext, asked: Finish) -> Answer:
    """Complete an objective with its result."""
    return await _change(context, asked.id, Complete(asked.result))


async def objectives_create(context: ToolContext, asked: Create) -> Answer:
    """Create an objective for a member."""
    made = await context.client.create_objective(
        asked.title, asked.outcome, asked.assignee, body=asked.body, watchers=asked.watchers
    )
    return json_answer({"id": made.id, "assignee": made.assignee, "status": made.status})


async def objectives_cancel(context: ToolContext, asked: Drop) -> Answer:
    """Cancel an objective."""
    return await _change(context, asked.id, Cancel(asked.reason or None))


async def objectives_watchers(context: ToolContext, asked: Watchers) -> Answer:
    """Add or remove watchers of an objective."""
    return await _change(context, asked.id, Watch(add=asked.add, remove=asked.remove))


async def objectives_reassign(context: ToolContext, asked: Move) -> Answer:
    """Assign an objective to another member."""
    return await _change(context, asked.id, Reassign(asked.to, asked.note or None))


async def _change(context: ToolContext, objective_id: str, change: Any) -> Answer:
    return Answer(state_line(await context.client.change_objective(objective_id.removeprefix("obj:"), change)))


async def team_get(context: ToolContext, _asked: Nothing) -> Answer:
    """Show the team's details."""
    return json_answer({"team": msgspec.to_builtins(await context.client.team())})


def _describe_list(open_objectives: Open) -> str:
    # spec, Tool-list refresh: the description has the open objectives, so that they survive a compacted context.
    return f"List objectives. {list_open(open_objectives)}"


TOOLS: tuple[Tool, ...] = (
    Tool("roster", "List the team.", Nothing, members),
    Tool("broadcast", "Send a message to the whole team.", Broadcast, broadcast),
    Tool("send", "Send a direct message to one member.", Send, send),
    Tool("channels_list", "List channels.", Nothing, channels_list),
    Tool("channels_post", "Post into a channel.", Post, post),
    Tool("recent", "Recent messages, with a member or in a channel.", Recent, recent),
    Tool("objectives_list", _describe_list, List, objectives_list),
    Tool("objectives_view", "One objective, whole.", ById, objectives_view),
    Tool("objectives_update", "Block an objective, or set it active.", Update, objectives_update, repeatable=False),
    Tool("objectives_discuss", "Say something in an objective's thread.", Discuss, objectives_discuss),
    Tool(
        "objectives_complete", "Complete an objective with its result.", Finish, objectives_complete, repeatable=False
    ),
    Tool(
        "objectives_create",
        "Give a member work.",
        Create,
        objectives_create,
        permission.OBJECTIVES_CREATE,
        repeatable=False,
    ),
    Tool(
        "objectives_cancel",
        "Cancel an objective.",
        Drop,
        objectives_cancel,
        permission.OBJECTIVES_CANCEL,
        repeatable=False,
    ),
    Tool(
        "objectives_watchers",
        "Add or remove watchers.",
        Watchers,
        objectives_watchers,
        permission.OBJECTIVES_WATCH,
        repeatable=False,
    ),
    Tool(
        "objectives_reassign",
        "Give an objective to another.",
        Move,
        objectives_reassign,
        permission.OBJECTIVES_REASSIGN,
        repeatable=False,
    ),
    Tool("team_get", "Details of the team.", Nothing, team_get),
)
