"""Members: listing, making and removing members, and the member of a session.

Above: the command line. Below: a session with a hub, or `offline` if no hub runs, or a mailbox without a hub.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say, warn, without_framing
from tieline.cli.session import JsonOption, Link, talks, talks_anywhere
from tieline.contract.member import MemberKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tieline.cli.offline import Registrar
    from tieline.client import Issued, Leg, MemberView

member_app = typer.Typer(help="Make, list and remove members.", no_args_is_help=True)

_WAY_SECONDS = 60.0
"""Default wait of a way: a turn of an agent may take this long."""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@member_app.command("add")
@talks
async def add(
    link: Link,
    name: NameArgument,
    token: Annotated[
        str | None, typer.Option("--token", metavar="T", help="A token of your choice, else the hub makes one.")
    ] = None,
    permission: Annotated[
        list[str] | None, typer.Option(metavar="P", help="What it may do beyond speaking, e.g. members.manage.")
    ] = None,
    kind: Annotated[MemberKind, typer.Option(help="Who is behind the name; a program is a script.")] = MemberKind.AGENT,
    json: JsonOption = False,
) -> None:
    """Make a member and print its token, which is shown this once.

    Works with the hub running or not. In a place where the hub is reached by --url, TIELINE_TOKEN says who asks.
    """
    async with await open_registrar(link, make=True) as hub:
        issued = await hub.add_member(name, kind=kind, permissions=tuple(permission or ()), token=token)
    _print_issued(issued, f"{issued.member} is a member now.", json=json)


@member_app.command("list")
@talks
async def list_members(link: Link, json: JsonOption = False) -> None:
    """List members, also while no hub runs."""
    async with await open_registrar(link) as hub:
        members = await hub.members()
    _print_members(members, json=json)


@member_app.command("remove")
@talks
async def remove(link: Link, name: NameArgument, json: JsonOption = False) -> None:
    """Remove a member: its sessions end, its tokens die, and what waits for it is dead."""
    async with await open_registrar(link) as hub:
        await hub.remove_member(name)
    if json:
        print_json({"member": name, "removed": True})
    else:
        say(f"{neutral_line(name)} is no member any more.")


@member_app.command("rotate")
@talks
async def rotate(link: Link, name: NameArgument, json: JsonOption = False) -> None:
    """Replace a member's token; the old one dies at once."""
    async with await open_registrar(link) as hub:
        issued = await hub.rotate_token(name)
    _print_issued(issued, f"{issued.member} has a new token; the old one is dead.", json=json)


@member_app.command("kind")
@talks
async def kind(
    link: Link,
    name: NameArgument,
    what: Annotated[MemberKind, typer.Argument(metavar="KIND", help="agent, human or script.", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Say who is behind a name.

    Agents that answer each other without end are slowed and held; a program without a model behind it is a script.
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
    other: Annotated[list[str] | None, typer.Argument(metavar="[ALIAS]…", show_default=False)] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget these aliases.")] = False,
    json: JsonOption = False,
) -> None:
    """Let a member be written to by other names, too; without any, list those that it has.

    What is written to an alias goes to the member under its own name, with a note. Changing needs team.manage.
    """
    async with await link.open_operator() as hub:
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
            help="A way and how long it is given (60): push, hook, pty, pull or notify. Several, in order.",
        ),
    ] = None,
    urgent: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="How long each is given for an urgent message.")
    ] = None,
    notify: Annotated[str | None, typer.Option(metavar="MEMBER", help="Who is written to by the way 'notify'.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="No ways: nothing falls.")] = False,
    json: JsonOption = False,
) -> None:
    """Say in which ways a member is to be reached, or show it.

    A message that nothing shows to have been seen within a way's time falls to the next; its receipts say at which it
    is. Without --as, on the hub's machine, the operator says so.
    """
    from tieline.client import Reach

    if clear and (way or urgent is not None or notify):
        raise Failure(Exit.USAGE, "--clear goes with no way")
    if (urgent is not None or notify) and not way:
        raise Failure(Exit.USAGE, "name the ways as well: --way push --way notify")
    legs = tuple(_leg(text) for text in way or ())
    given = Reach(legs, None if urgent is None else round(urgent * 1000), notify or "") if legs or clear else None
    async with await link.open_operator() as client:
        kept = await client.reach(name, given)
    if json:
        print_json(kept)
        return
    rows = [(str(place), leg.way.value, f"{leg.wait_ms / 1000:g} s") for place, leg in enumerate(kept.legs, start=1)]
    print_table(("", "way", "is given"), rows, empty=f"{name} has no ways: nothing falls.")
    if kept.urgent_ms is not None:
        say(f"An urgent message waits at most {kept.urgent_ms / 1000:g} s at each.")
    if kept.notify:
        say(f"'notify' writes to {kept.notify}.")


def _leg(text: str) -> "Leg":
    """Parse a way from the command line."""
    from tieline.client import Leg, Way

    word, equals, seconds = text.partition("=")
    if word not in list(Way):
        raise Failure(Exit.USAGE, f"{word!r} is no way: one of {', '.join(Way)}")
    try:
        given = float(seconds) if equals else _WAY_SECONDS
        return Leg(Way(word), round(given * 1000))
    except (ValueError, OverflowError) as error:
        raise Failure(Exit.USAGE, f"{seconds!r} is no number of seconds") from error


@talks_anywhere
async def members(link: Link, json: JsonOption = False) -> None:
    """List members: who is connected, and what waits for them."""
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.members(json=json)
        return
    async with await link.open() as client:
        found = await client.members()
    _print_members(found, json=json)


@talks_anywhere
async def whoami(link: Link, json: JsonOption = False) -> None:
    """Say who you are here, and through which hub."""
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.whoami(json=json)
        return
    async with await link.or_stored().open() as client:
        welcome = client.welcome
    assert welcome is not None, "an open session was welcomed"
    url, _ = link.way()
    where = url or str(link.folder)
    if json:
        print_json({**without_framing(welcome), "hub": where})
    elif welcome.member is None:
        say(f"the operator of the hub in {where}, who manages members and has no voice; --as NAME speaks as one")
    else:
        say(f"{welcome.member}, through the hub {'at' if url else 'in'} {where}")


async def open_registrar(link: Link, *, make: bool = False) -> AbstractAsyncContextManager["Registrar"]:
    """Open the running hub; else, on the hub's machine, its home without a hub."""
    from tieline.client import HubUnreachable

    try:
        return cast(AbstractAsyncContextManager["Registrar"], await link.open_operator())
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
        print_json(without_framing(issued))
        return
    say(sentence)
    say(f"  token: {neutral_line(issued.token)}")
    say("It is shown this once. Put it into TIELINE_TOKEN where the member works; on the hub's machine,")
    say(f"--as {issued.member} is enough.")


def _print_members(found: "Sequence[MemberView]", *, json: bool) -> None:
    if json:
        print_json(found)
        return
    rows = [
        (
            member.name,
            member.kind,
            ", ".join(member.sessions) or "–",
            f"{member.backlog} ({member.held} held)" if member.held else str(member.backlog),
            local_time(member.last_seen_ms) if member.last_seen_ms else "never",
            ", ".join(member.permissions),
        )
        for member in found
    ]
    columns = ("name", "kind", "connected by", "waiting", "last seen", "permissions")
    print_table(columns, rows, empty="No members yet: 'tieline member add NAME' makes one.")
