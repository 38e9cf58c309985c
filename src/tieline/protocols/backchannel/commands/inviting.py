"""Inviting: the commands that make, list and revoke invitations, and that replace the room token.

Used by: the command line. Uses: a session with a hub, which stores the invitations. An invite is the string that people
pass on: the address of the hub, the secret of an invitation, and the fingerprint of the hub's certificate.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say, warn
from tieline.cli.session import HomeOption, JsonOption, Link, SpoolOption, ended_by, talks
from tieline.cli.short_ids import complete
from tieline.contract.member import MemberKind

if TYPE_CHECKING:
    from tieline.client import InvitationView
    from tieline.wire.home import Running

invite_app = typer.Typer(
    help="Make an invite: a string with which somebody else joins. Also list and revoke invitations.",
    invoke_without_command=True,
)

_LOOPBACK = ("127.", "localhost", "[::1]")
_NEVER = "never"


@invite_app.callback()
def invite(  # noqa: PLR0913, PLR0917 - one parameter an option
    context: typer.Context,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the new member. Default: it chooses one.")
    ] = None,
    expires: Annotated[str, typer.Option(metavar="TIME", help="A number followed by s, m, h or d; or 'never'.")] = "1d",
    uses: Annotated[int, typer.Option(metavar="N", min=1, help="Number of members that can join with it.")] = 1,
    kind: Annotated[
        MemberKind, typer.Option(help="Kind of the new member. A script is a program without a model.")
    ] = MemberKind.AGENT,
    channel: Annotated[
        list[str] | None,
        typer.Option(metavar="C", help="Channel that the new member joins; may be given several times."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Address to join. Default: that of the hub.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="T", help="Make no invitation: print an invite with this room token."),
    ] = None,
    home: HomeOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Make an invitation, and print it as a string for 'tieline join' or 'bch join'.

    Whoever has the string can become a member, so send it privately. Needs the permission members.manage, or the key of
    the hub's home.
    """
    if context.invoked_subcommand is not None:
        return
    wanted = {"member": name, "expires": expires, "uses": uses, "kind": kind}
    link = Link(home=home, url=url, spool=spool)
    ended_by(lambda: _invite(link, token, channel or [], wanted, json=json), json=json)


def _invite(link: Link, token: str | None, channels: list[str], wanted: dict[str, Any], *, json: bool) -> None:
    import asyncio

    from tieline.protocols.backchannel.codec import channel_of
    from tieline.protocols.backchannel.invite import Invite, encode_invite
    from tieline.wire.address import check_url, split_pin

    names = []
    for text in channels:
        channel = channel_of(text)
        if not isinstance(channel, str):
            raise Failure(Exit.USAGE, channel.message)
        names.append(channel)
    pinned, hub = _find_hub(link)
    address, fingerprint = split_pin(pinned)
    try:
        address = check_url(address)
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error), "no invitation was made") from error
    view: InvitationView | None = None
    if token is None and hub is not None:
        token, view = asyncio.run(_make(hub, wanted))
    if not token:
        warn("Without a room token, the invite works only if registration is open. Give a token with --token.")
    if address.partition("://")[2].startswith(_LOOPBACK):
        warn("This address works only on this machine. Give another address with --url.")
    text = encode_invite(Invite(address, token or None, None, tuple(names), fingerprint, wanted["member"]))
    if json:
        from tieline.protocols.backchannel.commands.documents import Invited

        print_json(Invited(text, address, view))
        return
    say(text)
    if view is not None:
        end = "never ends" if view.expires_at_ms is None else f"ends {local_time(view.expires_at_ms)}"
        times = "once" if view.uses == 1 else f"{view.uses} times"
        warn("The newcomer runs: tieline join INVITE, with this text as the invite.")
        warn(f"It works {times} and {end}; 'tieline invite revoke {view.id}' ends it now.")


