"""Logins of humans: a token or a code of an authenticator app opens a login session. A cookie holds the session's id.

Used by: `login_sessions`. Uses: `totp`. The caller gives the time and the source of randomness, and writes `encode()`
to a private file whenever a method reports a change. Only a hash of a session's id is stored, so nobody can use the
file to log in.

**Wrong codes never lock a member out.** An attacker may guess codes for any name, and may have the same address as the
member (on loopback and behind a proxy, everybody has the same address). So a name with too many wrong codes is not
blocked. It is *suspected*: a login then needs three right codes of three different time steps, from one browser,
without a wrong code in between. Until then, every answer is the same, for right and for wrong codes: status 429 with
the seconds to the next time step. A cookie identifies the attempt. A wrong code ends the attempt. A person with the app
is logged in after about a minute, even if others guess codes during this time.

**The arithmetic.** Three codes are valid at a time (`totp.WINDOW`), so a guess is right with the probability p = 3e-6.
A name that is not suspected allows 5 wrong codes in 15 minutes and 10 in a day. So 3,650 guesses in a year succeed with
a probability of 1.1 %. For a suspected name, an attempt needs three right guesses, and gets no hint before the last
one: p**3 = 2.7e-17. At 3,000 guesses a second, more than the hub can answer, the probability of a success is 2.6e-6 in
a year. A login without a name tries the secrets of all members. So its wrong code counts once for each member with a
secret, and all logins without a name share one count.

Unknown names are counted like members, but separately. So an attacker cannot tell unknown names from members, and
cannot push a member's count out of memory with invented names.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from tieline.services import totp
from tieline.wire.rate_limit import RateLimit, seconds

SESSION_MS = 7 * 24 * 3600 * 1000
"""Time in milliseconds. A login session ends when nobody has used it for this time."""

_ID_BYTES = 32
_SLIDE_MS = 60_000
"""Shortest time between two extensions of a login session, so that not every request writes to disk."""
_SESSIONS_MAX = 10_000
_MEMBER_SESSIONS_MAX = 32
"""Maximum number of login sessions of one member, one for each browser. When there are more, the least recently used
session ends."""

_WINDOW_MS = 15 * 60 * 1000  # see the arithmetic above
_FAILURES_MAX = 5  # see the arithmetic above
_NAMELESS_FAILURES_MAX = 10  # counted once for each member, so a little more
_DAY_MS = 24 * 3600 * 1000
_DAY_FAILURES_MAX = 10  # see the arithmetic above
_NAMES_MAX = 1_000_000  # more than a hub has members
_UNKNOWN_NAMES_MAX = 1024  # strangers make these names up, so they get little room

_CODES = 3
"""Number of right codes in a row that a login needs after too many wrong codes for its name."""
ATTEMPT_MS = 5 * 60 * 1000
"""Longest time from the first code to the last code of a login that needs several right codes."""
_MEMBER_ATTEMPTS_MAX = 4
"""Maximum number of unfinished logins of one member: one for each browser. A login is unfinished if it needs several
right codes and has only some of them."""

INVALID_CODE = "invalid code"
TOO_MANY = "too many failed attempts: enter the next code when your app shows it, and again until you are in"


class LoginSession(Struct, frozen=True):
    """A login session of one browser: its member, its end, and the hash of the id in the cookie."""

    digest: str
    """SHA-256 hash of the session's id. The id itself is only in the browser's cookie."""
    member: str
    created_at_ms: int
    expires_at_ms: int
    token_id: str = ""
    """Id of the session's token at the hub. It is empty if a code of an authenticator app opened the session. Then the
    hub finds the token by its label."""


class Credential(Struct, frozen=True):
    """Record of a member's authenticator app: its secret, and the time step of the last code that was used."""

    secret: str
    last_step: int = -1
    """Time step (30 seconds) of the last used code; see `totp`."""
    created_at_ms: int = 0
    token_id: str = ""
    """Id of the app's token at the hub. It is empty if an older hub made the secret and the token is not made yet."""


class SignedIn(Struct, frozen=True):
    """Result of a login with a right code: a new login session."""

    id: str
    """Id of the session, for the browser's cookie. The hub does not store this id."""
    session: LoginSession
    app_token: str
    """Token of the member's authenticator app at the hub."""


