"""The inbox: show messages, take one, take all.

Used by: the command line. Uses: a session with a hub, or a mailbox without one. Showing a message to its recipient is
evidence that it was seen. A person who looks into an agent's inbox is not the recipient. Taking a message claims it, so
that exactly one of a member's sessions handles it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_waiting
from tieline.cli.failure import Exit, Failure, NobodyNamed
from tieline.cli.output import neutral_line, print_brief, print_items, print_json, say, say_held, warn
from tieline.cli.session import JsonOption, Link, speaker_of, talks_anywhere
from tieline.cli.short_ids import answered_by, find_with_answered
from tieline.contract.member import MemberKind
from tieline.contract.scope import matches

if TYPE_CHECKING:
    from tieline.cli.context import Context
    from tieline.cli.hook_answer import HookOptions
    from tieline.client import Client, Item

MatchOption = Annotated[
    str | None,
    typer.Option(
        "--match", metavar="CTX", help="Your context, e.g. a git remote. Messages for other contexts are left out."
    ),
]
KeepOption = Annotated[
    bool, typer.Option("--keep", help="Keep its file in the spool's cur/. A hub keeps messages anyway.")
]

OLDER_HOURS = 6.0
OlderOption = Annotated[
    float,
    typer.Option(
        "--older", metavar="HOURS", min=0, help="Age at which a message counts as obsolete if its thread went on."
    ),
]

_PAGE = 500
"""Maximum number of deliveries that are read or claimed at once. One commit stores many claims, and this number of
deliveries still fits into one message of the hub's protocol."""


@talks_anywhere
async def inbox(
    link: Link,
    match: MatchOption = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each message.")] = False,
    digest: Annotated[
        bool, typer.Option("--digest", help="One line for each message, sorted into current and obsolete ones.")
    ] = False,
    older: OlderOption = OLDER_HOURS,
    json: JsonOption = False,
) -> None:
    """Show the waiting messages, without taking them.

    It marks messages of a person as seen, so that their senders know, but not those of an agent that you name with --as
    on the hub's machine: you read them, and the agent did not. In the agent's own shell (TIELINE_AGENT), and with a
    token, it marks them. Without --match, messages of every scope are shown. A digest shows only the beginning of each
    message, so they do not count as seen. Held messages are only counted.
    """
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.inbox(match, brief=brief or digest, json=json)
        return
    async with await link.open_member(make=True) as client:
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
            print_items(items, await answered_by(client, (item.message for item in items)), with_state=True)
        elif not page.held:
            say("Nothing waits.")
        # Reported after printing: before that, the messages are not seen.
        await _report_seen(link, client, items)
        say_held(page, json=json)


async def _report_seen(link: Link, client: "Client", items: "Sequence[Item]") -> None:
    """Tell the hub that the member has seen its messages, unless a person looked into the inbox of an agent.

    Otherwise the agent would miss them, because the hook of its program shows only messages that were not seen.
    """
    unseen = [item for item in items if item.state != "seen"]
    if not unseen:
        return
    if link.acts_for_another():
        name = speaker_of(client)
        kinds = {member.name: member.kind for member in await client.members()}
        if kinds.get(name) == MemberKind.AGENT:
            warn(neutral_line(f"tieline: {name} is an agent: its messages were not marked as seen"))
            return
    client.see(*unseen, evidence="inbox")


@talks_anywhere
async def take(
    link: Link,
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            autocompletion=complete_waiting,
            help="Number of a message in the inbox, or its id.",
            show_default=False,
        ),
    ],
    keep: KeepOption = False,
    json: JsonOption = False,
) -> None:
    """Take one message.

    After that, no other session of the member can take it. 'tieline read' is the same command.
    """
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.take(id, keep=keep, json=json)
        return
    async with await link.open_member() as client:
        # All is found out before the claim: an interruption between a claim and its output would lose the message.
        whole, known = await find_with_answered(client, id)
        item = await client.claim(whole)
        if item is None:
            why = "it was taken before, it is held, or it does not exist"
            raise Failure(Exit.REFUSED, f"cannot take {id}: {why}")
        if json:
            print_json(item)
        else:
            print_items([item], known)


