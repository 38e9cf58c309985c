"""Sessions for requests: a token's session is kept for a while, because attaching for each request costs a round trip.

Above: protocols whose clients show a token with each request. Below: the Hub port. A session is kept half a minute
beyond its last request, so that a member does not look connected because it asked something long ago. When the hub ends
one (its token was replaced, its member removed), the next request attaches anew and hears why it cannot.
"""

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByToken
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Progress, Reply

IDLE_SECONDS = 30.0
_AGE_SECONDS = 60.0
"""How long a session is kept however busy it is: attaching anew finds out that its token has expired."""
_SESSIONS_MAX = 4096
"""Kept at the same time; past it the one that was not used for longest ends."""

Make = Callable[[SessionId], Sequence[c.Command]]


async def ask_all(hub: Hub, commands: Sequence[c.Command]) -> Sequence[Reply]:
    """Hand over commands that are decided together, and wait for their replies."""
    future: asyncio.Future[Sequence[Reply]] = asyncio.get_running_loop().create_future()

    def done(replies: Sequence[Reply]) -> None:
        # Whoever waited may be gone.
        if not future.done():
            future.set_result(replies)

    hub.submit(commands, done)
    return await future


class Held:
    """One session that is kept. Its methods are what the hub calls: the Listener port."""

    __slots__ = ("_sessions", "digest", "member", "opened_at", "session", "used_at")

    def __init__(
        self, sessions: "Sessions", digest: bytes, session: SessionId, member: MemberName, opened_at: float
    ) -> None:
        self._sessions = sessions
        # Of the token that it was opened with.
        self.digest = digest
        self.session = session
        self.member = member
        # By the loop's clock.
        self.opened_at = self.used_at = opened_at

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Nothing is offered to a session that only answers."""

    def released(self, keys: Sequence[int]) -> None:
        """What was held is read like the rest."""

    def progress(self, step: Progress) -> None:
        """Nothing is followed by it either."""

    def end(self, why: Refusal) -> None:
        """The hub ended it."""
        self._sessions.forget(self)


class Sessions:
    """Sessions by token."""

    def __init__(
        self, hub: Hub, protocol: str, *, idle_seconds: float = IDLE_SECONDS, acknowledges: bool = True
    ) -> None:
        self._hub = hub
        self._protocol = protocol
        # Whether a request can acknowledge what the member was sent.
        self._acknowledges = acknowledges
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._held: dict[bytes, Held] = {}
        # Those that the hub is attaching: requests of one token that come together share one.
        self._opening: dict[bytes, asyncio.Future[Held | Refusal]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    async def of(self, token: str) -> Held | Refusal:
        """The session of a token."""
        digest = sha256(token.encode()).digest()
        held = self._held.get(digest)
        now = self._loop.time()
        if held is not None and now - held.opened_at > _AGE_SECONDS:
            # What it was asked before is decided before it ends.
            self.end(held)
            held = None
        if held is None:
            opening = self._opening.get(digest) or self._open(token, digest)
            # Shielded, because others may wait for it too.
            return await asyncio.shield(opening)
        held.used_at = now
        return held

    async def ask(self, token: str, held: Held, make: Make) -> Sequence[Reply]:
        """Hand over commands of this session, or of a new one where this has ended meanwhile."""
        replies = await ask_all(self._hub, make(held.session))
        first = replies[0]
        if not (isinstance(first, Refusal) and first.code is Code.UNKNOWN_SESSION):
            return replies
        self.forget(held)
        again = await self.of(token)
        if isinstance(again, Refusal):
            return [again]
        return await ask_all(self._hub, make(again.session))

    def forget(self, held: Held) -> None:
        """It has ended."""
        if self._held.get(held.digest) is held:
            del self._held[held.digest]

    def close(self) -> None:
        """End all of them."""
        for held in list(self._held.values()):
            self.end(held)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _open(self, token: str, digest: bytes) -> asyncio.Future[Held | Refusal]:
        opening: asyncio.Future[Held | Refusal] = self._loop.create_future()
        self._opening[digest] = opening

        def done(replies: Sequence[Reply]) -> None:
            del self._opening[digest]
            (reply,) = replies
            assert isinstance(reply, Attached | Refusal), "an attach is answered by these"
            if isinstance(reply, Refusal):
                opening.set_result(reply)
                return
            assert reply.member is not None, "a token belongs to a member"
            opening.set_result(self._keep(Held(self, digest, reply.session, reply.member, self._loop.time())))

        attach = c.Attach(protocol=self._protocol, credential=ByToken(token), acknowledges=self._acknowledges)
        self._hub.submit((attach,), done)
        return opening

    def _keep(self, held: Held) -> Held:
        if len(self._held) >= _SESSIONS_MAX:
            self.end(min(self._held.values(), key=lambda other: other.used_at))
        self._held[held.digest] = held
        self._hub.listen(held.session, held)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds / 4, self._sweep)
        return held

    def _sweep(self) -> None:
        late = self._loop.time() - self._idle_seconds
        for held in [held for held in self._held.values() if held.used_at <= late]:
            self.end(held)
        again = bool(self._held)
        self._sweeper = self._loop.call_later(self._idle_seconds / 4, self._sweep) if again else None

    def end(self, held: Held) -> None:
        """End one: the next request of its token attaches anew, and hears whether that is still good."""
        self.forget(held)
        self._hub.forget(held.session)
        self._hub.submit((c.Detach(held.session),))