class Denied(Struct, frozen=True):
    """Result of a login that is refused: the code is wrong, or there were too many wrong codes."""

    status: int
    error: str
    retry_after: int | None = None
    """Seconds to wait before the next code. Only with status 429."""
    attempt: str | None = None
    """Id of an unfinished login that needs several right codes. Only with status 429. The browser sends this id in a
    cookie with the next code."""


class _Attempt(Struct, frozen=True):
    """Record of an unfinished login that needs several right codes, because too many codes for its name were wrong.

    All codes of this login so far were right.
    """

    member: str
    step: int
    """Time step (30 seconds) of the last code."""
    codes: int
    until_ms: int


class _Failures:
    """Counter of wrong codes by member name, for the last 15 minutes and for the last day."""

    def __init__(self, most: int, names_max: int) -> None:
        self._lately = RateLimit(most, _WINDOW_MS, names_max)
        self._today = RateLimit(_DAY_FAILURES_MAX, _DAY_MS, names_max)

    def suspects(self, name: str, now_ms: int) -> bool:
        """True if there were so many wrong codes for this name that a login needs several right codes."""
        return self._lately.wait_ms(name, now_ms) > 0 or self._today.wait_ms(name, now_ms) > 0

    def add(self, name: str, now_ms: int, secrets: int = 1) -> None:
        """Count one wrong code for this name. `secrets` is the number of secrets that the code was compared with."""
        self._lately.count(name, now_ms)
        for _ in range(min(secrets, _DAY_FAILURES_MAX)):
            self._today.count(name, now_ms)

    def forgive(self, name: str) -> None:
        """Clear a name's count of the last 15 minutes after a right code.

        The count of the last day stays, because the wrong codes may be the guesses of an attacker.
        """
        self._lately.clear(name)

    def forget(self, name: str) -> None:
        """Clear both counts of a name, because no member has this name any more."""
        self._lately.clear(name)
        self._today.clear(name)


class _Kept(Struct, frozen=True):
    """JSON content of the file of logins: the authenticator apps and the login sessions."""

    credentials: dict[str, Credential] = {}
    sessions: list[LoginSession] = []


