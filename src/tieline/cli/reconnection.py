"""Reconnection: opens a new session after a hub restarts, for long-running commands.

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
    """True if a connection ended for a reason that passes when the hub restarts."""
    match error:
        case HubError():
            return errors.is_passing(error)
        case Failure(code=exit_code):
            return exit_code is Exit.UNREACHABLE
        case _:
            return False


def opener(link: Link, *, window: int) -> "Callable[[], Awaitable[Client]]":
    """Return a function that opens a receiving session, for callers that reconnect by themselves.

    A hub that accepts connections and does not answer counts as unreachable.
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
    """Open a new session of the member. Retry until the hub is back."""
    tell("The hub went away; trying until it is back.")
    client = await SESSION_BACKOFF.retry(lambda: link.open_member(receive=receive, window=window), is_passing)
    tell("The hub is back.")
    return client
