"""Joining: the commands that register a name, make an invite, and accept an invite.

Used by: the command line. Uses: the spool's `config.json`, which stores the user's name, and the registration at a
relay. The token of a user is stored and never printed.
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.session import AsOption, HomeOption, JsonOption, Link, SpoolOption, ended_by, talks_anywhere

if TYPE_CHECKING:
    from tieline.protocols.backchannel.identity import Identity
    from tieline.protocols.backchannel.invite import Invite

_LOOPBACK = ("127.", "localhost", "[::1]")


@talks_anywhere
async def init(
    link: Link,
    member: Annotated[str, typer.Argument(metavar="NAME", help="Your member name.", show_default=False)],
) -> None:
    """Register a name, and store it as the default for later commands.

    Without a hub, the name is registered in the spool. With the hub of the home, it becomes a member of that hub. With
    --url, it is registered there; --token is then the room token.
    """
    from tieline.protocols.backchannel.commands.local import LocalMailbox
    from tieline.protocols.backchannel.commands.spool_location import spool_root, stored_identity
    from tieline.protocols.backchannel.identity import ROOM_VARIABLE, Identity, save_identity
    from tieline.protocols.backchannel.invite import Invite

    root = spool_root(link)
    stored = stored_identity(link)
    mailbox = link.mailbox()
    url = link.address or (stored.url if mailbox is not None and link.spool is None else None)
    if url is not None:
        room = stored.room if url == stored.url else os.environ.get(ROOM_VARIABLE)
        await _register(link, stored, Invite(url, link.token, room), member)
        return
    if isinstance(mailbox, LocalMailbox):
        mailbox.postbox.register(member)
        where = mailbox.postbox.where
    else:
        async with await link.open_operator() as operator:
            if member not in [each.name for each in await operator.members()]:
                await operator.add_member(member)
        where = f"the hub in {link.folder}"
    save_identity(root, Identity(member, stored.url, stored.token, stored.hub, stored.room))
    say(neutral_line(f"You are {member} here now, through {where}."))


def invite(
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Address to join. Default: the hub of the home.", show_default=False),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="T", help="Room token. Default: that of the hub of the home.")
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(metavar="C", help="Channel that the new member joins; may be given several times."),
    ] = None,
    home: HomeOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Print an invite: a string for 'tieline join' or 'bch join'.

    It contains the room token. Whoever has the token can register a name, so keep the invite private.
    """
    ended_by(lambda: _invite(Link(home=home, url=url, spool=spool), token, channel or [], json=json))


def _invite(link: Link, token: str | None, channels: list[str], *, json: bool) -> None:
    from tieline.protocols.backchannel.codec import channel_of
    from tieline.protocols.backchannel.commands.spool_location import stored_identity
    from tieline.protocols.backchannel.invite import Invite, encode_invite
    from tieline.wire.home import read_running

    running = read_running(link.folder)
    address = link.address or (running.http if running else stored_identity(link).url)
    if address is None:
        hint = "name one with --url, or start a hub with 'tieline serve'"
        raise Failure(Exit.UNREACHABLE, "there is no hub or relay to invite to", hint)
    if token is None and running is not None and address == running.http:
        from tieline.protocols.backchannel.settings import BackchannelSettings
        from tieline.server.config import load_config

        token = load_config(link.folder).of(BackchannelSettings).room_token
    if not token:
        warn("Without a room token, the invite works only if registration is open. Give a token with --token.")
    names = []
    for text in channels:
        name = channel_of(text)
        if not isinstance(name, str):
            raise Failure(Exit.USAGE, name.message)
        names.append(name)
    if address.partition("://")[2].startswith(_LOOPBACK):
        warn("This address works only on this machine. Give another address with --url.")
    text = encode_invite(Invite(address, token or None, None, tuple(names)))
    if json:
        print_json({"invite": text, "url": address})
    else:
        say(text)


def join(
    invite: Annotated[str, typer.Argument(metavar="INVITE", help="String that 'invite' printed.", show_default=False)],
    member: AsOption = None,
    home: HomeOption = None,
    spool: SpoolOption = None,
) -> None:
    """Accept an invite: register at its hub or relay, and use it for later commands."""
    ended_by(lambda: _join(Link(home=home, member=member, spool=spool), invite))


def _join(link: Link, text: str) -> None:
    import asyncio

    from tieline.protocols.backchannel.client import RelayClient, RelayError
    from tieline.protocols.backchannel.commands.spool_location import speaker_without_hub, stored_identity
    from tieline.protocols.backchannel.invite import BadInvite, decode_invite

    try:
        invited = decode_invite(text)
    except BadInvite as error:
        raise Failure(Exit.USAGE, str(error)) from error
    name = speaker_without_hub(link)
    identity = asyncio.run(_register(link, stored_identity(link), invited, name))
    client = RelayClient(invited.url, identity.token, identity.room)
    for channel in invited.channels:
        try:
            client.subscribe(name, channel)
        except RelayError as error:
            warn(neutral_line(f"Not subscribed to {channel}: {error}"))
        else:
            say(neutral_line(f"{name} is in {channel}."))


async def _register(link: Link, stored: "Identity", invited: "Invite", name: str) -> "Identity":
    """Register `name` at the relay or hub of an invite. Store name, address, token and room, and return them."""
    from tieline.protocols.backchannel.client import RelayClient
    from tieline.protocols.backchannel.commands.spool_location import spool_root
    from tieline.protocols.backchannel.identity import Identity, save_identity

    url, token, room = invited.url.rstrip("/"), invited.token, invited.room
    known = stored.token if (stored.agent, stored.url, stored.room) == (name, url, room) else None
    _, issued = RelayClient(url, known or token, room).register(name)
    personal = issued or known or token
    identity = Identity(name, url, personal, url if await _is_hub(url, personal) else None, room)
    save_identity(spool_root(link), identity)
    say(neutral_line(f"You are {name} here now, through {url}."))
    return identity


async def _is_hub(url: str, token: str | None) -> bool:
    """True if the server is a Tieline hub: it accepts a connection with this token through Tieline's own protocol."""
    import asyncio

    from tieline.client import HubError, connect

    try:
        async with asyncio.timeout(10), await connect(url=url, token=token):
            return True
    except (HubError, TimeoutError, OSError):
        return False
