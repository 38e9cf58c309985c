"""The inbox: show messages, take one, take all.

Above: the command line. Below: a session with a hub, or a mailbox without one. Showing a message is evidence that it
was seen. Taking a message claims it, so that exactly one of a member's sessions handles it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_brief, print_items, print_json, say, say_held
from tieline.cli.session import JsonOption, Link, speaker_of, talks_anywhere
from tieline.contract.scope import matches

if TYPE_CHECKING:
    from tieline.cli.context import Context
    from tieline.client import Client, Item

MatchOption = Annotated[
    str | None,
    typer.Option("--match", metavar="CTX", help="Where you are, e.g. your git remote: messages scoped to it match."),
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Keep its file in the spool's cur/; a hub keeps all it has.")]

OLDER_HOURS = 6.0
OlderOption = Annotated[
    float, typer.Option("--older", metavar="HOURS", min=0, help="How old a message is that its thread has left behind.")
]

_PAGE = 500
"""Deliveries read or claimed at once: many for one commit, but few enough for one frame."""

ID_CHARS = 36
"""Length of a whole id. A shorter text is the beginning of an id."""


@talks_anywhere
async def inbox(
    link: Link,
    match: MatchOption = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each message.")] = False,
    digest: Annotated[
        bool, typer.Option("--digest", help="One line for each, sorted into what is current and what is not.")
    ] = False,
    older: OlderOption = OLDER_HOURS,
    json: JsonOption = False,
) -> None:
    """Show what waits, without taking it.

    The senders learn that it was seen, from a hub. Without --match it shows messages of every scope, with it only those
    that match. A digest shows only how a message begins, so nothing is seen by it. Messages that are held are counted.
    """
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.inbox(match, brief=brief or digest, json=json)
        return
    async with await link.open_member() as client:
        if digest:
            from tieline.cli.digest import print_digest

            await print_digest(client, await unsettled(client), match, older, json=json)
            return
        items = [item for item in await unsettled(client) if match is None or matches(item.message.scope, match)]
        page = await client.inbox(limit=1)
        if json:
            print_json(items)
        elif items and brief:
            for item in items:
                print_brief(item.message)
        elif items:
            print_items(items, with_state=True)
        elif not page.held:
            say("Nothing waits.")
        # Reported after printing: before that, the messages are not seen.
        client.see(*items, evidence="inbox")
        say_held(page, json=json)


@talks_anywhere
async def take(
    link: Link,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="An id from the inbox, or its beginning.", show_default=False)
    ],
    keep: KeepOption = False,
    json: JsonOption = False,
) -> None:
    """Take one message.

    No other session of the member can take it then.
    """
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.take(id, keep=keep, json=json)
        return
    async with await link.open_member() as client:
        whole = id if len(id) >= ID_CHARS else await complete_id(client, id)
        item = await client.claim(whole)
        if item is None:
            raise Failure(Exit.REFUSED, f"{whole} is not there to take: another was first, it is held, or it never was")
        if json:
            print_json(item)
        else:
            print_items([item])


@talks_anywhere
async def drain(
    link: Link,
    program: Annotated[
        str | None,
        typer.Argument(metavar="PROGRAM", help="With --hook: claude-code, codex or gemini, in whose words to answer."),
    ] = None,
    match: MatchOption = None,
    hook: Annotated[
        bool,
        typer.Option(
            "--hook", help="For an agent's hook: nothing if nothing waits, else a header and each message in a frame."
        ),
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Of what a program's hook shows, about; the rest is one line.")
    ] = 2000,
    json: JsonOption = False,
) -> None:
    """Take everything that waits, and print it.

    Without --match you are where the current folder's git remote is, if it has one; messages of another scope wait for
    a session in their context. What was taken stays in a hub's 'tieline history'.

    With --hook PROGRAM it answers that program's hook with what is unread, and a hub's messages are seen by that, not
    taken. It never fails, because the agent's turn would.
    """
    from tieline.cli.context import Context

    context = Context(match)
    if program is not None:
        await _answer_hook(link, program, context, max_tokens, hook=hook)
        return
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.drain(context, hook=hook, json=json)
        return
    async with await link.open_member() as client:
        wanted = [item for item in await unsettled(client) if context.takes(item.message.scope)]
        page = await client.inbox(limit=1)
        taken, error = await _claim_all(client, wanted)
        if json:
            print_json(taken)
        elif taken and hook:
            from tieline.cli.hooks import print_framed

            say(f"[tieline] {len(taken)} message(s) for {speaker_of(client)}:")
            print_framed((item.message for item in taken), speaker_of(client))
        elif taken:
            print_items(taken)
        elif not hook and error is None and not page.held:
            say("Nothing waits.")
        if error is not None:
            raise error
        if not hook:
            say_held(page, json=json)


async def _answer_hook(link: Link, program: str, context: "Context", tokens_max: int, *, hook: bool) -> None:
    from tieline.agents.hooks import Program
    from tieline.cli.hooks import show_unread

    if not hook or program not in list(Program):
        raise Failure(Exit.USAGE, f"--hook goes with one of {', '.join(Program)}, and these with --hook")
    await show_unread(link, Program(program), context, tokens_max)


async def unsettled(client: "Client") -> "list[Item]":
    """Read all messages that wait for a member, page by page."""
    items: list[Item] = []
    after = 0
    while True:
        page = await client.inbox(after=after, limit=_PAGE)
        items.extend(page.items)
        if page.complete:
            return items
        after = page.through


async def _claim_all(client: "Client", items: "Sequence[Item]") -> "tuple[list[Item], BaseException | None]":
    """Claim messages. Return those that were claimed, and the error that stopped it, if any.

    Claimed messages must be shown even if the hub goes away.
    """
    import asyncio

    taken: list[Item] = []
    for start in range(0, len(items), _PAGE):
        claims = [client.claim(item.message.id) for item in items[start : start + _PAGE]]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        taken.extend(outcome for outcome in outcomes if outcome is not None and not isinstance(outcome, BaseException))
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                return taken, outcome
    return taken, None


async def complete_id(client: "Client", beginning: str) -> str:
    """Find the one id in the inbox with this beginning."""
    return complete(beginning, [item.message.id for item in await unsettled(client)])


def complete(beginning: str, ids: Sequence[str]) -> str:
    """Find the one id with this beginning."""
    found = [each for each in ids if each.lower().startswith(beginning.lower())]
    match found:
        case [one]:
            return one
        case []:
            message = f"no message in the inbox begins with {beginning!r}"
            raise Failure(Exit.REFUSED, message, "'tieline inbox' shows what waits")
        case _:
            raise Failure(Exit.USAGE, f"{len(found)} messages begin with {beginning!r}: {', '.join(found[:5])}")
