"""The commands for objectives: creating, changing and showing them.

Used by: the command line. Uses: a session with a hub. Objectives need a hub, because a spool cannot store them.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_member, complete_objective
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, talks
from tieline.cli.short_ids import find_objective_id, short_message, short_objective
from tieline.contract.objective import Status
from tieline.contract.text import neutral

if TYPE_CHECKING:
    from tieline.cli.offline import MemberAdmin
    from tieline.client import Client, ObjectiveEventView, ObjectiveView
    from tieline.contract.objective import AnyChange

objectives_app = typer.Typer(help="Create, change and follow objectives: work with an outcome.", no_args_is_help=True)

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Short id that 'list' prints, or the whole id.",
        show_default=False,
        autocompletion=complete_objective,
    ),
]
TextArgument = Annotated[
    list[str], typer.Argument(metavar="TEXT", help="Several words are one text; - reads stdin.", show_default=False)
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help="Names of members.", show_default=False, autocompletion=complete_member),
]

OPEN = (Status.ACTIVE, Status.BLOCKED)
"""Statuses of objectives that have not ended."""


@objectives_app.command("create")
@talks
async def create(
    link: Link,
    title: Annotated[
        list[str],
        typer.Argument(metavar="TITLE", help="Title of the work. Several words are one title.", show_default=False),
    ],
    outcome: Annotated[
        str,
        typer.Option(metavar="O", help="Condition that must be true for the objective to be done.", show_default=False),
    ],
    assignee: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Member that shall do the work.", autocompletion=complete_member, show_default=False
        ),
    ],
    body: Annotated[str, typer.Option(metavar="B", help="Further details; - reads stdin.")] = "",
    watcher: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Member that follows the objective; may be given several times.",
            autocompletion=complete_member,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create an objective: work for a member, with an outcome. Needs the permission objectives.create."""
    text = _read_stdin() if body == "-" else body
    async with await link.open_member() as client:
        made = await client.create_objective(
            " ".join(title), outcome, assignee, body=text, watchers=tuple(watcher or ())
        )
    _print_state(made, f"{short_objective(made.id)}  assigned to {made.assignee}", json=json)


