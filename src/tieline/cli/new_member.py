"""New members: on the hub's machine, a command that acts under a new name first makes the member, and prints that.

Used by: `send`, `inbox`, `run`, `mcp` and `connect`. Uses: a session of the operator, opened with the key in the home.
Only a command that uses this key makes members. A command with a token or with the address of a hub is refused if its
name is unknown. The hub refuses reserved names, and names that differ from a member's name only in upper and lower
case. This module refuses aliases, because their messages belong to another member. It also refuses the name of the
hub's owner, who becomes a member by the login link of the first start.
"""

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tieline.cli.output import neutral_line, warn
from tieline.client.connection import MEMBER_VARIABLE
from tieline.contract.refusal import Code
from tieline.wire.native.errors import HubRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tieline.cli.session import Link
    from tieline.client import Client


async def open_or_make(link: "Link", *, receive: bool = False, window: int = 256) -> "Client":
    """Open and return a session of the member that the link or the environment names.

    If the name is new, create the member.
    """
    try:
        return await link.open(receive=receive, window=window)
    except HubRefused as error:
        # The hub gives this answer only to the home's key. A token names its own member, and a client without a key or
        # token is refused as unauthorized.
        if error.code is not Code.UNKNOWN_MEMBER or link.way() != (None, None):
            raise
        near = error.near
    name = link.member or os.environ[MEMBER_VARIABLE]
    if await make_member(link, name):
        say_made(name, near)
    return await link.open(receive=receive, window=window)


async def make_member(link: "Link", name: str) -> bool:
    """Create a member with the key in the hub's home folder. Return false if another command has just created it."""
    with _nobody_named():
        operator = await replace(link, member=None).open()
    async with operator:
        _refuse_kept(link, name, (await operator.team()).aliases)
        try:
            await operator.add_member(name)
        except HubRefused as error:
            if error.code is Code.NAME_TAKEN and name in [each.name for each in await operator.members()]:
                return False
            raise
    return True


def _refuse_kept(link: "Link", name: str, aliases: "Mapping[str, str]") -> None:
    """Raise `HubRefused` if a name is reserved: an alias of a member, or the name of the hub's owner.

    Upper and lower case do not matter. `aliases` has the member of each alias.
    """
    from tieline.server.config import load_config

    whose = next((member for alias, member in aliases.items() if alias.casefold() == name.casefold()), None)
    if whose is not None:
        raise HubRefused(Code.NAME_TAKEN, f"the name {name!r} is an alias of {whose!r}")
    if name.casefold() == load_config(link.folder).console.owner.casefold():
        how = "'tieline member add' makes it, or the login link of the hub's first start; or use another name"
        raise HubRefused(Code.NAME_TAKEN, f"the name {name!r} is kept for the person who runs this hub: {how}")


def say_made(name: str, near: "Sequence[str]" = ()) -> None:
    """Print that the member `name` was created, as an agent. The command cannot know if a person uses the name.

    `near` are similar names of other members. They are printed because the new name may be a typing error.
    """
    meant = f" Did you mean {' or '.join(near)}? 'tieline member remove {name}' removes {name}." if near else ""
    person = f"an agent; for a person: 'tieline member kind {name} human'"
    warn(neutral_line(f"tieline: {name} is a new member now, {person}.{meant}"))


@contextmanager
def _nobody_named() -> "Iterator[None]":
    """Hide the environment variable that names a member during the `with` block.

    A session opened in the block is the operator's.
    """
    named = os.environ.pop(MEMBER_VARIABLE, None)
    try:
        yield
    finally:
        if named is not None:
            os.environ[MEMBER_VARIABLE] = named
