"""The digest of an inbox, and discarding obsolete messages.

Above: `inbox --digest` and `discard`. Below: a session with a hub, and `agents.digest`, which sorts. A member that
returns to a backlog sees current messages first. Only the member discards messages, and the senders learn of it.
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.inbox import ID_CHARS, OLDER_HOURS, OlderOption, complete_id, unsettled
from tieline.cli.output import neutral_line, print_json, say, say_held
from tieline.cli.session import JsonOption, Link, speaker_of, talks
from tieline.contract.scope import matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tieline.agents.digest import Digest, Over
    from tieline.client import Client, Item, Message

_PAST = 500
"""Number of past messages to read: enough for one member's traffic of a night."""
_SUSPECTS_MAX = 50
"""Most messages whose receipts are read."""


async def print_digest(
    client: "Client", items: "Sequence[Item]", match: str | None, older_hours: float, *, json: bool
) -> None:
    """Print the waiting messages and those that are over, one line for each."""
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
    from tieline.agents.framing import age

    if not lines:
        return
    say(f"{title}:", style="bold")
    now_ms = time.time_ns() // 1_000_000
    for message, why in lines:
        urgent = "" if message.priority == "normal" else f" [{message.priority.value}]"
        old = age((now_ms - message.sent_at_ms) // 1000)
        line = f"{message.id}  {message.sender} → {message.target}, {old} ago{urgent}: {excerpt(message)}"
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
    """Return the messages that are over, by their receipts, oldest first."""
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
        list[str] | None, typer.Argument(metavar="ID…", help="Ids from the inbox, or their beginnings.")
    ] = None,
    obsolete: Annotated[
        bool, typer.Option("--obsolete", help="All that 'inbox --digest' calls probably obsolete.")
    ] = False,
    older: OlderOption = OLDER_HOURS,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why; the senders see it.")] = "",
    json: JsonOption = False,
) -> None:
    """Say that messages will not be handled, and why.

    Their senders see them as expired, with who discarded them and why; the audit chain keeps it. They stay in 'tieline
    history'.
    """
    import asyncio

    if bool(ids) == obsolete:
        raise Failure(Exit.USAGE, "name messages by their ids, or --obsolete")
    async with await link.open_member() as client:
        items = await unsettled(client)
        if obsolete:
            found = (await _digest(client, items, older)).obsolete
            chosen = [(each.item, because or each.why) for each in found]
        else:
            whole = {id if len(id) >= ID_CHARS else await complete_id(client, id) for id in ids or ()}
            chosen = [(item, because or "not needed") for item in items if item.message.id in whole]
            missing = whole - {item.message.id for item, _ in chosen}
            if missing:
                raise Failure(Exit.REFUSED, f"{', '.join(sorted(missing))} does not wait for {speaker_of(client)}")
        await asyncio.gather(*(client.discard(item, reason=reason) for item, reason in chosen))
    if json:
        print_json([item for item, _ in chosen])
        return
    for item, reason in chosen:
        say(neutral_line(f"{item.message.id}  discarded: {reason}"))
    if not chosen:
        say("Nothing is obsolete.")
