"""Joining: the commands that register a name, and accept an invite.

Used by: the command line. Uses: the spool's `config.json`, which stores the user's name, and the registration at a
relay. The token of a user is stored and never printed.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, say, warn
from tieline.cli.session import AsOption, HomeOption, Link, SpoolOption, ended_by, talks_anywhere

if TYPE_CHECKING:
    from tieline.protocols.backchannel.identity import Identity
    from tieline.protocols.backchannel.invite import Invite

NewCertificateOption = Annotated[
    bool,
    typer.Option("--new-certificate", help="Trust the new certificate of a hub that you have joined before."),
]


@talks_anywhere
async def init(
    link: Link,
    member: Annotated[str, typer.Argument(metavar="NAME", help="Your member name.", show_default=False)],
    new_certificate: NewCertificateOption = False,
) -> None:
    """Register a name, and store it as the default for later commands.

    Without a hub, the name is registered in the spool. With the hub of the home, it becomes a member of that hub. With
    --url, it is registered there; --token is then the room token.
    """
    from tieline.protocols.backchannel.commands.local import LocalMailbox
    from tieline.protocols.backchannel.commands.spool_location import spool_root, stored_identity
    from tieline.protocols.backchannel.identity import ROOM_VARIABLE, save_identity
    from tieline.protocols.backchannel.invite import Invite
    from tieline.wire.address import split_pin

    root = spool_root(link)
    stored = stored_identity(link)
    mailbox = link.mailbox()
    url = link.address or (stored.url if mailbox is not None and link.spool is None else None)
    if url is not None:
        url, fingerprint = split_pin(url)
        url = url.rstrip("/")
        if url == stored.url:
            room = stored.room
            # A new certificate may be one that an authority vouches for, which needs no fingerprint.
            fingerprint = fingerprint or (None if new_certificate else stored.fingerprint)
        else:
            room = os.environ.get(ROOM_VARIABLE)
        invited = Invite(url, link.token, room, (), fingerprint)
        await _register(link, stored, invited, member, new_certificate=new_certificate)
        return
    if isinstance(mailbox, LocalMailbox):
        mailbox.postbox.register(member)
        where = mailbox.postbox.where
    else:
        async with await link.open_operator() as operator:
            if member not in [each.name for each in await operator.members()]:
                await operator.add_member(member)
        where = f"the hub in {link.folder}"
    save_identity(root, replace(stored, agent=member))
    say(neutral_line(f"You are {member} here now, through {where}."))


def join(
    invite: Annotated[
        str,
        typer.Argument(
            metavar="INVITE", help="String that 'invite' printed; '-' reads it from stdin.", show_default=False
        ),
    ],
    member: AsOption = None,
    home: HomeOption = None,
    spool: SpoolOption = None,
    new_certificate: NewCertificateOption = False,
) -> None:
    """Accept an invite: register at its hub or relay, and use it for later commands.

    If you have joined this hub before under the same name, your stored token is used again. If the invite names another
    certificate than the stored one, the token is not sent: ask the owner of the hub, and then add --new-certificate.
    """
    link = Link(home=home, member=member, spool=spool)
    ended_by(lambda: _join(link, invite, new_certificate=new_certificate))


def _join(link: Link, text: str, *, new_certificate: bool) -> None:
    import asyncio

    from tieline.protocols.backchannel.client import RelayClient, RelayError, RelayRefused, RelayUnauthorized
    from tieline.protocols.backchannel.commands.spool_location import speaker_without_hub, stored_identity
    from tieline.protocols.backchannel.invite import BadInvite, decode_invite
    from tieline.wire.address import with_pin

    try:
        invited = decode_invite(_read_line() if text == "-" else text)
    except BadInvite as error:
        raise Failure(Exit.USAGE, str(error)) from error
    name = link.member or invited.name or speaker_without_hub(link)
    try:
        stored = stored_identity(link)
        identity = asyncio.run(_register(link, stored, invited, name, new_certificate=new_certificate))
    except RelayRefused as error:
        # The relay's own text asks for a room token, of which a person with an invitation knows nothing.
        is_invalid = invited.token is not None and isinstance(error, RelayUnauthorized)
        said = "this invitation is not valid any more" if is_invalid else str(error)
        hint = "an invitation may be used up, expired or revoked, or for another name: ask for a new one"
        raise Failure(Exit.REFUSED, said, hint) from error
    client = RelayClient(with_pin(invited.url, invited.fingerprint), identity.token, identity.room)
    for channel in invited.channels:
        try:
            client.subscribe(name, channel)
        except RelayError as error:
            warn(neutral_line(f"Not subscribed to {channel}: {error}"))
        else:
            say(neutral_line(f"{name} is in {channel}."))


def _read_line() -> str:
    """Return the invite that the user gives on stdin, as one line.

    An invite contains a secret, and other users of this machine can see the arguments of a command.
    """
    from tieline.protocols.backchannel.invite import INVITE_CHARS_MAX

    if sys.stdin.isatty():
        warn("Paste the invite, and press Enter.")
    return sys.stdin.buffer.readline(INVITE_CHARS_MAX).decode(errors="replace")


async def _register(
    link: Link, stored: "Identity", invited: "Invite", name: str, *, new_certificate: bool = False
) -> "Identity":
    """Register `name` at the relay or hub of an invite. Store name, address, token and room, and return them.

    A token that is stored for this name and address is used again, but only for the certificate that it was stored
    with, unless `new_certificate` is true. Raise `Failure` for another certificate. If the relay refuses the stored
    token, because the member was removed, the token of the invite is used.
    """
    from tieline.protocols.backchannel.client import RelayClient, RelayRefused
    from tieline.protocols.backchannel.commands.spool_location import spool_root
    from tieline.protocols.backchannel.identity import Identity, save_identity
    from tieline.wire.address import split_pin, with_pin

    url, token, room = invited.url.rstrip("/"), invited.token, invited.room
    pinned = with_pin(url, invited.fingerprint)
    known = stored.token if (stored.agent, stored.url, stored.room) == (name, url, room) else None
    if known and not new_certificate:
        _check_certificate(url, split_pin(with_pin(url, stored.fingerprint))[1], split_pin(pinned)[1])
    try:
        _, issued = RelayClient(pinned, known or token, room).register(name)
    except RelayRefused:
        if known is None or token in (None, known):
            raise
        known = None
        _, issued = RelayClient(pinned, token, room).register(name)
    personal = issued or known or token
    hub = url if await _is_hub(pinned, personal) else None
    identity = Identity(name, url, personal, hub, room, invited.fingerprint)
    save_identity(spool_root(link), identity)
    say(neutral_line(f"You are {name} here {'already' if known else 'now'}, through {url}."))
    return identity


def _check_certificate(url: str, before: str | None, now: str | None) -> None:
    """Raise `Failure` if the certificate of the hub at `url` is another one than before.

    `before` and `now` are fingerprints, or `None` for a certificate that an authority has signed.
    """
    if before == now:
        return
    known, named = (fingerprint or "none (an authority vouches for it)" for fingerprint in (before, now))
    raise Failure(
        Exit.REFUSED,
        f"the hub at {url} had the fingerprint {known} when you joined it, and now it is {named}: your token was not "
        "sent, because another program may answer there",
        "ask the hub's owner if it has a new certificate; if so, repeat the command with --new-certificate",
    )


async def _is_hub(url: str, token: str | None) -> bool:
    """True if the server is a Tieline hub: it accepts a connection with this token through Tieline's own protocol."""
    import asyncio

    from tieline.client import HubError, connect

    try:
        async with asyncio.timeout(10), await connect(url=url, token=token):
            return True
    except (HubError, TimeoutError, OSError):
        return False
