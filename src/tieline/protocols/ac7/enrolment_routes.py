"""Enrolment over HTTP: a device asks, a member with `members.manage` says for whom it is, the device fetches its token.

Above: the server. Below: `enrolment`, which knows the codes, and the Hub port, which makes the token.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Member, TokenView
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.enrolment import (
    EXPIRES_MS,
    EnrolmentRefusal,
    Enrolments,
    Granted,
    PollError,
    Started,
    Waiting,
)
from tieline.protocols.ac7.members import adding, resolve_permissions
from tieline.protocols.ac7.operator import Operator
from tieline.protocols.ac7.route import NO_CONTENT, Call, Refused, Route, fail, later, no, own_member
from tieline.wire.http import answer

UserCode = Annotated[str, Meta(max_length=64)]


class StartRequest(s.Shape, frozen=True):
    """A device that wants a token, and what it calls itself."""

    label_hint: Annotated[str, Meta(max_length=64)] = ""


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

    def __init__(self, operator: Operator, enrolments: Enrolments, now_ms: Callable[[], int]) -> None:
        self._operator = operator
        self._enrolments = enrolments
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._revoking: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """The operations."""
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

    # The device.

    async def start(self, call: Call, form: StartRequest | None) -> Started:
        """Ask for a token; a person must type in the user code."""
        client = call.scope.get("client")
        source = str(client[0]) if client else None
        hint = form.label_hint if form is not None else ""
        started = self._enrolments.start(source, call.header(b"user-agent"), hint, self._now_ms())
        if isinstance(started, EnrolmentRefusal):
            raise _refused(started)
        return started

    async def poll(self, _: Call, form: PollRequest) -> PollResponse:
        """Ask what became of it; the token is given out once."""
        granted = self._enrolments.poll(form.device_code, self._now_ms())
        if isinstance(granted, PollError):
            raise Refused(answer(granted, 400))
        members = await self._operator.members(MemberName(granted.member))
        if not members:
            raise Refused(answer(PollError("access_denied", "the member is gone"), 400))
        return PollResponse(granted.token, granted.token_id, codec.teammate(members[0]))

    # Who approves.

    async def pending(self, call: Call, _: None) -> PendingList:
        """Devices that wait, oldest first; needs members.manage."""
        await _require_manager(call)
        return PendingList(self._enrolments.pending(self._now_ms()))

    async def approve(self, call: Call, form: Bind | Create) -> ApproveResponse:
        """Give a device a token of a member, who is there or is made now; needs members.manage."""
        await _require_manager(call)
        waiting = self._enrolments.claim(form.user_code, self._now_ms())
        if isinstance(waiting, EnrolmentRefusal):
            raise _refused(waiting)
        try:
            token, kept, member = await (_bound(call, form) if isinstance(form, Bind) else _created(call, form))
        except BaseException:
            self._enrolments.release(waiting.user_code)
            raise
        granted = Granted(token, kept.id, member.name)
        if not self._enrolments.approve(waiting.user_code, granted):
            await self._revoke(granted)
            raise Refused(no(404, "no such enrollment, or it expired"))
        self._watch_expiry()
        return ApproveResponse(codec.teammate(member), codec.token(member.name, kept))

    async def reject(self, call: Call, form: RejectRequest) -> None:
        """Refuse a device; needs members.manage."""
        await _require_manager(call)
        refusal = self._enrolments.reject(form.user_code, form.reason, self._now_ms())
        if refusal is not None:
            raise _refused(refusal)

    # Tokens that no device fetched.

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _watch_expiry(self) -> None:
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRES_MS / 1000 + 1, self.expire)

    def expire(self) -> None:
        """Revoke them."""
        self._expiry = None
        unfetched = self._enrolments.expire(self._now_ms())
        for granted in unfetched:
            task = self._loop.create_task(self._revoke(granted))
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)
        if self._enrolments.granted:
            self._watch_expiry()

    async def _revoke(self, granted: Granted) -> None:
        name = MemberName(granted.member)
        await self._operator.ask(lambda session: (c.RevokeToken(session, name, granted.token_id),))


async def _require_manager(call: Call) -> None:
    own = await own_member(call)
    if MEMBERS_MANAGE not in own.permissions:
        raise Refused(no(403, f"{own.name} lacks the permission {MEMBERS_MANAGE}"))


async def _bound(call: Call, form: Bind) -> tuple[str, TokenView, Member]:
    """One more token of a member that there is."""
    name = MemberName(form.member_name)
    replies = await call.ask(
        lambda session: (c.IssueToken(session, name, form.label), c.ListMembers(session, name)),
    )
    match replies:
        case (r.TokenIssued(_, token, kept), r.Roster(members=(presence,))):
            return token, kept, presence.member
        case _:
            raise fail(replies, form.member_name)


async def _created(call: Call, form: Create) -> tuple[str, TokenView, Member]:
    """The token of a member that is made now."""
    name = MemberName(form.member_name)
    permissions = await resolve_permissions(call, form.permissions)
    replies = await call.ask(
        lambda session: (
            adding(session, name, permissions, form.role, form.instructions),
            c.ListTokens(session, name),
            c.ListMembers(session, name),
        )
    )
    match replies:
        case (r.Issued(_, token), r.Tokens(tokens=(kept, *_)), r.Roster(members=(presence,))):
            return token, kept, presence.member
        case _:
            raise fail(replies)


def _refused(refusal: EnrolmentRefusal) -> Refused:
    if refusal.retry_after is not None:
        return Refused(later(refusal.error, refusal.retry_after))
    return Refused(no(refusal.status, refusal.error))
