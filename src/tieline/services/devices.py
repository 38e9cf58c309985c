"""Devices: gives a token to a program or browser that has none, after a person has approved it.

Used by: routes by which devices ask for a token, and members approve or reject the requests. Uses: `enrolments`, which
knows the codes, and the interface `contract.hub`. The approving member makes the token, so the hub checks the
permission of this member. If no device fetches a token in time, this module revokes the token.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Member, TokenView
from tieline.services.enrolments import (
    EXPIRES_MS,
    EnrolmentRefusal,
    Enrolments,
    Granted,
    PollError,
    Started,
    Waiting,
)
from tieline.services.operator import Operator


class Approved(Struct, frozen=True):
    """Result of an approval: the new token, the hub's data about the token (`kept`), and the token's member."""

    token: str
    kept: TokenView
    member: Member


class Fetched(Struct, frozen=True):
    """Answer to a device that fetches its token: the token, the token's id, and the token's member."""

    token: str
    token_id: str
    member: Member


class Devices:
    """Service that gives tokens to devices: takes their requests, lets a member decide, and hands out the tokens."""

    def __init__(self, operator: Operator, enrolments: Enrolments, now_ms: Callable[[], int]) -> None:
        self._operator = operator
        self._enrolments = enrolments
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._revoking: set[asyncio.Task[None]] = set()

    # The device.

    def start(
        self, source: str | None, agent: str | None, label_hint: str, prefix: str = ""
    ) -> Started | EnrolmentRefusal:
        """Register the request of a device for a token.

        Return two codes: one for the device, one for the approving person. The device's code begins with `prefix`.
        `source` is the device's address, and `agent` is the name of its program. `label_hint` is the name that the
        device proposes for itself.
        """
        return self._enrolments.start(source, agent, label_hint, self._now_ms(), prefix)

    async def poll(self, device_code: str) -> Fetched | PollError:
        """Return the answer to a device that asks if its request is decided.

        The answer is the token, which the device can get only once, or an error such as "pending".
        """
        granted = self._enrolments.poll(device_code, self._now_ms())
        if isinstance(granted, PollError):
            return granted
        members = await self._operator.members(MemberName(granted.member))
        if not members:
            return PollError("access_denied", "the member is gone")
        return Fetched(granted.token, granted.token_id, members[0])

    # The approving member.

    def pending(self) -> list[Waiting]:
        """Return the requests of devices that wait for a decision, oldest first."""
        return self._enrolments.pending(self._now_ms())

    async def approve(self, user_code: str, make: Callable[[], Awaitable[Approved]]) -> Approved | EnrolmentRefusal:
        """Approve the request with the code `user_code`.

        Call `make` to make the token, which the device can then fetch. Return the result of `make`. If `make` raises an
        error, the request continues to wait. Return a refusal if no request with this code waits.
        """
        waiting = self._enrolments.claim(user_code, self._now_ms())
        if isinstance(waiting, EnrolmentRefusal):
            return waiting
        try:
            approved = await make()
        except BaseException:
            self._enrolments.release(waiting.user_code)
            raise
        granted = Granted(approved.token, approved.kept.id, approved.member.name)
        if not self._enrolments.approve(waiting.user_code, granted):
            await self._revoke(granted)
            return EnrolmentRefusal(404, "no such enrollment, or it expired")
        self._watch_expiry()
        return approved

    def reject(self, user_code: str, reason: str) -> EnrolmentRefusal | None:
        """Reject the request with the code `user_code`. The device is told the `reason`.

        Return a refusal if no request with this code waits.
        """
        return self._enrolments.reject(user_code, reason, self._now_ms())

    # Tokens that no device fetched.

    def close(self) -> None:
        """Cancel the timer that revokes the tokens that no device fetched."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _watch_expiry(self) -> None:
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRES_MS / 1000 + 1, self.expire)

    def expire(self) -> None:
        """Revoke the tokens that no device fetched in time."""
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
        await self._operator.ask(lambda session: (c.RevokeToken(session, name=name, token_id=granted.token_id),))