@talks_anywhere
async def drain(
    link: Link,
    program: Annotated[
        str | None,
        typer.Argument(metavar="PROGRAM", help="With --hook: the agent program: claude-code, codex or gemini."),
    ] = None,
    match: MatchOption = None,
    hook: Annotated[
        bool,
        typer.Option("--hook", help="For an agent's hook: print a header and each message in a frame, or nothing."),
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --hook PROGRAM: show about this many tokens; count the rest.")
    ] = 2000,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --hook PROGRAM: wait for a message, and wake the idle program with it.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="With --hook PROGRAM: the agent has the hub's tools, and answers by them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Take all waiting messages and print them.

    Without --match, your context is the git remote of the current folder, if it has one. Messages with another scope
    stay in the inbox. On a hub, taken messages stay in 'tieline history'.

    With --hook PROGRAM, it prints the unread messages in the format of that program's hooks. On a hub, these messages
    are not taken. They count as seen when the model has answered after them, or when nothing can prove that. Errors do
    not fail the command, because they would fail the agent's turn.
    """
    from tieline.cli.context import Context

    context = Context(match)
    if program is not None:
        from tieline.cli.hook_answer import HookOptions

        await _answer_hook(link, program, HookOptions(context, max_tokens, tools=tools), hook=hook, wait=wait)
        return
    if wait:
        raise Failure(Exit.USAGE, "--wait goes with --hook PROGRAM; 'tieline watch' waits for messages")
    try:
        await _drain(link, context, hook=hook, json=json)
    except NobodyNamed:
        # A hook runs for every agent on the machine, also for one that has no name here.
        if not hook:
            raise


async def _drain(link: Link, context: "Context", *, hook: bool, json: bool) -> None:
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.drain(context, hook=hook, json=json)
        return
    async with await link.open_member() as client:
        wanted = [item for item in await unsettled(client) if context.takes(item.message.scope)]
        page = await client.inbox(limit=1)
        known = {} if json or hook else await answered_by(client, (item.message for item in wanted))
        taken, error = await _claim_all(client, wanted)
        if json:
            print_json(taken)
        elif taken and hook:
            from tieline.cli.hook_answer import print_framed

            say(f"[tieline] {len(taken)} message(s) for {speaker_of(client)}:")
            print_framed((item.message for item in taken), speaker_of(client))
        elif taken:
            print_items(taken, known)
        elif not hook and error is None and not page.held:
            say("Nothing waits.")
        if error is not None:
            raise error
        if not hook:
            say_held(page, json=json)


async def _answer_hook(link: Link, program: str, options: "HookOptions", *, hook: bool, wait: bool) -> None:
    import os

    from tieline.agents.hooks import Program
    from tieline.cli.hook_answer import show_unread, wait_for_unread
    from tieline.client.connection import MEMBER_VARIABLE

    if not hook or program not in list(Program):
        raise Failure(Exit.USAGE, f"a program needs --hook, and must be one of {', '.join(Program)}")
    if options.run_folder is not None and link.member not in (None, os.environ.get(MEMBER_VARIABLE)):
        # The agent runs as another member now (`tieline run`), and must not read the messages of this one.
        return
    await (wait_for_unread if wait else show_unread)(link, Program(program), options)


async def unsettled(client: "Client") -> "list[Item]":
    """Return all messages that wait for the session's member. The hub is asked for one page of messages at a time."""
    items: list[Item] = []
    after = 0
    while True:
        page = await client.inbox(after=after, limit=_PAGE)
        items.extend(page.items)
        if page.complete:
            return items
        after = page.through


async def _claim_all(client: "Client", items: "Sequence[Item]") -> "tuple[list[Item], BaseException | None]":
    """Claim messages. Return the claimed messages, and the error that stopped the claims; `None` without an error.

    The caller must show the claimed messages even after an error, because no other session gets them.
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