class Logins:
    """Store of the authenticator apps and login sessions of all members.

    The caller saves `encode()` after each change.
    """

    def __init__(self, randomness: Callable[[int], bytes], kept: bytes = b"{}") -> None:
        self._randomness = randomness
        data = msgspec.json.decode(kept, type=_Kept)
        self._credentials = dict(data.credentials)
        # Sessions by digest, in the order of their last use.
        self._sessions = {session.digest: session for session in data.sessions}
        self._failures = _Failures(_FAILURES_MAX, _NAMES_MAX)
        self._unknown_failures = _Failures(_FAILURES_MAX, _UNKNOWN_NAMES_MAX)
        self._nameless_failures = _Failures(_NAMELESS_FAILURES_MAX, 1)
        # Attempts of suspected names that showed only right codes, by the hash of the attempt's id, oldest first.
        self._attempts: dict[str, _Attempt] = {}
        # Ended sessions that the caller has not taken yet.
        self._ended: list[LoginSession] = []

    def encode(self) -> bytes:
        """Return all authenticator apps and login sessions, encoded for the file of logins.

        The file must be private, because it contains the secrets of the apps.
        """
        return msgspec.json.encode(_Kept(self._credentials, list(self._sessions.values())))

    def new_secret(self) -> str:
        """Make and return a secret for an authenticator app."""
        return totp.new_secret(self._randomness)

    def enrol(self, member: str, secret: str, now_ms: int, token_id: str = "") -> None:
        """Give a member a new secret for its authenticator app.

        The old secret becomes invalid, and login sessions opened by a code end. `token_id` is the id of the app's token
        at the hub. The caller must save the data.
        """
        self.remove_app(member)
        self._credentials[member] = Credential(secret, created_at_ms=now_ms, token_id=token_id)

    def remove_app(self, member: str) -> bool:
        """Remove a member's authenticator app, and end its login sessions that were opened by a code.

        Return true if there was an app.
        """
        for session in self.sessions_of(member):
            if not session.token_id:
                self._end(session.digest)
        return self._credentials.pop(member, None) is not None

    def register_app(self, member: str, token_id: str) -> None:
        """Store the id of the token that was made for a member's existing authenticator app.

        The caller must save the data.
        """
        app = self._credentials.get(member)
        # The member may have been removed meanwhile.
        if app is not None:
            self._credentials[member] = msgspec.structs.replace(app, token_id=token_id)

    def app(self, member: str) -> Credential | None:
        """Return a member's authenticator app, or `None`."""
        return self._credentials.get(member)

    def forget(self, member: str) -> bool:
        """Delete all data of a removed member. The hub has already removed the member's tokens.

        Return true if the data must be saved.
        """
        self._failures.forget(member)
        for digest in self._attempts_of(member):
            del self._attempts[digest]
        known = self._credentials.pop(member, None) is not None
        ended = self.sessions_of(member)
        for session in ended:
            del self._sessions[session.digest]
        return bool(ended) or known

    def reconcile(self, since_ms: Mapping[str, int]) -> bool:
        """Delete all data of removed members, even if a new member has the same name.

        `since_ms` has the creation time of every current member, by name. Return true if the data must be saved.
        """
        gone = [
            name
            for name, credential in self._credentials.items()
            if name not in since_ms or credential.created_at_ms < since_ms[name]
        ]
        for name in gone:
            self.forget(name)
        over = [
            session.digest
            for session in self._sessions.values()
            if session.created_at_ms < since_ms.get(session.member, session.created_at_ms + 1)
        ]
        for digest in over:
            del self._sessions[digest]
        return bool(gone or over)

    def members(self) -> list[str]:
        """Return the members that have an authenticator app or a login session."""
        return sorted({*self._credentials, *(session.member for session in self._sessions.values())})

    def sessions_of(self, member: str) -> list[LoginSession]:
        """Return the login sessions of a member, least recently used first."""
        return [session for session in self._sessions.values() if session.member == member]

    def take_ended(self) -> list[LoginSession]:
        """Return the login sessions that have ended since the last call. The caller must revoke their tokens."""
        ended, self._ended = self._ended, []
        return ended

    def sign_in(self, code: str, member: str | None, now_ms: int, attempt: str | None = None) -> SignedIn | Denied:
        """Log in with a code of an authenticator app. Return the new login session, or the refusal.

        Without `member`, the code must match exactly one member. `attempt` is the id in the last `Denied` that the same
        browser got. After a successful login, the caller must save the data.
        """
        if member is None:
            failures, key, secrets = self._nameless_failures, "", len(self._credentials)
        else:
            failures = self._failures if member in self._credentials else self._unknown_failures
            key, secrets = member, 1
        suspected = failures.suspects(key, now_ms)
        # Remove the attempt for right and for wrong codes, so that nobody can use its id for another guess.
        before = self._attempts.pop(digest_of(attempt), None) if attempt is not None else None
        found = self._accept(code, member, now_ms)
        if found is None:
            failures.add(key, now_ms, secrets)
            return self._not_yet(now_ms) if suspected else Denied(401, INVALID_CODE)
        name, step = found
        if suspected:
            denied = self._continue(name, step, before, now_ms)
            if denied is not None:
                return denied
        # The count of logins without a name stays. Otherwise a member could clear it with its own code, and go on
        # guessing.
        self._failures.forgive(name)
        self._credentials[name] = msgspec.structs.replace(self._credentials[name], last_step=step)
        return self._open(name, now_ms)

    def _continue(self, name: str, step: int, before: _Attempt | None, now_ms: int) -> Denied | None:
        """Count one right code of a login that needs several right codes, because there were too many wrong codes.

        `step` is the time step of the code, and `before` is the unfinished login with its earlier codes. Return `None`
        if the login now has enough right codes. Otherwise return the answer for the browser.
        """
        if before is None or before.member != name or before.until_ms <= now_ms:
            now = _Attempt(name, step, 1, now_ms + ATTEMPT_MS)
        elif step > before.step:
            now = _Attempt(name, step, before.codes + 1, before.until_ms)
        else:
            # The same code again: the app does not show the next one yet.
            now = before
        if now.codes >= _CODES:
            return None
        own = self._attempts_of(name)
        if len(own) >= _MEMBER_ATTEMPTS_MAX:
            del self._attempts[own[0]]
        denied = self._not_yet(now_ms)
        assert denied.attempt is not None, "made a moment ago"
        self._attempts[digest_of(denied.attempt)] = now
        return denied

    def _attempts_of(self, member: str) -> list[str]:
        return [digest for digest, attempt in self._attempts.items() if attempt.member == member]

    def _not_yet(self, now_ms: int) -> Denied:
        """Return the answer "wait for the next code", for a login that needs several right codes.

        Every code gets this answer, right or wrong, except the last right code. So an attacker who guesses codes learns
        nothing.
        """
        step_ms = totp.STEP_SECONDS * 1000
        return Denied(429, TOO_MANY, seconds(step_ms - now_ms % step_ms), self._randomness(_ID_BYTES).hex())

    def find(self, session_id: str, now_ms: int) -> tuple[LoginSession | None, bool]:
        """Return the login session with the id `session_id`, or `None` if there is no valid one. Extend the session.

        The second value of the result is true if the data must be saved.
        """
        digest = digest_of(session_id)
        session = self._sessions.get(digest)
        if session is None:
            return None, False
        if session.expires_at_ms <= now_ms:
            self._end(digest)
            return None, True
        changed = self.extend(digest, now_ms)
        return self._sessions[digest], changed

    def extend(self, digest: str, used_at_ms: int) -> bool:
        """Extend a login session that was used at the time `used_at_ms`. `digest` is the hash of the session's id.

        Return true if the data must be saved.
        """
        session = self._sessions[digest]
        if used_at_ms + SESSION_MS - session.expires_at_ms < _SLIDE_MS:
            return False
        del self._sessions[digest]
        self._sessions[digest] = msgspec.structs.replace(session, expires_at_ms=used_at_ms + SESSION_MS)
        return True

    def expire(self, now_ms: int) -> bool:
        """End the login sessions that nobody has used for too long. Return true if the data must be saved."""
        over = [session.digest for session in self._sessions.values() if session.expires_at_ms <= now_ms]
        for digest in over:
            self._end(digest)
        return bool(over)

    def sign_out(self, session_id: str) -> bool:
        """End a login session. Return true if it existed."""
        return self._end(digest_of(session_id))

    def _accept(self, code: str, member: str | None, now_ms: int) -> tuple[str, int] | None:
        """Return the member and the 30-second time step of a valid code; `None` if the code is not valid.

        Without `member`, the code must match the secret of exactly one member.
        """
        names = [member] if member is not None else list(self._credentials)
        accepted: list[tuple[str, int]] = []
        for name in names:
            credential = self._credentials.get(name)
            if credential is None:
                # This takes as long as with a secret, so that nobody learns which members have one.
                totp.verify(_DECOY, code, now_ms, -1)
                continue
            result = totp.verify(credential.secret, code, now_ms, credential.last_step)
            if isinstance(result, totp.Accepted):
                accepted.append((name, result.step))
        return accepted[0] if len(accepted) == 1 else None

    def _open(self, member: str, now_ms: int) -> SignedIn:
        session_id = self._randomness(_ID_BYTES).hex()
        session = self.open(member, session_id, now_ms)
        return SignedIn(session_id, session, app_token(self._credentials[member].secret))

    def open(self, member: str, session_id: str, now_ms: int, token_id: str = "") -> LoginSession:
        """Open and return a login session with the id `session_id` for a member. The caller must save the data.

        `token_id` is the id of the session's token at the hub. It is empty if a code opened the session.
        """
        session = LoginSession(digest_of(session_id), member, now_ms, now_ms + SESSION_MS, token_id)
        own = self.sessions_of(member)
        if len(own) >= _MEMBER_SESSIONS_MAX:
            self._end(own[0].digest)
        elif len(self._sessions) >= _SESSIONS_MAX:
            self._end(next(iter(self._sessions)))
        self._sessions[session.digest] = session
        return session

    def _end(self, digest: str) -> bool:
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._ended.append(session)
        return session is not None


_DECOY = "A" * 32


def digest_of(session_id: str) -> str:
    """Return the SHA-256 hash of a login session's id. The hash is stored instead of the id."""
    return sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def app_token(secret: str) -> str:
    """Return the hub token of an authenticator app, computed from the app's secret.

    Nobody can compute this token without the secret.
    """
    return sha256(b"authenticator app " + secret.encode()).hexdigest()
