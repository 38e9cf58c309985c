"""`tieline log`: lists the hub's logs and their readers. The hub keeps rows that a reader has not read yet.

Used by: the command line. Uses: a session with a hub.
"""

from typing import Annotated

import typer

from tieline.cli.completion import complete_reader
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, talks

log_app = typer.Typer(help="List the logs and their readers.", no_args_is_help=True)


@log_app.command("readers")
@talks
async def readers(link: Link, json: JsonOption = False) -> None:
    """List the logs with their epochs, and their readers with their positions.

    Retention keeps what a reader has not read, up to the limits reader_wait_ms and reader_wait_bytes. Needs log.read.
    """
    async with await link.open_operator() as client:
        found = await client.readers()
    if json:
        from tieline.cli.documents import LogReaders, fill

        print_json(fill(LogReaders, found))
        return
    print_table(
        ("log", "epoch", "rows", "kept from"),
        [(one.log, one.epoch, str(one.end), str(one.kept_from)) for one in found.logs],
        empty="",
    )
    ends = {one.log: one.end for one in found.logs}
    print_table(
        ("reader", "log", "position", "unread", "missed", "set at", "by"),
        [
            (
                one.name,
                one.log,
                str(one.position),
                str(ends[one.log] - one.position),
                str(one.missed),
                local_time(one.at_ms),
                one.by,
            )
            for one in found.readers
        ],
        empty="There are no readers.",
    )


@log_app.command("forget")
@talks
async def forget(
    link: Link,
    name: Annotated[str, typer.Argument(metavar="READER", help="Name of the reader.", autocompletion=complete_reader)],
) -> None:
    """Forget a reader, so that the hub keeps nothing for it. Needs log.read."""
    async with await link.open_operator() as client:
        await client.forget_reader(name)
    say(neutral_line(f"The reader {name} is forgotten."))
