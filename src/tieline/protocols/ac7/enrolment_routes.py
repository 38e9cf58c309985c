"""Enrolment over HTTP: gives a new device a token of a member.

The device asks for a token. A person with the permission `members.manage` approves the device for a member. Then the
device fetches the token.

Used by: the server. Uses: the hub's devices, and the interface `contract.hub`, which issues the token.
"""

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.protocols.ac7 import codec, commandsuite
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.members import adding, permission_words
from tieline.services.devices import Approved, Devices
from tieline.services.enrolments import EnrolmentRefusal, PollError
from tieline.wire.http import Answer, answer
from tieline.wire.route import NO_CONTENT, Call, Query, Refused, Route, fail, no, require

VERIFICATION_PATH = "/enroll"
"""Path of the web page where a person approves a device. The device shows this path to the person, with the user code
in the query parameter `code`."""
_SEE_OTHER = 303
_CODE_CHARS_MAX = 64  # a user code has nine
_CONSOLE_PLACE = "/#/devices"
"""Address of the page in the hub's web console where a person approves a device. The user code is appended after a
slash."""

_DEVICE_PREFIX = "ac7-dc_"
"""Prefix by which ac7's clients recognize a device code. A device fetches its token with its device code."""

UserCode = Annotated[str, Meta(max_length=64)]


class StartRequest(s.Shape, frozen=True):
    """A device's request for a token, with a label for the person who approves it."""

    label_hint: Annotated[str, Meta(max_length=64)] = ""


class Started(s.Shape, frozen=True):
    """Codes for a device that asked for a token."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class Waiting(s.Shape, frozen=True):
    """A device's request, as those who may approve it see it."""

    user_code: str
    label_hint: str
    source_ip: str | None
    source_ua: str | None
    created_at: int
    expires_at: int


class PollRequest(s.Shape, frozen=True):
    """A device asks if its request was approved."""

    device_code: Annotated[str, Meta(max_length=128)]


class PollResponse(s.Shape, frozen=True):
    """Token of a device, shown only once, and the member of the token."""

    token: str
    token_id: str
    member: s.Teammate


class PendingList(s.Shape, frozen=True):
    """Requests that wait for approval, oldest first."""

    enrollments: list[Waiting]


class Bind(s.Shape, frozen=True, kw_only=True, tag_field="mode", tag="bind"):
    """Approve the device for a member that exists."""

    user_code: UserCode
    member_name: s.Name
    label: s.TokenLabel = ""


class Create(s.Shape, frozen=True, kw_only=True, tag_field="mode", tag="create"):
    """Approve the device for a new member."""

    user_code: UserCode
    member_name: s.Name
    role: s.Role
    permissions: s.PermissionWords = ()
    instructions: s.Instructions = ""
    label: s.TokenLabel = ""


class ApproveResponse(s.Shape, frozen=True):
    """Member of an approved device, and details of its token."""

    member: s.Teammate
    token_info: s.TokenShape


class RejectRequest(s.Shape, frozen=True, kw_only=True):
    """Reject a device."""

    user_code: UserCode
    reason: Annotated[str, Meta(max_length=256)] = ""


