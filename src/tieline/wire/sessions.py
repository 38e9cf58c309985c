"""Cache of sessions by token. A request uses the open session of its token, so no request waits for a new session.

Used by: protocols whose clients show a token with each request. Uses: the interface `contract.hub`. A session ends
half a minute after its last request, so that a member without recent requests does not look connected. The hub may end
a session earlier, for example because its token was replaced or its member was removed. Then the next request tries to
open a session again and gets the refusal.
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
"""Longest life of a session in seconds, even if it is in use. The next request then opens a new session, and the hub
checks the token again, because the token may have expired."""
_SESSIONS_MAX = 4096
"""Most sessions that are open at the same time. Above this number, the least recently used session ends."""

Make = Callable[[SessionId], Sequence[c.Command]]
Told = Callable[[Sequence[Reply]], None]


async def ask_all(hub: Hub, commands: Sequence[c.Command], told: Told | None = None) -> Sequence[Reply]:
    """Submit commands to the hub as one batch. Wait for the replies and return them, in the order of the commands.

    `told` is called with the replies first, before the hub offers a message of these commands to its recipients.
    """
    future: asyncio.Future[Sequence[Reply]] = asyncio.get_running_loop().create_future()

    def done(replies: Sequence[Reply]) -> None:
        # The waiting task may have been cancelled.
        if not future.done():
            if told is not None:
                told(replies)
            future.set_result(replies)

    hub.submit(commands, done)
    return await future


class CachedSession:
    """Cache entry: the open session of one token. The hub calls this object as the session's listener."""

    __slots__ = ("_sessions", "digest", "member", "opened_at", "session", "used_at")

    def __init__(
        self, sessions: "Sessions", digest: bytes, session: SessionId, member: MemberName, opened_at: float
    ) -> None:
        self._sessions = sessions
        # Hash of the token that opened the session.
        self.digest = digest
        self.session = session
        self.member = member
        # Times of the event loop's clock.
        self.opened_at = self.used_at = opened_at

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Do nothing. The hub offers no deliveries to this session, because its member reads them with requests."""

    def released(self, keys: Sequence[int]) -> None:
        """Do nothing. Deliveries that are no longer held come with the next request that reads the inbox."""

    def progress(self, step: Progress) -> None:
        """Do nothing. The hub never calls this, because no request of this session asks to follow a message."""

    def end(self, why: Refusal) -> None:
        """Remove this session from the cache, because the hub has ended the session for the reason `why`."""
        self._sessions.forget(self)


class Sessions:
    """Cache of the open sessions of one protocol, by token. A session without requests ends after `idle_seconds`.

    `acknowledges` is true if the protocol's requests can acknowledge deliveries.
    """

    def __init__(
        self, hub: Hub, protocol: str, *, idle_seconds: float = IDLE_SECONDS, acknowledges: bool = True
    ) -> None:
        self._hub = hub
        self._protocol = protocol
        # True if a request can acknowledge deliveries of the member.
        self._acknowledges = acknowledges
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._cached: dict[bytes, CachedSession] = {}
        # Sessions that the hub is attaching. Simultaneous requests with the same token share one session.
        self._opening: dict[bytes, asyncio.Future[CachedSession | Refusal]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    async def of(self, token: str) -> CachedSession | Refusal:
        """Return the cached session of a token, or open a new session.

        Return the hub's refusal if the token is not valid.
        """
        digest = sha256(token.encode()).digest()
        cached = self._cached.get(digest)
        now = self._loop.time()
        if cached is not None and now - cached.opened_at > _AGE_SECONDS:
            # Commands submitted earlier are decided before the session ends.
            self.end(cached)
            cached = None
        if cached is None:
            opening = self._opening.get(digest) or self._open(token, digest)
            # Shielded, because other requests may wait for the same session.
            return await asyncio.shield(opening)
        cached.used_at = now
        return cached

    async def ask(self, token: str, cached: CachedSession, make: Make, told: Told | None = None) -> Sequence[Reply]:
        """Call `make` with the id of the session `cached`, submit the commands that it returns, and return the replies.

        If the session has already ended, open a new session for `token` and submit the commands there. `told` is called
        with the replies first, before the hub offers a message of these commands to its recipients.
        """
        replies = await ask_all(self._hub, make(cached.session), told)
        first = replies[0]
        if not (isinstance(first, Refusal) and first.code is Code.UNKNOWN_SESSION):
            return replies
        self.forget(cached)
        again = await self.of(token)
        if isinstance(again, Refusal):
            return [again]
        return await ask_all(self._hub, make(again.session), told)

    def forget(self, cached: CachedSession) -> None:
        """Remove a session from the cache, because it has ended."""
        if self._cached.get(cached.digest) is cached:
            del self._cached[cached.digest]

    def close(self) -> None:
        """End all sessions."""
        for cached in list(self._cached.values()):
            self.end(cached)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _open(self, token: str, digest: bytes) -> asyncio.Future[CachedSession | Refusal]:
        opening: asyncio.Future[CachedSession | Refusal] = self._loop.create_future()
        self._opening[digest] = opening

        def done(replies: Sequence[Reply]) -> None:
            del self._opening[digest]
            (reply,) = replies
            assert isinstance(reply, Attached | Refusal), "an attach is answered by these"
            if isinstance(reply, Refusal):
                opening.set_result(reply)
                return
            assert reply.member is not None, "a token belongs to a member"
            opening.set_result(self._keep(CachedSession(self, digest, reply.session, reply.member, self._loop.time())))

        attach = c.Attach(protocol=self._protocol, credential=ByToken(token), acknowledges=self._acknowledges)
        self._hub.submit((attach,), done)
        return opening

    def _keep(self, cached: CachedSession) -> CachedSession:
        if len(self._cached) >= _SESSIONS_MAX:
            self.end(min(self._cached.values(), key=lambda other: other.used_at))
        self._cached[cached.digest] = cached
        self._hub.listen(cached.session, cached)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds / 4, self._sweep)
        return cached

    def _sweep(self) -> None:
        late = self._loop.time() - self._idle_seconds
        for cached in [cached for cached in self._cached.values() if cached.used_at <= late]:
            self.end(cached)
        again = bool(self._cached)
        self._sweeper = self._loop.call_later(self._idle_seconds / 4, self._sweep) if again else None

    def end(self, cached: CachedSession) -> None:
        """End a session.

        The next request with its token opens a new session, and is refused if the token is no longer valid.
        """
        self.forget(cached)
        self._hub.forget(cached.session)
        self._hub.submit((c.Detach(cached.session),))
