"""Reconnection: coming back to a hub that restarts, for commands that outlive it.

Above: `watch` and `run`, and `send` while it waits. Below: a `Link`.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import warn
from tieline.cli.session import Link
from tieline.client import Disconnected, HubRefused, HubUnreachable
from tieline.contract.refusal import Code

if TYPE_CHECKING:
    from tieline.client import Client

_PAUSE_SECONDS_MIN = 0.1
_PAUSE_SECONDS_MAX = 5.0
"""Long enough to leave a restarting machine alone, short enough that nobody looks for what is wrong."""

_PASSING = frozenset({Code.SHUTTING_DOWN, Code.UNKNOWN_SESSION, Code.STORE_FAILED})
"""Refusals that end a session because of the hub, not because of who asks."""


def is_passing(error: Exception) -> bool:
    """Whether a connection ended for a reason that a restarted hub does not have."""
    match error:
        case Disconnected() | HubUnreachable():
            return True
        case HubRefused(code=code):
            return code in _PASSING
        case Failure(code=exit_code):
            return exit_code is Exit.UNREACHABLE
        case _:
            return False


async def reopen(
    link: Link, *, receive: bool = False, window: int = 256, tell: Callable[[str], None] = warn
) -> "Client":
    """A new session of the member, however long the hub takes to be back."""
    tell("The hub went away; trying until it is back.")
    pause = _PAUSE_SECONDS_MIN
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        try:
            client = await link.open_member(receive=receive, window=window)
        except (Disconnected, Failure, HubRefused, HubUnreachable) as error:
            if not is_passing(error):
                raise
        else:
            tell("The hub is back.")
            return client
