"""The commands for pauses: hold the messages of a conversation, deliver them, lift its limits, and list pauses.

Used by: the command line. Uses: a session with a hub.
"""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_conversation
from tieline.cli.duration import duration_option
from tieline.cli.failure import Exit, Failure
from tieline.cli.names import warn_of_unknown
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, talks
from tieline.cli.short_ids import find_target

if TYPE_CHECKING:
    from tieline.client import Client
    from tieline.wire.native.derived import PauseView

_HELP = "Name of the conversation: thread:ID, #channel, obj:ID, @a+@b, or * for messages to everybody."
_Conversation = Annotated[str, typer.Argument(metavar="CONVERSATION", help=_HELP, autocompletion=complete_conversation)]


@talks
async def pause(
    link: Link,
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="CONVERSATION",
            help=f"{_HELP} Without it, the command lists pauses.",
            autocompletion=complete_conversation,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Pause a conversation for ten minutes: hold the messages of agents and scripts, but not those of people.

    Held messages are accepted and kept, and delivered in order when the pause ends. Status and event messages are not
    held. Without CONVERSATION, list the conversations that are paused, held or allowed.
    """
    async with await link.open_operator() as client:
        if conversation is None:
            _print_pauses(await client.pauses(), json=json)
            return
        name = await _name(client, conversation)
        await warn_of_unknown(client, *_parts(name))
        await client.pause_thread(name)
        paused = await _find(client, name)
    if json:
        print_json(paused)
    else:
        until = f" until {local_time(paused.until_ms)}" if paused else ""
        say(neutral_line(f"{name} is paused{until}. To end the pause: tieline resume {shlex.quote(name)}"))


@talks
async def resume(link: Link, conversation: _Conversation, json: JsonOption = False) -> None:
    """End the pause of a conversation, and deliver its held messages."""
    async with await link.open_operator() as client:
        name = await _name(client, conversation)
        before = await _find(client, name)
        if before is None:
            await warn_of_unknown(client, *_parts(name))
        await client.resume_thread(name)
    released = before.held if before else 0
    paused = before is not None and not before.allowed
    if json:
        from tieline.cli.documents import Resumed

        print_json(Resumed(name, paused, released))
    elif before is None:
        say(neutral_line(f"{name} was not paused."))
    elif before.allowed:
        say(neutral_line(f"{name} was not paused. Its limits apply again."))
    else:
        say(neutral_line(f"{name} continues. {_delivered(released)}"))


@talks
async def allow(
    link: Link,
    conversation: _Conversation,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Duration: a number followed by s, m, h or d.")
    ] = "2h",
    json: JsonOption = False,
) -> None:
    """Lift the limits on agents that answer each other, in one conversation, for a limited time.

    Messages that are held in it are delivered.
    """
    seconds = duration_option(for_, "--for")
    async with await link.open_operator() as client:
        name = await _name(client, conversation)
        await warn_of_unknown(client, *_parts(name))
        before = await _find(client, name)
        await client.allow_thread(name, seconds * 1000)
        allowed = await _find(client, name)
    until_ms = allowed.until_ms if allowed else None
    released = before.held if before else 0
    if json:
        from tieline.cli.documents import Allowed

        print_json(Allowed(name, until_ms, released))
    else:
        until = f", until {local_time(until_ms)}" if until_ms else ""
        say(neutral_line(f"{name} has no limits for {for_}{until}. {_delivered(released)}".rstrip()))


def _print_pauses(pauses: "tuple[PauseView, ...]", *, json: bool) -> None:
    if json:
        print_json(pauses)
        return
    rows = [
        (
            pause.thread,
            "allowed" if pause.allowed else "paused" if pause.by else "held",
            local_time(pause.until_ms),
            pause.by or "the hub",
            str(pause.held),
            pause.reason,
        )
        for pause in pauses
    ]
    columns = ("conversation", "state", "until", "by", "held", "reason")
    print_table(columns, rows, empty="No conversation is paused, held or allowed.")


async def _name(client: "Client", conversation: str) -> str:
    """Return the hub's name of a conversation, such as `@a+@b`, from the text that a person typed.

    Raise `Failure` if the text names no conversation.
    """
    from tieline.contract.refusal import Refusal
    from tieline.core.loops import find_conversation

    name = find_conversation(await find_target(client, conversation))
    if isinstance(name, Refusal):
        raise Failure(Exit.REFUSED, name.message, word=name.code.value)
    return name


async def _find(client: "Client", name: str) -> "PauseView | None":
    return next((pause for pause in await client.pauses() if pause.thread == name), None)


def _parts(name: str) -> list[str]:
    """Return the targets that the name of a conversation contains."""
    return name.split("+") if name.startswith("@") else [name]


def _delivered(count: int) -> str:
    if not count:
        return "No message was held."
    return "1 held message is delivered." if count == 1 else f"{count} held messages are delivered."
