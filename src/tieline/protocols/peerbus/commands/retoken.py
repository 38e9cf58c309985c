"""`tieline peerbus retoken`: changes the token to which a peer's name belongs.

Used by: the command line. Uses: a session with the hub, or the home of a hub that does not run.
"""

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from tieline.cli.failure import Exit, Failure
from tieline.cli.members import NameArgument, open_member_admin
from tieline.cli.output import neutral_line, print_json, say
from tieline.cli.session import JsonOption, Link, talks

if TYPE_CHECKING:
    from collections.abc import Sequence


class Retokened(Struct, frozen=True):
    """A member whose name belongs to another token now."""

    member: str


@talks
async def retoken(
    link: Link,
    name: NameArgument,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="T",
            help="Token that the name will belong to. Default: the first of PEERBUS_TOKENS or tieline.toml.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Give a name to another of the tokens that peers share, after PEERBUS_TOKENS was changed.

    A name belongs to the token that first registered it. If that token is not configured any more and exactly one is,
    that one takes over the name by itself. If several are configured, or if the name has permissions or its own token,
    use this command. It works with the hub running or not. A peer of the old token is disconnected.
    """
    tokens = _tokens(link)
    chosen = token or next(iter(tokens), None)
    if chosen is None:
        hint = "name one with --token, or set [peerbus] tokens"
        raise Failure(Exit.USAGE, "there is no token for the name to belong to", hint)
    async with await open_member_admin(link) as hub:
        await hub.retoken(name, chosen)
    if json:
        print_json(Retokened(name))
        return
    which = "the token that you named" if token else f"the first of {len(tokens)} tokens" if tokens[1:] else "the token"
    say(f"{neutral_line(name)} belongs to {which} now.")


def _tokens(link: Link) -> "Sequence[str]":
    """Return the tokens that peers share, from the configuration of the hub on this machine.

    Return an empty tuple if the command is for another hub.
    """
    from tieline.protocols.peerbus.settings import PeerbusSettings
    from tieline.server.config import ConfigError, load_config
    from tieline.wire.home import CONFIG_FILE

    if link.address is not None or not (link.folder / CONFIG_FILE).exists():
        return ()
    try:
        return load_config(link.folder).of(PeerbusSettings).shared_tokens
    except ConfigError as error:
        raise Failure(Exit.USAGE, str(error)) from error
