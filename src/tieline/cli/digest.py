"""The digest of an inbox (its current and its obsolete messages), and the command that discards obsolete ones.

Used by: `inbox --digest` and `discard`. Uses: a session with a hub, and `agents.digest`, which sorts the messages. A
member that returns after a while sees current messages first. Only the member itself can discard its messages. The
senders see that their messages were discarded.
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_waiting
from tieline.cli.failure import Exit, Failure
from tieline.cli.inbox import OLDER_HOURS, OlderOption, unsettled
from tieline.cli.output import neutral_line, print_json, say, say_held
from tieline.cli.session import JsonOption, Link, speaker_of, talks
from tieline.cli.short_ids import find_message_id, short_id, short_message, short_target
from tieline.contract.scope import matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tieline.agents.digest import Digest, Over
    from tieline.client import Client, Item, Message

_PAST = 500
"""Number of past messages to read from the hub: enough for one member's traffic of a night."""
_SUSPECTS_MAX = 50
"""Maximum number of messages whose receipts are read to find out if the messages have expired."""


async def print_digest(
    client: "Client", items: "Sequence[Item]", match: str | None, older_hours: float, *, json: bool
) -> None:
    """Print the digest of `items`: current, obsolete and expired messages, one line for each.

    With `match`, messages whose scope does not match it are left out. A message may be obsolete only if it is older
    than `older_hours`.
    """
    from msgspec.structs import replace

    wanted = [item for item in items if match is None or matches(item.message.scope, match)]
    page = await client.inbox(limit=1)
    found = replace(await _digest(client, wanted, older_hours), held=page.held)
    if json:
        print_json(found)
        return
    _print_lines(f"{len(found.current)} current", [(item.message, "") for item in found.current])
    _print_lines(
        f"{len(found.obsolete)} probably obsolete; 'tieline discard --obsolete' discards them",
        [(each.item.message, each.why) for each in found.obsolete],
    )
    _print_lines(f"{len(found.over)} over, nothing to do", [(each.message, each.why) for each in found.over])
    if not (found.current or found.obsolete or found.over or found.held):
        say("Nothing waits.")
    say_held(page)


def _print_lines(title: str, lines: "list[tuple[Message, str]]") -> None:
    from tieline.agents.digest import excerpt
    from tieline.protocols.mcp.framing import age

    if not lines:
        return
    say(f"{title}:", style="bold")
    now_ms = time.time_ns() // 1_000_000
    for message, why in lines:
        urgent = "" if message.priority == "normal" else f" [{message.priority.value}]"
        between = f"{message.sender} → {short_target(message.target)}"
        old = age((now_ms - message.sent_at_ms) // 1000)
        line = f"{short_message(message)}  {between}, {old} ago{urgent}: {excerpt(message)}"
        say(f"  {neutral_line(line)}{f'  ({neutral_line(why)})' if why else ''}")


async def _digest(client: "Client", items: "Sequence[Item]", older_hours: float) -> "Digest":
    from tieline.agents.digest import Digest, sort_out, suspects

    now_ms = time.time_ns() // 1_000_000
    past = await client.history(limit=_PAST)
    current, obsolete = sort_out(items, past, now_ms=now_ms, older_ms=round(older_hours * 3_600_000))
    member = speaker_of(client)
    over = await _over(client, suspects(past, items, member=member, now_ms=now_ms)[:_SUSPECTS_MAX], member)
    return Digest(tuple(current), tuple(obsolete), tuple(over))


async def _over(client: "Client", messages: "Sequence[Message]", member: str) -> "list[Over]":
    """Return those of `messages` that expired for the member, oldest first, each with the reason from its receipts."""
    from tieline.agents.digest import Over, ending
    from tieline.client import HubRefused

    over: list[Over] = []
    for message in reversed(messages):
        try:
            why = ending(await client.receipts(message.id), member)
        except HubRefused:
            # The message was not sent to this member: the member joined the channel later.
            continue
        if why is not None:
            over.append(Over(message, why))
    return over


@talks
async def discard(
    link: Link,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID…", help="Numbers of messages in the inbox, or their ids.", autocompletion=complete_waiting
        ),
    ] = None,
    obsolete: Annotated[
        bool, typer.Option("--obsolete", help="All messages that 'inbox --digest' lists as probably obsolete.")
    ] = False,
    older: OlderOption = OLDER_HOURS,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Reason, which the senders see.")] = "",
    json: JsonOption = False,
) -> None:
    """Discard messages: nobody will handle them.

    Their senders see them as expired, with your name and the reason; the audit chain keeps both. The messages stay in
    'tieline history'.
    """
    import asyncio

    if bool(ids) == obsolete:
        raise Failure(Exit.USAGE, "give the ids of messages, or --obsolete")
    async with await link.open_member() as client:
        items = await unsettled(client)
        if obsolete:
            found = (await _digest(client, items, older)).obsolete
            chosen = [(each.item, because or each.why) for each in found]
        else:
            whole = {await find_message_id(client, id) for id in ids or ()}
            chosen = [(item, because or "not needed") for item in items if item.message.id in whole]
            missing = whole - {item.message.id for item, _ in chosen}
            if missing:
                raise Failure(
                    Exit.REFUSED,
                    f"{', '.join(sorted(map(short_id, missing)))} does not wait for {speaker_of(client)}",
                )
        await asyncio.gather(*(client.discard(item, reason=reason) for item, reason in chosen))
    if json:
        print_json([item for item, _ in chosen])
        return
    for item, reason in chosen:
        say(neutral_line(f"{short_message(item.message)}  discarded: {reason}"))
    if not chosen:
        say("Nothing is obsolete.")
