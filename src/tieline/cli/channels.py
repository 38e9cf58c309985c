"""The commands for channels: joining, leaving, listing.

Used by: the command line. Uses: a session with a hub, or a mailbox (messages in a folder) without one.
"""

from typing import Annotated

import typer

from tieline.cli.completion import complete_channel
from tieline.cli.names import warn_of_unknown
from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, speaker_of, talks_anywhere

ChannelArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHANNEL", help="With or without its '#'.", show_default=False, autocompletion=complete_channel
    ),
]


@talks_anywhere
async def sub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Join a channel. The first member to join creates it."""
    await _join_or_leave(link, channel, joins=True, json=json)


@talks_anywhere
async def unsub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Leave a channel."""
    await _join_or_leave(link, channel, joins=False, json=json)


@talks_anywhere
async def channels(link: Link, json: JsonOption = False) -> None:
    """List channels and their members. Everybody is in a hub's #general."""
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.channels(json=json)
        return
    async with await link.open() as client:
        found = await client.channels()
    if json:
        print_json(found)
        return
    rows = [(f"#{channel.name}", ", ".join(channel.subscribers)) for channel in found]
    print_table(("channel", "subscribers"), rows, empty="No channels yet: 'tieline sub CHANNEL' makes one.")


async def _join_or_leave(link: Link, channel: str, *, joins: bool, json: bool) -> None:
    mailbox = link.mailbox()
    if mailbox is not None:
        name = mailbox.subscribe(channel) if joins else mailbox.unsubscribe(channel)
    else:
        async with await link.open_member() as client:
            if not joins:
                await warn_of_unknown(client, f"#{channel.removeprefix('#')}")
            await (client.subscribe(channel) if joins else client.unsubscribe(channel))
            name = speaker_of(client)
    bare = channel.removeprefix("#")
    if json:
        from tieline.cli.documents import Subscription

        print_json(Subscription(name, bare, joins))
    else:
        say(f"{name} is {'in' if joins else 'not in'} {neutral_line(f'#{bare}')}.")
