"""What can go wrong for a user of the SDK.

HubError
├── HubUnreachable   nobody listens there
├── Disconnected     the connection ended; what was not answered may or may not have been done
└── HubRefused       the hub said no, with a code
"""

from tieline.contract.refusal import Code

_PASSING = frozenset({Code.SHUTTING_DOWN, Code.UNKNOWN_SESSION, Code.STORE_FAILED})
"""Refusals that end a session because of the hub, not because of who asks."""


class HubError(Exception):
    """The root of all errors of the SDK."""


class HubUnreachable(HubError):
    """No hub answers there."""


class Disconnected(HubError):
    """The connection ended. Send again under the same `wire_id` to be sure without saying it twice."""


class HubRefused(HubError):
    """The hub refused a request."""

    def __init__(self, code: Code, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.near = near


def is_passing(error: Exception) -> bool:
    """Whether a session ended, or could not be opened, for a reason that a restarted hub does not have."""
    return error.code in _PASSING if isinstance(error, HubRefused) else isinstance(error, Disconnected | HubUnreachable)
