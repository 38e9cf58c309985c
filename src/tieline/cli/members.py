"""The commands for members: listing, creating and removing members, their tokens, and the ways to reach them.

Used by: the command line. Uses: a session with a hub, or `offline` if no hub runs, or a mailbox without a hub.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tieline.cli.completion import complete_member
from tieline.cli.failure import Exit, Failure
from tieline.cli.names import check_names
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say, warn
from tieline.cli.session import JsonOption, Link, talks, talks_anywhere
from tieline.cli.short_ids import complete, short_id, short_objective
from tieline.contract.member import ROOM_INVITATION, MemberKind
from tieline.contract.refusal import Code
from tieline.wire.native.errors import HubRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tieline.cli.offline import MemberAdmin
    from tieline.client import Issued, Leg, MemberView

member_app = typer.Typer(help="Create, list and remove members.", no_args_is_help=True)

_WAY_SECONDS = 60.0
"""Default timeout, in seconds, of a way (a method to show a message to a member). After this time a message is
escalated to the next way. A turn of an agent may take this long."""

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False, autocompletion=complete_member)
]


@member_app.command("add")
@talks
async def add(
    link: Link,
    name: NameArgument,
    token: Annotated[
        str | None, typer.Option("--token", metavar="T", help="Token of the member. Default: the hub creates one.")
    ] = None,
    permission: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Permission, e.g. members.manage; may be given several times.")
    ] = None,
    kind: Annotated[
        MemberKind, typer.Option(help="Kind of the member. A script is a program without a model.")
    ] = MemberKind.AGENT,
    json: JsonOption = False,
) -> None:
    """Create a member and print its token, which is shown only once.

    Works with the hub running or not. With --url, the token in TIELINE_TOKEN must belong to a member that may do this.
    """
    async with await open_member_admin(link, make=True) as hub:
        try:
            issued = await hub.add_member(name, kind=kind, permissions=tuple(permission or ()), token=token)
        except HubRefused as error:
            if error.code is Code.NAME_TAKEN and name in [each.name for each in await hub.members()]:
                raise _member_already(name) from error
            raise
    _print_issued(issued, f"{issued.member} is a member now.", json=json)


def _member_already(name: str) -> Failure:
    hint = f"'tieline member kind {name} KIND' changes its kind, and 'tieline member rotate {name}' its token"
    return Failure(Exit.REFUSED, f"{name} is a member already", hint, word=Code.NAME_TAKEN.value)


@member_app.command("list")
@talks
async def list_members(link: Link, json: JsonOption = False) -> None:
    """List members, with the hub running or not."""
    async with await open_member_admin(link) as hub:
        members = await hub.members()
    _print_members(members, json=json)


@member_app.command("remove")
@talks
async def remove(
    link: Link,
    name: NameArgument,
    rotate_room: Annotated[
        bool, typer.Option("--rotate-room", help="Also replace the room token, which the member may know.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Remove a member. Its sessions end, its tokens become invalid, and its waiting messages are not delivered.

    The invitations that it made, that are for its name, or with which it joined end too. The room token stays: whoever
    knows it can join again, under any name, unless --rotate-room replaces it. Its open objectives stay assigned to it,
    and are named.
    """
    from tieline.cli.objectives import OPEN, all_objectives

    async with await open_member_admin(link) as hub:
        left = [one.id for one in await all_objectives(hub, OPEN, name)]
        dropped = sum(one.backlog for one in await hub.members() if one.name == name)
        channels = [f"#{one.name}" for one in await hub.channels()]
        await hub.remove_member(name)
        kept = {f"#{one.name}" for one in await hub.channels()}
        emptied = [one for one in channels if one not in kept]
        has_room = any(one.id == ROOM_INVITATION for one in await hub.invitations())
        made = await hub.invite(room=True) if has_room and rotate_room else None
    if json:
        from tieline.cli.documents import OPTIONAL, RemovedMember

        token = OPTIONAL if made is None else made.secret
        still_works = has_room and made is None
        print_json(
            RemovedMember(name, removed=True, room_token_works=still_works, open_objectives=left, room_token=token)
        )
        return
    say(f"{neutral_line(name)} is not a member any more.")
    if dropped:
        many = "1 message that waited for it is" if dropped == 1 else f"{dropped} messages that waited for it are"
        say(f"{many} not delivered any more.")
    if emptied:
        ended = "is no channel" if len(emptied) == 1 else "are no channels"
        say(neutral_line(f"{', '.join(emptied)} {ended} any more: nobody else was in it."))
    if left:
        ids = ", ".join(map(short_objective, left))
        warn(neutral_line(f"Open objectives are still assigned to {name}: {ids}."))
        warn(
            "'tieline objectives reassign ID NAME' gives one to another member, 'tieline objectives cancel ID' ends it."
        )
    if made is not None:
        say("The hub has a new room token; the old one is refused.")
        say(f"  token: {neutral_line(made.secret)}")
    elif has_room:
        say("Whoever knows the room token can still join: 'tieline invite rotate' replaces it.")
        say("A member that joined by an invitation for one person was not told the room token.")


