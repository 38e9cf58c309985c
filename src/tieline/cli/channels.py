"""Channels: joining, leaving, listing, and letting paused ones go on.

Above: the command line. Below: a session with a hub, or `local` without one.
"""

from typing import Annotated

import typer

from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, speaker_of, talks, talks_anywhere

ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="With or without its '#'.", show_default=False)]


@talks_anywhere
async def sub(link: Link, channel: ChannelArgument) -> None:
    """Join a channel, which comes to be with its first subscriber."""
    postbox = link.postbox()
    if postbox is not None:
        from tieline.cli import local

        say(f"{local.subscribe(link, postbox, channel)} is in {_named(channel)}.")
        return
    async with await link.open_member() as client:
        await client.subscribe(channel)
        say(f"{speaker_of(client)} is in {_named(channel)}.")


@talks_anywhere
async def unsub(link: Link, channel: ChannelArgument) -> None:
    """Leave a channel."""
    postbox = link.postbox()
    if postbox is not None:
        from tieline.cli import local

        say(f"{local.unsubscribe(link, postbox, channel)} is not in {_named(channel)}.")
        return
    async with await link.open_member() as client:
        await client.unsubscribe(channel)
        say(f"{speaker_of(client)} is not in {_named(channel)}.")


@talks
async def resume(
    link: Link,
    conversation: Annotated[
        str, typer.Argument(metavar="CONVERSATION", help="As the refusal names it: thread:ID, #channel or @a+@b.")
    ],
) -> None:
    """Let a conversation go on that was paused because agents looped in it."""
    async with await link.open_operator() as client:
        await client.resume_thread(conversation)
        say(f"{neutral_line(conversation)} may go on.")


@talks_anywhere
async def channels(link: Link, json: JsonOption = False) -> None:
    """List channels and who is in them; #general of a hub holds everybody."""
    postbox = link.postbox()
    if postbox is not None:
        from tieline.cli import local

        local.channels(postbox, json=json)
        return
    async with await link.open() as client:
        found = await client.channels()
    if json:
        print_json(found)
        return
    rows = [(f"#{channel.name}", ", ".join(channel.subscribers)) for channel in found]
    print_table(("channel", "subscribers"), rows, empty="No channels yet: 'tieline sub CHANNEL' makes one.")


def _named(channel: str) -> str:
    return neutral_line(f"#{channel.removeprefix('#')}")