class EnrolmentRoutes:
    """The HTTP operations with which a device asks for a token and a person approves it."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def routes(self) -> list[Route]:
        """Return the routes for enrolment."""
        return [
            Route("POST", VERIFICATION_PATH, self.start, invalid="invalid enroll payload", open=True, errors=(429,)),
            Route(
                "GET",
                VERIFICATION_PATH,
                approval_page,
                gives=("text/plain",),
                status=_SEE_OTHER,
                open=True,
                query=(Query("code", "The user code that the device shows."),),
            ),
            Route("POST", "/enroll/poll", self.poll, invalid="invalid poll payload", open=True),
            Route("GET", "/enroll/pending", self.pending),
            Route("POST", "/enroll/approve", self.approve, invalid="invalid approve payload", errors=(404, 409)),
            Route(
                "POST",
                "/enroll/reject",
                self.reject,
                invalid="invalid reject payload",
                status=NO_CONTENT,
                errors=(404, 409),
            ),
        ]

    # Requests of the device.

    async def start(self, call: Call, form: StartRequest | None) -> Started:
        """Request a token. A person must type in the user code."""
        client = call.scope.get("client")
        source = str(client[0]) if client else None
        hint = form.label_hint if form is not None else ""
        prefix = commandsuite.DEVICE_PREFIX if commandsuite.speaks(call) else _DEVICE_PREFIX
        asked = self._devices.start(source, call.header(b"user-agent"), hint, prefix)
        if isinstance(asked, EnrolmentRefusal):
            raise _refused(asked)
        uri, code = VERIFICATION_PATH, asked.user_code
        return Started(asked.device_code, code, uri, f"{uri}?code={code}", asked.expires_in, asked.interval)

    async def poll(self, _: Call, form: PollRequest) -> PollResponse:
        """Ask if the request was approved. The token is shown only once."""
        fetched = await self._devices.poll(form.device_code)
        if isinstance(fetched, PollError):
            said = s.Failure(fetched.error, error_description=fetched.error_description)
            raise Refused(answer(said, 400))
        return PollResponse(fetched.token, fetched.token_id, codec.teammate(fetched.member))

    # Requests of the approving member.

    async def pending(self, call: Call, _: None) -> PendingList:
        """List requests that wait for approval, oldest first. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        return PendingList(
            [
                Waiting(one.user_code, one.label_hint, one.source, one.agent, one.created_at_ms, one.expires_at_ms)
                for one in self._devices.pending()
            ]
        )

    async def approve(self, call: Call, form: Bind | Create) -> ApproveResponse:
        """Approve a device: give it a token of a member, who is created if necessary. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)

        async def make() -> Approved:
            return await (_bound(call, form) if isinstance(form, Bind) else _created(call, form))

        approved = await self._devices.approve(form.user_code, make)
        if isinstance(approved, EnrolmentRefusal):
            raise _refused(approved)
        member = approved.member
        return ApproveResponse(codec.teammate(member), codec.token(member, approved.kept))

    async def reject(self, call: Call, form: RejectRequest) -> None:
        """Reject a device. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        refusal = self._devices.reject(form.user_code, form.reason)
        if refusal is not None:
            raise _refused(refusal)


async def approval_page(call: Call, _: None) -> Answer:
    """Redirect a browser to the page of the console that approves the device. The code is filled in there."""
    code = call.query.get("code", "")[:_CODE_CHARS_MAX]
    place = f"{_CONSOLE_PLACE}/{quote(code, safe='')}" if code else _CONSOLE_PLACE
    text = b"Approve the device in the console of this hub."
    return Answer(_SEE_OTHER, text, b"text/plain; charset=utf-8", headers=((b"location", place.encode()),))


async def _bound(call: Call, form: Bind) -> Approved:
    """Issue one more token of an existing member. Return the token, its details and the member."""
    name = MemberName(form.member_name)
    replies = await call.ask(
        lambda session: (c.IssueToken(session, name=name, label=form.label), c.ListMembers(session, name=name)),
    )
    match replies:
        case (r.TokenIssued(_, token, kept), r.Roster(members=(presence,))):
            return Approved(token, kept, presence.member)
        case _:
            raise fail(replies, form.member_name)


async def _created(call: Call, form: Create) -> Approved:
    """Create a member for the approved device. Return the member's token, the details of the token and the member."""
    name = MemberName(form.member_name)
    permissions = await permission_words(call, form.permissions)
    replies = await call.ask(
        lambda session: (
            adding(session, name, permissions, form.role, form.instructions),
            c.ListTokens(session, name=name),
            c.ListMembers(session, name=name),
        )
    )
    match replies:
        case (r.Issued(_, token), r.Tokens(tokens=(kept, *_)), r.Roster(members=(presence,))):
            return Approved(token, kept, presence.member)
        case _:
            raise fail(replies)


def _refused(refusal: EnrolmentRefusal) -> Refused:
    if refusal.retry_after is not None:
        return Refused(s.later(refusal.error, refusal.retry_after))
    return Refused(no(refusal.status, refusal.error))
