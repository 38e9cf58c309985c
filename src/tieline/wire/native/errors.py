"""Errors of the SDK.

HubError
├── HubUnreachable   no hub answers at the address
├── Disconnected     the connection ended; the hub may have executed unanswered requests
└── HubRefused       the hub refused a request, with a code
"""

from tieline.contract.refusal import Code

_PASSING = frozenset({Code.SHUTTING_DOWN, Code.UNKNOWN_SESSION, Code.STORE_FAILED})
"""Codes of refusals that are caused by the hub's state, not by the request. A later attempt may succeed."""


class HubError(Exception):
    """Base class of all errors of the SDK."""


class HubUnreachable(HubError):
    """Raised if no hub answers at the given home folder or URL."""


class Disconnected(HubError):
    """Raised if the connection ended. The hub may or may not have executed the request.

    A message may be sent again with the same `wire_id` (the sender's own id): the hub accepts it only once.
    """


class HubRefused(HubError):
    """Raised if the hub refused a request. `code` is the stable code of the refusal.

    If a name in the request was unknown, `near` has similar names.
    """

    def __init__(self, code: Code, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.near = near


def is_passing(error: Exception) -> bool:
    """Return true for an error that may go away by itself, such as a restart of the hub.

    Then a new session may succeed.
    """
    return error.code in _PASSING if isinstance(error, HubRefused) else isinstance(error, Disconnected | HubUnreachable)
