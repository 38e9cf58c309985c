"""`tieline search`: finds messages with given words, among the messages that a member may see.

Used by: the command line. Uses: a session with a hub.
"""

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_member, complete_target
from tieline.cli.failure import Exit, Failure
from tieline.cli.messages import AllOption, say_whose
from tieline.cli.names import check_names, check_place
from tieline.cli.output import print_messages
from tieline.cli.session import JsonOption, Link, talks
from tieline.cli.short_ids import find_target, find_thread

if TYPE_CHECKING:
    from tieline.client import Client

_AGO = re.compile(r"(\d{1,6})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment_ms(text: str, now: float) -> int:
    """Parse a time, such as `2h` (two hours before `now`) or `2026-01-31T09:00`. Return it in milliseconds since 1970.

    Raise `ValueError` for other text.
    """
    ago = _AGO.match(text)
    if ago:
        return int((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return moment_ms(text, time.time())
    except (ValueError, OverflowError) as error:
        message = f"{option} {text!r} is not a time: use 2h, 3d or 2026-11-16T09:30"
        raise Failure(Exit.USAGE, message) from error


@talks
async def search(  # noqa: PLR0913, PLR0917 - one parameter an option
    link: Link,
    query: Annotated[
        list[str],
        typer.Argument(metavar="QUERY", help='Words; "a phrase"; begin* finds beginnings.', show_default=False),
    ],
    sender: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="Only messages from this member.", autocompletion=complete_member),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="WHERE",
            help="Only messages with @member, or in #channel, obj:<id> or a thread.",
            autocompletion=complete_target,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="T", help="Only messages after this time: 2h, 3d (ago), 2026-11-16T09:30.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="T", help="Only messages before this time.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of messages; the newest are shown.")
    ] = 50,
    everybody: AllOption = False,
    json: JsonOption = False,
) -> None:
    """Search messages.

    A message must contain all words. The oldest comes first; with --json, the newest.
    """
    async with await (link.open_all() if everybody else link.or_stored().open()) as client:
        where = await _find_place(client, place) if place else None
        found = await client.search(
            " ".join(query),
            sender=sender.removeprefix("@") if sender else None,
            place=where,
            from_ms=_moment("--since", since),
            to_ms=_moment("--until", until),
            limit=limit,
        )
        if not found:
            if sender:
                await check_names(client, f"@{sender.removeprefix('@')}")
            if where:
                await check_place(client, where)
    print_messages(found, json=json, none="Nothing was found.")
    if not everybody:
        say_whose(link, "search", json=json)


async def _find_place(client: "Client", place: str) -> str:
    """Return `place` in the form that the hub's search accepts: a target, or the full name of a thread."""
    if place.startswith(("@", "#", "obj:")):
        return await find_target(client, place)
    return await find_thread(client, place.removeprefix("thread:"))
