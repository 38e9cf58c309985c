"""Errors of the SDK.

HubError
├── HubUnreachable   nobody listens there
├── Disconnected     the connection ended; unanswered requests may or may not have been done
└── HubRefused       the hub said no, with a code
"""

from tieline.contract.refusal import Code

_PASSING = frozenset({Code.SHUTTING_DOWN, Code.UNKNOWN_SESSION, Code.STORE_FAILED})
"""Codes of refusals that are caused by the hub, not by the client: a later try may succeed."""


class HubError(Exception):
    """The root of all errors of the SDK."""


class HubUnreachable(HubError):
    """No hub answers at the given home or URL."""


class Disconnected(HubError):
    """The connection ended. Send again with the same `wire_id`: the hub accepts the message only once."""


class HubRefused(HubError):
    """The hub refused a request, with a stable `code`. If a name was unknown, `near` has similar names."""

    def __init__(self, code: Code, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.near = near


def is_passing(error: Exception) -> bool:
    """True if a session ended, or could not be opened, for a reason that can pass, such as a restart of the hub."""
    return error.code in _PASSING if isinstance(error, HubRefused) else isinstance(error, Disconnected | HubUnreachable)
