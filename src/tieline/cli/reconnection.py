"""Reconnection: opens a new session after a hub restarts, for long-running commands.

Used by: `watch`, `run` and `mcp`, and `send` while it waits. Uses: a `Link`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.new_member import open_or_make
from tieline.cli.output import warn
from tieline.cli.session import Link
from tieline.client import HubError, HubUnreachable
from tieline.wire.backoff import SESSION_BACKOFF
from tieline.wire.native import errors

if TYPE_CHECKING:
    from tieline.client import Client


def is_passing(error: Exception) -> bool:
    """Return true if an error is temporary, that is, if it can end when the hub has restarted."""
    match error:
        case HubError():
            return errors.is_passing(error)
        case Failure(code=exit_code):
            return exit_code is Exit.UNREACHABLE
        case _:
            return False


def opener(link: Link, *, window: int, make: bool = False) -> "Callable[[], Awaitable[Client]]":
    """Return a function that opens a session that receives deliveries, for callers that reconnect by themselves.

    `window` is the maximum number of unacknowledged deliveries that the hub may send. A hub that accepts connections
    and does not answer counts as unreachable. With `make`, the first session creates the member if its name is new.
    Later sessions do not create the member again, so that a member that was removed meanwhile stays removed.
    """
    may_make = make

    async def open_session() -> "Client":
        nonlocal may_make
        opening = open_or_make if may_make else Link.open
        try:
            client = await opening(link, receive=True, window=window)
        except Failure as failure:
            raise HubUnreachable(failure.message) from failure
        may_make = False
        return client

    return open_session


async def reopen(
    link: Link, *, receive: bool = False, window: int = 256, tell: Callable[[str], None] = warn
) -> "Client":
    """Open and return a new session of the member after the hub has stopped. Retry until the hub runs again.

    With `receive`, the session gets deliveries, and `window` is the maximum number of unacknowledged deliveries. `tell`
    is called with lines for the user.
    """
    tell("The hub went away; trying until it is back.")
    client = await SESSION_BACKOFF.retry(lambda: link.open_member(receive=receive, window=window), is_passing)
    tell("The hub is back.")
    return client
