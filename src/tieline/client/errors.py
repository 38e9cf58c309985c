"""What can go wrong for a user of the SDK.

HubError
├── HubUnreachable   nobody listens there
├── Disconnected     the connection ended; what was not answered may or may not have been done
└── HubRefused       the hub said no, with a code
"""

from tieline.contract.refusal import Code


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