@member_app.command("rotate")
@talks
async def rotate(link: Link, name: NameArgument, json: JsonOption = False) -> None:
    """Replace a member's tokens by a new one. Its login sessions and its authenticator app end with the old ones."""
    async with await open_member_admin(link) as hub:
        issued = await hub.rotate_token(name)
    ended = "its old tokens, login sessions and authenticator app are invalid"
    _print_issued(issued, f"{issued.member} has a new token; {ended}.", json=json)


@member_app.command("tokens")
@talks
async def tokens(
    link: Link,
    name: NameArgument,
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="Revoke this token first.")] = None,
    json: JsonOption = False,
) -> None:
    """List a member's tokens: also login sessions, and the authenticator app. A token itself is never shown."""
    async with await link.open_operator() as hub:
        if revoke is not None:
            known = [token.id for token in await hub.tokens(name)]
            await hub.revoke_token(name, complete(revoke, known, "token"))
        found = await hub.tokens(name)
    if json:
        print_json(found)
        return
    rows = [
        (
            short_id(token.id),
            token.label or "–",
            token.created_by,
            local_time(token.created_at_ms),
            local_time(token.last_used_ms) if token.last_used_ms else "–",
            local_time(token.expires_at_ms) if token.expires_at_ms else "never",
        )
        for token in found
    ]
    columns = ("id", "label", "made by", "made", "last used", "expires")
    print_table(columns, rows, empty=f"{neutral_line(name)} has no token: 'tieline member rotate' makes one.")


