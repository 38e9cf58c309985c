"""`tieline login`: prints a link that logs a person into the console, once.

Used by: the command line. Uses: a session with a running hub. The link has a token after its `#`, and a browser never
sends that part. The console exchanges the token for a session, and after that the link is useless. With the key in the
hub's home folder, the command can also make the owner of the hub a member. The link that the hub prints at its first
start also makes the owner a member.
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.completion import complete_member
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_json, say, warn
from tieline.cli.session import JsonOption, Link, talks

if TYPE_CHECKING:
    from tieline.client import Client

_LINK_MS = 10 * 60 * 1000  # short, because anybody who sees the link can use it


@talks
async def login(
    link: Link,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Member to log in. Default: the person who started the hub.",
            autocompletion=complete_member,
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print a link that logs a member into the console. The link works once, within ten minutes.

    Without NAME, it is the owner of the hub of this machine: the person who started it, or [console] owner in
    tieline.toml. If the owner is not a member yet, the command makes it a member. With --as, a token or a hub on
    another machine, it is that member.
    """
    from tieline.client import HubRefused
    from tieline.contract.refusal import Code
    from tieline.services.login_sessions import LINK_LABEL
    from tieline.wire.address import split_pin
    from tieline.wire.home import read_running

    url, _ = link.way()
    is_named = name is not None
    running = read_running(link.folder) if url is None else None
    if name is None and running is not None and not link.is_named():
        name = _owner(link) or None
    is_owner = name is not None and not is_named
    if name is None or url is not None:
        client = await link.or_stored().open()
    else:
        client = await link.open_operator()
    async with client:
        assert client.welcome is not None, "an open session was welcomed"
        member = name or client.welcome.member
        if member is None:
            raise Failure(Exit.USAGE, "no member is named to log in", "tieline login NAME")
        until = int(time.time() * 1000) + _LINK_MS
        try:
            issued = await client.issue_token(member, label=LINK_LABEL, expires_at_ms=until)
        except HubRefused as error:
            by_key = url is None and client.welcome.member is None
            if error.code is not Code.UNKNOWN_MEMBER or not by_key or not await _make_owner(link, client, member):
                raise
            issued = await client.issue_token(member, label=LINK_LABEL, expires_at_ms=until)
    base = split_pin(url)[0] if url else running.public if running else ""
    address = f"{base.rstrip('/')}/#/enter/{issued.token}"
    if json:
        from tieline.cli.documents import LoginLink

        print_json(LoginLink(member, address, until))
        return
    say(address)
    say(f"It logs {member} in, once, within ten minutes.")
    if is_owner:
        say(f"{member} is the person who started the hub; 'tieline login NAME' is for another member.")


def _owner(link: Link) -> str:
    from tieline.server.config import load_config

    return load_config(link.folder).console.owner


async def _make_owner(link: Link, client: "Client", name: str) -> bool:
    """Create a member for the owner of the hub. Return false if `name` is not the owner's name in the configuration."""
    from tieline.contract.member import MemberKind
    from tieline.contract.permission import OWNER_PERMISSIONS

    owner = _owner(link)
    if name.casefold() != owner.casefold():
        return False
    await client.add_member(owner, kind=MemberKind.HUMAN, permissions=OWNER_PERMISSIONS)
    warn(f"tieline: {owner} is a new member now, a person with all permissions, because {owner} started this hub.")
    return True
