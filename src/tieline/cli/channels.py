"""Channels: joining, leaving, listing, pausing conversations, letting them go on, lifting their limits.

Above: the command line. Below: a session with a hub, or `local` without one.
"""

from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import JsonOption, Link, speaker_of, talks, talks_anywhere

ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="With or without its '#'.", show_default=False)]


@talks_anywhere
async def sub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Join a channel, which comes to be with its first subscriber."""
    postbox = link.postbox()
    if postbox is not None:
        from tieline.cli import local

        _tell(local.subscribe(link, postbox, channel), channel, joined=True, json=json)
        return
    async with await link.open_member() as client:
        await client.subscribe(channel)
        _tell(speaker_of(client), channel, joined=True, json=json)


@talks_anywhere
async def unsub(link: Link, channel: ChannelArgument, json: JsonOption = False) -> None:
    """Leave a channel."""
    postbox = link.postbox()
    if postbox is not None:
        from tieline.cli import local

        _tell(local.unsubscribe(link, postbox, channel), channel, joined=False, json=json)
        return
    async with await link.open_member() as client:
        await client.unsubscribe(channel)
        _tell(speaker_of(client), channel, joined=False, json=json)


_Conversation = Annotated[
    str, typer.Argument(metavar="CONVERSATION", help="As a receipt names it: thread:ID, #channel, obj:ID or @a+@b.")
]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


@talks
async def pause(link: Link, conversation: _Conversation) -> None:
    """Hold what is said in a conversation for ten minutes, but by people.

    It is accepted and kept, and delivered in order when the pause ends.
    """
    async with await link.open_operator() as client:
        await client.pause_thread(conversation)
        say(f"{neutral_line(conversation)} is paused.")


@talks
async def resume(link: Link, conversation: _Conversation) -> None:
    """Let a conversation go on that is paused or held, and deliver what waits in it."""
    async with await link.open_operator() as client:
        await client.resume_thread(conversation)
        say(f"{neutral_line(conversation)} may go on.")


@talks
async def allow(
    link: Link,
    conversation: _Conversation,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long: a number with s, m, h or d behind it.")
    ] = "2h",
) -> None:
    """Lift the limits on agents that answer each other, for one conversation and a while.

    What is held in it is delivered.
    """
    seconds = _seconds(for_)
    async with await link.open_operator() as client:
        await client.allow_thread(conversation, seconds * 1000)
        say(f"{neutral_line(conversation)} has no limits for {for_}.")


def _seconds(text: str) -> int:
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not number.isdecimal() or not 0 < int(number) * unit <= _UNITS["d"] * 366:
        raise Failure(Exit.USAGE, f"{text!r} is no time of up to a year", "for example --for 90m, or 2h")
    return int(number) * unit


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


def _tell(name: str, channel: str, *, joined: bool, json: bool) -> None:
    """Say how a member stands to a channel now."""
    bare = channel.removeprefix("#")
    if json:
        print_json({"member": name, "channel": bare, "subscribed": joined})
    else:
        say(f"{name} is {'in' if joined else 'not in'} {neutral_line(f'#{bare}')}.")