@member_app.command("kind")
@talks
async def kind(
    link: Link,
    name: NameArgument,
    what: Annotated[MemberKind, typer.Argument(metavar="KIND", help="agent, human or script.", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Change the kind of a member.

    The hub slows and holds agents that answer each other without end. A script is a program without a model.
    """
    async with await link.open_operator() as hub:
        member = await hub.update_member(name, kind=what)
    if json:
        print_json(member)
    else:
        say(f"{neutral_line(name)} is {'an' if what is MemberKind.AGENT else 'a'} {what} now.")


@member_app.command("alias")
@talks
async def alias(
    link: Link,
    name: NameArgument,
    other: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ALIAS]…", help="Other names, which reach the same member.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete these aliases.")] = False,
    json: JsonOption = False,
) -> None:
    """Add other names for a member. Without ALIAS, list its aliases.

    A message to an alias goes to the member, with a note. Changes need the permission team.manage.
    """
    async with await link.open_operator() as hub:
        await check_names(hub, f"@{name}")
        team = await hub.update_team(aliases=dict.fromkeys(other or (), None if remove else name))
    known = [one for one, whose in sorted(team.aliases.items()) if whose == name]
    if json:
        print_json(known)
    else:
        say(f"{neutral_line(name)}: {', '.join(map(neutral_line, known)) or 'no aliases'}")


@member_app.command("reach")
@talks
async def reach(
    link: Link,
    name: NameArgument,
    way: Annotated[
        list[str] | None,
        typer.Option(
            "--way",
            metavar="WAY[=SECONDS]",
            help="Way and its timeout (60 s): push, hook, pty, pull or notify. Repeat it, in order.",
        ),
    ] = None,
    urgent: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Longest timeout of each way for an urgent message.")
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(metavar="MEMBER", help="Member that the way 'notify' writes to.", autocompletion=complete_member),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all ways: messages are no longer escalated.")] = False,
    json: JsonOption = False,
) -> None:
    """Set the ways to reach a member, or show them.

    A message without evidence that it was seen within a way's timeout is escalated to the next way. Its receipts show
    the current way. Without --as, on the hub's machine, the operator makes the change.
    """
    from tieline.client import Reach

    if clear and (way or urgent is not None or notify):
        raise Failure(Exit.USAGE, "--clear cannot be combined with --way, --urgent or --notify")
    if (urgent is not None or notify) and not way:
        raise Failure(Exit.USAGE, "--urgent and --notify need --way, for example --way push --way notify")
    legs = tuple(_leg(text) for text in way or ())
    given = Reach(legs, None if urgent is None else round(urgent * 1000), notify or "") if legs or clear else None
    async with await link.open_operator() as client:
        kept = await client.reach(name, given)
    if json:
        print_json(kept)
        return
    rows = [(str(place), leg.way.value, f"{leg.wait_ms / 1000:g} s") for place, leg in enumerate(kept.legs, start=1)]
    print_table(("", "way", "timeout"), rows, empty=f"{name} has no ways: its messages are not escalated.")
    if kept.urgent_ms is not None:
        say(f"For an urgent message, each timeout is at most {kept.urgent_ms / 1000:g} s.")
    if kept.notify:
        say(f"'notify' writes to {kept.notify}.")


def _leg(text: str) -> "Leg":
    """Parse and return a way (a method to show a message to a member) and its timeout in seconds, such as `push=30`.

    Raise `Failure` for other text.
    """
    from tieline.client import Leg, Way

    word, equals, seconds = text.partition("=")
    if word not in list(Way):
        raise Failure(Exit.USAGE, f"{word!r} is not a way; use one of {', '.join(Way)}")
    try:
        given = float(seconds) if equals else _WAY_SECONDS
        return Leg(Way(word), round(given * 1000))
    except (ValueError, OverflowError) as error:
        raise Failure(Exit.USAGE, f"{seconds!r} is not a number of seconds") from error


@talks_anywhere
async def members(link: Link, json: JsonOption = False) -> None:
    """List members, their connections, and the number of messages that wait for them.

    WAITING counts messages that can still be acknowledged, and were not: also those that were seen.
    """
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.members(json=json)
        return
    async with await link.open() as client:
        found = await client.members()
    _print_members(found, json=json)


@talks_anywhere
async def whoami(link: Link, json: JsonOption = False) -> None:
    """Show your member name, and your hub."""
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.whoami(json=json)
        return
    async with await link.or_stored().open() as client:
        welcome = client.welcome
    assert welcome is not None, "an open session was welcomed"
    from tieline.wire.address import split_pin

    url, _ = link.way()
    where = split_pin(url)[0] if url else str(link.folder)
    if json:
        from tieline.cli.documents import Speaker, fill

        print_json(fill(Speaker, welcome, hub=where))
    elif welcome.member is None:
        say(f"the operator of the hub in {where}, who manages members and cannot send; use --as NAME to send")
    else:
        say(f"{welcome.member}, through the hub {'at' if url else 'in'} {where}")


async def open_member_admin(link: Link, *, make: bool = False) -> AbstractAsyncContextManager["MemberAdmin"]:
    """Return a session with the running hub, to manage members. If no hub runs on this machine, return an `OfflineHub`.

    With `make`, the home folder is created if there is none.
    """
    from tieline.client import HubUnreachable

    try:
        return cast(AbstractAsyncContextManager["MemberAdmin"], await link.open_operator())
    except HubUnreachable:
        if link.way() != (None, None):
            raise
    from tieline.cli.offline import OfflineHub
    from tieline.wire.home import KEY_FILE

    home = link.folder
    if not make and not (home / KEY_FILE).exists():
        raise Failure(Exit.UNREACHABLE, f"there is no hub in {home}", f"start one with 'tieline serve --home {home}'")
    hub = OfflineHub(home)
    warn(f"No hub is running in {home}; this works on its database.")
    return hub


def _print_issued(issued: "Issued", sentence: str, *, json: bool) -> None:
    if json:
        from tieline.cli.documents import NewToken, fill

        print_json(fill(NewToken, issued))
        return
    say(sentence)
    say(f"  token: {neutral_line(issued.token)}")
    say("It is shown only once. Set TIELINE_TOKEN to it where the member works; on the hub's machine,")
    say(f"--as {issued.member} is enough.")


def _sessions(protocols: "Sequence[str]") -> str:
    """Return the protocols of a member's sessions as text. A protocol with two sessions is followed by `×2`."""
    from collections import Counter

    return ", ".join(f"{name} ×{many}" if many > 1 else name for name, many in Counter(protocols).items())


def _print_members(found: "Sequence[MemberView]", *, json: bool) -> None:
    if json:
        print_json(found)
        return
    rows = [
        (
            member.name,
            member.kind,
            _sessions(member.sessions) or "–",
            f"{member.backlog} ({member.held} held)" if member.held else str(member.backlog),
            local_time(member.last_seen_ms) if member.last_seen_ms else "never",
            ", ".join(member.permissions),
        )
        for member in found
    ]
    columns = ("name", "kind", "connected by", "waiting", "last seen", "permissions")
    print_table(columns, rows, empty="No members yet: 'tieline member add NAME' creates one.")