def _find_hub(link: Link) -> tuple[str, Link | None]:
    """Return the address that an invite names, and the link to the hub that makes the invitation.

    The link is `None` if only a relay is known that is no hub: such a relay makes no invitations, and newcomers need
    its room token.
    """
    from tieline.protocols.backchannel.commands.spool_location import stored_identity
    from tieline.wire.home import read_running

    running = read_running(link.folder)
    if running is not None:
        # The hub of the home makes the invitation, whatever the address is that others use.
        return _address_of(running, link.named_url), Link(home=link.folder)
    stored = stored_identity(link)
    address = link.address or stored.pinned_url
    if address is None:
        hint = "name one with --url, or start a hub with 'tieline serve'"
        raise Failure(Exit.UNREACHABLE, "there is no hub or relay to invite to", hint)
    return address, link if stored.is_hub and address == stored.pinned_url else None


def _address_of(running: "Running", named: str | None) -> str:
    """Return the address for an invite to a running hub: `named` if the user named an address, else the hub's own.

    Without a scheme, `named` gets the scheme of the hub's own address. If it is an https address without a fingerprint,
    it gets the fingerprint of the hub's own certificate. But if the hub is behind a proxy, the proxy shows another
    certificate, so no fingerprint is added.
    """
    from urllib.parse import urlsplit

    from tieline.wire.address import split_pin, with_pin

    if named is None:
        return running.invited_to
    if "://" not in named:
        named = f"{urlsplit(running.invited_to).scheme}://{named}"
    address, fingerprint = split_pin(named)
    if fingerprint is None and urlsplit(address).scheme == "https":
        # The hub's own address has no fingerprint if a proxy is before it.
        _, fingerprint = split_pin(running.invited_to)
    return with_pin(address, fingerprint)


async def _make(link: Link, wanted: dict[str, Any]) -> tuple[str, "InvitationView"]:
    from tieline.cli.duration import duration_option

    expires_at_ms = None
    if wanted["expires"] != _NEVER:
        expires_at_ms = int(time.time() * 1000) + 1000 * duration_option(wanted["expires"], "--expires")
    async with await link.open_operator() as hub:
        made = await hub.invite(
            member=wanted["member"], expires_at_ms=expires_at_ms, uses=wanted["uses"], kind=wanted["kind"]
        )
    return made.secret, made.view


@invite_app.command("list")
@talks
async def list_invitations(link: Link, json: JsonOption = False) -> None:
    """List the invitations with which somebody can still join. Their secrets are never shown."""
    async with await link.open_operator() as hub:
        found = await hub.invitations()
    if json:
        print_json(found)
        return
    rows = [
        (
            one.id,
            neutral_line(one.member) or "any name",
            "any number" if one.uses is None else str(one.uses),
            local_time(one.expires_at_ms) if one.expires_at_ms else _NEVER,
            neutral_line(one.created_by),
            ", ".join(map(neutral_line, one.joined)) or "–",
        )
        for one in found
    ]
    columns = ("id", "for", "uses left", "ends", "made by", "joined with it")
    print_table(columns, rows, empty="There are no invitations: 'tieline invite' makes one.")


@invite_app.command("revoke")
@talks
async def revoke(
    link: Link,
    invitation: Annotated[
        str, typer.Argument(metavar="ID", help="Id in 'tieline invite list', or its beginning.", show_default=False)
    ],
    json: JsonOption = False,
) -> None:
    """Revoke an invitation: nobody can join with it any more. Members who have joined stay."""
    async with await link.open_operator() as hub:
        whole = complete(invitation, [one.id for one in await hub.invitations()], "invitation")
        await hub.revoke_invitation(whole)
    if json:
        from tieline.protocols.backchannel.commands.documents import RevokedInvitation

        print_json(RevokedInvitation(whole))
    else:
        say(f"Nobody can join with {neutral_line(whole)} any more.")


@invite_app.command("rotate")
@talks
async def rotate(link: Link, json: JsonOption = False) -> None:
    """Replace the room token, with which anybody can become a member. The old one is refused at once.

    The token in tieline.toml has no effect any more, also after a restart, until somebody writes another one there.
    """
    async with await link.open_operator() as hub:
        made = await hub.invite(room=True)
    if json:
        from tieline.protocols.backchannel.commands.documents import NewRoomToken

        print_json(NewRoomToken(made.secret, made.view))
        return
    say("The hub has a new room token; the old one is refused.")
    say(f"  token: {neutral_line(made.secret)}")
    say("It is shown only once. 'tieline invite revoke room' ends it.")
