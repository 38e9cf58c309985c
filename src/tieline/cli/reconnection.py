"""Reconnection: coming back to a hub that restarts, for commands that outlive it.

Above: `watch`, `run` and `mcp`, and `send` while it waits. Below: a `Link`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import warn
from tieline.cli.session import Link
from tieline.client import HubError, HubUnreachable, errors
from tieline.wire.backoff import SESSION_BACKOFF

if TYPE_CHECKING:
    from tieline.client import Client


def is_passing(error: Exception) -> bool:
    """Whether a connection ended for a reason that a restarted hub does not have."""
    match error:
        case HubError():
            return errors.is_passing(error)
        case Failure(code=exit_code):
            return exit_code is Exit.UNREACHABLE
        case _:
            return False


def opener(link: Link, *, window: int) -> "Callable[[], Awaitable[Client]]":
    """What opens a session that receives, as often as it is needed, for whoever comes back to the hub by itself.

    A hub that takes connections and does not answer is no better than one that cannot be reached.
    """

    async def open_session() -> "Client":
        try:
            return await link.open(receive=True, window=window)
        except Failure as failure:
            raise HubUnreachable(failure.message) from failure

    return open_session


async def reopen(
    link: Link, *, receive: bool = False, window: int = 256, tell: Callable[[str], None] = warn
) -> "Client":
    """A new session of the member, however long the hub takes to be back."""
    tell("The hub went away; trying until it is back.")
    client = await SESSION_BACKOFF.retry(lambda: link.open_member(receive=receive, window=window), is_passing)
    tell("The hub is back.")
    return client
