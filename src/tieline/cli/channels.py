"""Channels: joining, leaving, listing.

Above: the command line. Below: a session with a hub, or a mailbox without one.
"""

from typing import Annotated

import typer

from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, speaker_of, talks_anywhere

ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="With or without its '#'.", show_default=False)]


@talks_anywhere
async def sub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Join a channel, which comes to be with its first subscriber."""
    mailbox = link.mailbox()
    if mailbox is not None:
        _tell(mailbox.subscribe(channel), channel, joined=True, json=json)
        return
    async with await link.open_member() as client:
        await client.subscribe(channel)
        _tell(speaker_of(client), channel, joined=True, json=json)


@talks_anywhere
async def unsub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Leave a channel."""
    mailbox = link.mailbox()
    if mailbox is not None:
        _tell(mailbox.unsubscribe(channel), channel, joined=False, json=json)
        return
    async with await link.open_member() as client:
        await client.unsubscribe(channel)
        _tell(speaker_of(client), channel, joined=False, json=json)


@talks_anywhere
async def channels(link: Link, json: JsonOption = False) -> None:
    """List channels and who is in them; #general of a hub holds everybody."""
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


def _tell(name: str, channel: str, *, joined: bool, json: bool) -> None:
    """Print that a member is now in a channel, or is not."""
    bare = channel.removeprefix("#")
    if json:
        print_json({"member": name, "channel": bare, "subscribed": joined})
    else:
        say(f"{name} is {'in' if joined else 'not in'} {neutral_line(f'#{bare}')}.")
