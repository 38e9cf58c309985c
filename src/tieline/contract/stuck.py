"""Command about stuck deliveries: those that nobody has seen for a while, and dead ones, which could not be made.

The module `command` exports it with all other commands.
"""

from tieline.contract import reply as r
from tieline.contract.request import Request


class ReadStuck(Request[r.Stuck], frozen=True, kw_only=True):
    """List deliveries that nobody saw for a while, and the newest that died.

    The list has the messages of the session's member. With the permission `log.read` it has all messages.
    """

    older_ms: int = 300_000
    """Only deliveries of messages that were sent at least this long ago. Dead deliveries are listed at once."""
    limit: int = 100
