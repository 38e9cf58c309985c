"""Answer shapes of ac7's logins and devices, as the protocol's existing clients read them."""

from typing import Annotated

from msgspec import Meta

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name, Permission
from tests.protocols.ac7.conformance.shapes.members import Role, Teammate, Token


class Login(Closed, frozen=True):
    """Answer with a login: the member, its rights, and the time when the login expires."""

    member: Name
    role: Role
    permissions: list[Permission]
    expires_at: Milliseconds


class Secret(Closed, frozen=True):
    """Answer with the secret for an authenticator app."""

    totp_secret: Annotated[str, Meta(pattern=r"^[A-Z2-7]{16,}$")]
    totp_uri: Annotated[str, Meta(pattern=r"^otpauth://totp/")]


class Started(Closed, frozen=True):
    """Answer to a device that starts its enrolment: its codes, and where a person enters the user code."""

    device_code: Annotated[str, Meta(pattern=r"^ac7-dc_")]
    user_code: Annotated[str, Meta(pattern=r"^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$")]
    verification_uri: str
    verification_uri_complete: str
    expires_in: Count
    interval: Count


class Waiting(Closed, frozen=True):
    """Part of an answer: a device that waits for the approval of a person."""

    user_code: str
    label_hint: str
    source_ip: str | None
    source_ua: str | None
    created_at: Milliseconds
    expires_at: Milliseconds


class Pending(Closed, frozen=True):
    """Answer with all devices that wait for the approval of a person."""

    enrollments: list[Waiting]


class Polled(Closed, frozen=True):
    """Answer to an approved device: its token and its member."""

    token: Annotated[str, Meta(min_length=1)]
    token_id: str
    member: Teammate


class Approved(Closed, frozen=True):
    """Answer to the approval of a device: the member, and the device's token without its secret."""

    member: Teammate
    token_info: Token