@objectives_app.command("list")
@talks
async def list_objectives(
    link: Link,
    status: Annotated[
        list[Status] | None, typer.Option(help="Only objectives with this status. Default: the open ones.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include objectives that are done or cancelled.")] = False,
    assignee: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only objectives of this assignee.", autocompletion=complete_member),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List objectives, newest first: all if you may create objectives, else those that you take part in."""
    statuses = tuple(status or (() if everything else OPEN))
    async with await link.or_stored().open() as client:
        found = await all_objectives(client, statuses, assignee)
    if json:
        print_json(found)
        return
    rows = [
        (short_objective(one.id), one.status, one.assignee, one.originator, local_time(one.updated_at_ms), one.title)
        for one in found
    ]
    empty = "No objectives here: 'tieline objectives create' creates one."
    print_table(("id", "status", "assignee", "from", "changed", "title"), rows, empty=empty)


@objectives_app.command("view")
@talks
async def view(link: Link, objective: IdArgument, json: JsonOption = False) -> None:
    """Show an objective and its history."""
    async with await link.or_stored().open() as client:
        whole = await find_objective_id(client, objective)
        story = await client.objective(whole)
        events = list(story.events)
        while not story.complete:
            story = await client.objective(whole, after=events[-1].offset)
            events += story.events
    if json:
        from tieline.cli.documents import ObjectiveHistory

        print_json(ObjectiveHistory(story.objective, events))
        return
    _print_objective(story.objective)
    say("")
    rows = [(local_time(one.at_ms), one.actor, _kind(one), _particulars(one)) for one in events]
    print_table(("at", "by", "what", ""), rows, empty="nothing happened to it")


@objectives_app.command("block")
@talks
async def block(link: Link, objective: IdArgument, reason: TextArgument, json: JsonOption = False) -> None:
    """Block an objective, with a reason: work on it cannot continue."""
    from tieline.client import Block

    changed = await _change(link, objective, Block(_text(reason)))
    _print_state(changed, f"{short_objective(changed.id)}  blocked", json=json)


@objectives_app.command("unblock")
@talks
async def unblock(link: Link, objective: IdArgument, json: JsonOption = False) -> None:
    """Unblock an objective: work on it can continue."""
    from tieline.client import Unblock

    changed = await _change(link, objective, Unblock())
    _print_state(changed, f"{short_objective(changed.id)}  active", json=json)


@objectives_app.command("complete")
@talks
async def complete(link: Link, objective: IdArgument, result: TextArgument, json: JsonOption = False) -> None:
    """Complete an objective, with its result. Only for its assignee."""
    from tieline.client import Complete

    changed = await _change(link, objective, Complete(_text(result)))
    _print_state(changed, f"{short_objective(changed.id)}  done", json=json)


@objectives_app.command("cancel")
@talks
async def cancel(
    link: Link,
    objective: IdArgument,
    reason: Annotated[str | None, typer.Option(metavar="R", help="Reason.")] = None,
    json: JsonOption = False,
) -> None:
    """Cancel an objective."""
    from tieline.client import Cancel

    changed = await _change(link, objective, Cancel(reason))
    _print_state(changed, f"{short_objective(changed.id)}  cancelled", json=json)


@objectives_app.command("reassign")
@talks
async def reassign(
    link: Link,
    objective: IdArgument,
    to: Annotated[
        str, typer.Argument(metavar="NAME", help="New assignee.", autocompletion=complete_member, show_default=False)
    ],
    note: Annotated[str | None, typer.Option(metavar="N", help="Note for the new assignee.")] = None,
    json: JsonOption = False,
) -> None:
    """Assign an objective to another member. Needs the permission objectives.reassign."""
    from tieline.client import Reassign

    changed = await _change(link, objective, Reassign(to, note))
    _print_state(changed, f"{short_objective(changed.id)}  assigned to {changed.assignee}", json=json)


@objectives_app.command("discuss")
@talks
async def discuss(link: Link, objective: IdArgument, body: TextArgument, json: JsonOption = False) -> None:
    """Send a message to everybody who takes part in an objective."""
    async with await link.open_member() as client:
        accepted = await client.send(f"obj:{await find_objective_id(client, objective)}", _text(body))
    if json:
        from tieline.cli.documents import Sent, fill

        print_json(fill(Sent, accepted))
    else:
        many = "recipient" if accepted.recipients == 1 else "recipients"
        say(f"{short_message(accepted)}  accepted for {accepted.recipients} {many}")


@objectives_app.command("watch")
@talks
async def watch(link: Link, objective: IdArgument, name: NamesArgument, json: JsonOption = False) -> None:
    """Add watchers, who follow an objective."""
    from tieline.client import Watch

    changed = await _change(link, objective, Watch(add=tuple(name)))
    _print_watchers(changed, json=json)


@objectives_app.command("unwatch")
@talks
async def unwatch(link: Link, objective: IdArgument, name: NamesArgument, json: JsonOption = False) -> None:
    """Remove watchers of an objective."""
    from tieline.client import Watch

    changed = await _change(link, objective, Watch(remove=tuple(name)))
    _print_watchers(changed, json=json)


async def _change(link: Link, objective: str, change: "AnyChange") -> "ObjectiveView":
    async with await link.open_member() as client:
        return await client.change_objective(await find_objective_id(client, objective), change)


async def all_objectives(
    client: "Client | MemberAdmin", statuses: tuple[Status, ...], assignee: str | None
) -> "list[ObjectiveView]":
    """Return all objectives with these statuses, newest first; with `assignee`, only those of this member."""
    found: list[ObjectiveView] = []
    complete = False
    while not complete:
        before = found[-1].id if found else None
        page = await client.objectives(statuses=statuses, assignee=assignee, before=before)
        found += page.objectives
        complete = page.complete
    return found


def _text(words: list[str]) -> str:
    return _read_stdin() if words == ["-"] else " ".join(words)


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise Failure(Exit.USAGE, f"stdin is not UTF-8 text: {error}") from error


def _print_state(objective: "ObjectiveView", sentence: str, *, json: bool) -> None:
    if json:
        print_json(objective)
    else:
        say(neutral_line(sentence))


def _print_watchers(objective: "ObjectiveView", *, json: bool) -> None:
    _print_state(
        objective, f"{short_objective(objective.id)}  watched by {', '.join(objective.watchers) or 'nobody'}", json=json
    )


def _print_objective(objective: "ObjectiveView") -> None:
    say(neutral_line(f"{short_objective(objective.id)}  {objective.title}  [{objective.status}]"), style="bold")
    fields = {
        "outcome": objective.outcome,
        "assignee": objective.assignee,
        "from": objective.originator,
        "watchers": ", ".join(objective.watchers),
        "created": local_time(objective.created_at_ms),
        "blocked by": objective.block_reason if objective.status == Status.BLOCKED else None,
        "result": objective.result,
        "attached": ", ".join(attachment.path for attachment in objective.attachments),
        "body": objective.body,
    }
    for name, text in fields.items():
        if text:
            first, *others = neutral(text).split("\n")
            say(f"  {name + ':':<12}{first}")
            for line in others:
                say(f"  {'':<12}{line}")


def _kind(event: "ObjectiveEventView") -> str:
    return str(event.what.__struct_config__.tag).replace("_", " ")


def _particulars(event: "ObjectiveEventView") -> str:
    """Return the details of an objective's event as text, without its kind, title and outcome (shown already)."""
    import msgspec

    fields = msgspec.to_builtins(event.what)
    return ", ".join(
        f"{name}: {', '.join(value) if isinstance(value, list | tuple) else value}"
        for name, value in fields.items()
        if name not in ("kind", "title", "outcome")
    )
