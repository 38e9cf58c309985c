"""Enrolment over HTTP: a device asks, a member with `members.manage` assigns a member, the device fetches its token.

Above: the server. Below: the hub's devices, and the Hub port, which issues the token.
"""

from typing import Annotated

from msgspec import Meta

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.members import adding, resolve_permissions
from tieline.services.devices import Approved, Devices
from tieline.services.enrolments import EnrolmentRefusal, PollError
from tieline.wire.http import answer
from tieline.wire.route import NO_CONTENT, Call, Refused, Route, fail, no, require

UserCode = Annotated[str, Meta(max_length=64)]


class StartRequest(s.Shape, frozen=True):
    """A device that wants a token, and what it calls itself."""

    label_hint: Annotated[str, Meta(max_length=64)] = ""


class Started(s.Shape, frozen=True):
    """The answer to a device that asks."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class Waiting(s.Shape, frozen=True):
    """A request as who may approve it sees it."""

    user_code: str
    label_hint: str
    source_ip: str | None
    source_ua: str | None
    created_at: int
    expires_at: int


class PollRequest(s.Shape, frozen=True):
    """A device that asks what became of it."""

    device_code: Annotated[str, Meta(max_length=128)]


class PollResponse(s.Shape, frozen=True):
    """The token of a device, given out this once, and whose it is."""

    token: str
    token_id: str
    member: s.Teammate


class PendingList(s.Shape, frozen=True):
    """Devices that wait, oldest first."""

    enrollments: list[Waiting]


class Bind(s.Shape, frozen=True, kw_only=True, tag_field="mode", tag="bind"):
    """The device is for a member that there is."""

    user_code: UserCode
    member_name: s.Name
    label: s.TokenLabel = ""


class Create(s.Shape, frozen=True, kw_only=True, tag_field="mode", tag="create"):
    """The device is for a member that is made now."""

    user_code: UserCode
    member_name: s.Name
    role: s.Role
    permissions: s.PermissionWords = ()
    instructions: s.Instructions = ""
    label: s.TokenLabel = ""


class ApproveResponse(s.Shape, frozen=True):
    """For whom the device is, and what may be known of its token."""

    member: s.Teammate
    token_info: s.TokenShape


class RejectRequest(s.Shape, frozen=True, kw_only=True):
    """Not this one."""

    user_code: UserCode
    reason: Annotated[str, Meta(max_length=256)] = ""


class EnrolmentRoutes:
    """The operations on enrolments."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def routes(self) -> list[Route]:
        """Return the routes for enrolment."""
        return [
            Route("POST", "/enroll", self.start, invalid="invalid enroll payload", open=True, errors=(429,)),
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
        """Ask for a token; a person must type in the user code."""
        client = call.scope.get("client")
        source = str(client[0]) if client else None
        hint = form.label_hint if form is not None else ""
        asked = self._devices.start(source, call.header(b"user-agent"), hint)
        if isinstance(asked, EnrolmentRefusal):
            raise _refused(asked)
        uri, code = "/enroll", asked.user_code
        return Started(asked.device_code, code, uri, f"{uri}?code={code}", asked.expires_in, asked.interval)

    async def poll(self, _: Call, form: PollRequest) -> PollResponse:
        """Ask what became of it; the token is given out once."""
        fetched = await self._devices.poll(form.device_code)
        if isinstance(fetched, PollError):
            said = s.Failure(fetched.error, error_description=fetched.error_description)
            raise Refused(answer(said, 400))
        return PollResponse(fetched.token, fetched.token_id, codec.teammate(fetched.member))

    # Requests of the approving member.

    async def pending(self, call: Call, _: None) -> PendingList:
        """Devices that wait, oldest first; needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        return PendingList(
            [
                Waiting(one.user_code, one.label_hint, one.source, one.agent, one.created_at_ms, one.expires_at_ms)
                for one in self._devices.pending()
            ]
        )

    async def approve(self, call: Call, form: Bind | Create) -> ApproveResponse:
        """Give a device a token of a member, who is there or is made now; needs members.manage."""
        await require(call, MEMBERS_MANAGE)

        async def make() -> Approved:
            return await (_bound(call, form) if isinstance(form, Bind) else _created(call, form))

        approved = await self._devices.approve(form.user_code, make)
        if isinstance(approved, EnrolmentRefusal):
            raise _refused(approved)
        member = approved.member
        return ApproveResponse(codec.teammate(member), codec.token(member.name, approved.kept))

    async def reject(self, call: Call, form: RejectRequest) -> None:
        """Refuse a device; needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        refusal = self._devices.reject(form.user_code, form.reason)
        if refusal is not None:
            raise _refused(refusal)


async def _bound(call: Call, form: Bind) -> Approved:
    """Issue one more token for an existing member."""
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
    """Create a member and return its token."""
    name = MemberName(form.member_name)
    permissions = await resolve_permissions(call, form.permissions)
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
