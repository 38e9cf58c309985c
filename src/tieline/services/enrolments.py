"""Enrolment of devices (RFC 8628): a program without a token gets one after a person confirms a code.

Used by: `devices`. The time and the source of randomness are parameters, and nothing is stored on disk. A device asks
for a token and gets two codes. The device polls with the long code, of which the hub keeps only the hash. A member with
`members.manage` types in the short code. The device can fetch its token once.

A restart of the hub loses all requests. A device is then told that its code has expired, and asks again. `expire`
returns the tokens that were made but never fetched. The caller must revoke these tokens.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from enum import Enum
from hashlib import sha256

from msgspec import UNSET, Struct, UnsetType

from tieline.wire.rate_limit import RateLimit, seconds

EXPIRES_MS = 300_000
INTERVAL_SECONDS = 5
"""Number of seconds between two polls of a device, as the hub asks for it."""

_SLOW_DOWN_MS = 2500
"""Time in milliseconds. A device that polls again within this time is told to slow down."""
_REQUESTS_MAX = 10
_REQUESTS_WINDOW_MS = 3600 * 1000
"""Time in milliseconds. One address may make `_REQUESTS_MAX` requests within this time. A person types in each code, so
few requests are enough."""
_WAITING_MAX = 1000
"""Maximum number of requests that may wait at the same time, because a person must be able to read the list."""
_LABEL_CHARS_MAX = 64  # a name in a list that a person reads
_SOURCE_CHARS_MAX = 64  # longer than any address
_AGENT_CHARS_MAX = 512  # enough to recognize a program
_REASON_CHARS_MAX = 256  # a sentence or two

_DEVICE_BYTES = 32
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's alphabet, in which no letter looks like a digit."""
_LOOKALIKES = str.maketrans("ILO", "110", " -\t")
_USER_CHARS = 8


class State(Enum):
    """State of a device's request for a token: not decided, being approved, approved or rejected."""

    PENDING = "pending"
    CLAIMED = "claimed"
    """A member has approved the request, and the hub is making the token. Nobody else can decide the request."""
    APPROVED = "approved"
    REJECTED = "rejected"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.CLAIMED, State.REJECTED}),
    State.CLAIMED: frozenset({State.APPROVED, State.PENDING}),
    State.APPROVED: frozenset(),
    State.REJECTED: frozenset(),
}
"""For each state, the states to which a request can change next. The hub deletes a request when the device has its
final answer, or when the request expires."""


class Started(Struct, frozen=True):
    """Answer to a device's request for a token: a code for its polls, and a code for the person who approves."""

    device_code: str
    user_code: str
    expires_in: int
    interval: int
    """Time between two polls. `expires_in` and `interval` are in seconds."""


class Waiting(Struct, frozen=True):
    """A device's request that waits for a decision, as shown to the members who may approve it."""

    user_code: str
    label_hint: str
    source: str | None
    """Address of the device."""
    agent: str | None
    """Name of the device's program, as reported by the device."""
    created_at_ms: int
    expires_at_ms: int


class Granted(Struct, frozen=True):
    """Record of a token that was made for a device, and that the device has not fetched yet."""

    token: str
    token_id: str
    member: str


class PollError(Struct, frozen=True):
    """The answer (status 400) to a device that polls but gets no token: pending, too fast, expired or rejected."""

    error: str
    """One of `authorization_pending`, `slow_down`, `expired_token` and `access_denied`."""
    error_description: str | UnsetType = UNSET


class EnrolmentRefusal(Struct, frozen=True):
    """Answer that refuses a request of a device or of the approving member: the HTTP status and the reason."""

    status: int
    error: str
    retry_after: int | None = None
    """Seconds to wait before the next attempt. Only with status 429."""


class _Request:
    """Record of a device's request: the hash of its code, its state, and the token or the reason for a rejection."""

    __slots__ = ("digest", "granted", "polled_at_ms", "reason", "state", "waiting")

    def __init__(self, digest: bytes, waiting: Waiting) -> None:
        self.digest = digest
        self.waiting = waiting
        self.state = State.PENDING
        # Set when approved.
        self.granted: Granted | None = None
        # Set when rejected.
        self.reason: str = ""
        self.polled_at_ms: int | None = None

    def become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} does not become {state}"
        self.state = state


class Enrolments:
    """All requests of devices for a token.

    A request is removed when the device has its final answer, or when it expires.
    """

    def __init__(self, randomness: Callable[[int], bytes]) -> None:
        self._randomness = randomness
        # Both dictionaries are in the order of expiry.
        self._by_device: dict[bytes, _Request] = {}
        self._by_user_code: dict[str, _Request] = {}
        self._requests = RateLimit(_REQUESTS_MAX, _REQUESTS_WINDOW_MS)
        # Tokens that no device fetched before the request expired.
        self._unfetched: list[Granted] = []

    # The device

    def start(
        self, source: str | None, agent: str | None, label_hint: str, now_ms: int, prefix: str = ""
    ) -> Started | EnrolmentRefusal:
        """Register the request of a device for a token.

        Return two codes: one for the device, one for the approving person. `source` is the device's address, and
        `agent` is the name of its program. `label_hint` is the name that the device proposes for itself. The device's
        code begins with `prefix`, because some clients recognize a device code by its prefix.
        """
        if len(label_hint) > _LABEL_CHARS_MAX:
            return EnrolmentRefusal(400, "invalid enroll payload")
        self._drop_expired(now_ms)
        wait_ms = self._requests.wait_ms(source, now_ms)
        if wait_ms > 0:
            return EnrolmentRefusal(429, "too many enrollment requests", seconds(wait_ms))
        if len(self._by_device) >= _WAITING_MAX:
            oldest = next(iter(self._by_device.values()))
            wait_ms = oldest.waiting.expires_at_ms - now_ms
            return EnrolmentRefusal(429, "too many enrollments are waiting", max(1, seconds(wait_ms)))
        self._requests.count(source, now_ms)
        device_code = prefix + urlsafe_b64encode(self._randomness(_DEVICE_BYTES)).rstrip(b"=").decode("ascii")
        user_code = next(code for code in self._user_codes() if code not in self._by_user_code)
        waiting = Waiting(
            user_code=user_code,
            label_hint=label_hint,
            source=source[:_SOURCE_CHARS_MAX] if source is not None else None,
            agent=agent[:_AGENT_CHARS_MAX] if agent is not None else None,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + EXPIRES_MS,
        )
        request = _Request(_digest(device_code), waiting)
        self._by_device[request.digest] = self._by_user_code[user_code] = request
        return Started(device_code, user_code, EXPIRES_MS // 1000, INTERVAL_SECONDS)

    def poll(self, device_code: str, now_ms: int) -> Granted | PollError:
        """Return the answer to a device that asks if its request is decided: the token, or an error such as "pending".

        An unknown code gets the same answer as an expired code.
        """
        self._drop_expired(now_ms)
        request = self._by_device.get(_digest(device_code))
        if request is None:
            return PollError("expired_token")
        match request.state:
            case State.APPROVED:
                assert request.granted is not None, "it was approved with a token"
                self._drop(request)
                return request.granted
            case State.REJECTED:
                self._drop(request)
                return PollError("access_denied", request.reason or UNSET)
            case State.PENDING | State.CLAIMED:
                before, request.polled_at_ms = request.polled_at_ms, now_ms
                hasty = before is not None and now_ms - before < _SLOW_DOWN_MS
                return PollError("slow_down" if hasty else "authorization_pending")

    # The approving member

    def pending(self, now_ms: int) -> list[Waiting]:
        """Return the requests of devices that are not decided yet, oldest first."""
        self._drop_expired(now_ms)
        return [request.waiting for request in self._by_device.values() if request.state is State.PENDING]

    def claim(self, user_code: str, now_ms: int) -> Waiting | EnrolmentRefusal:
        """Begin to approve the request with the code `user_code`, and return the request.

        Return a refusal if no request with this code waits. Until the caller calls `approve` or `release`, nobody else
        can decide the request.
        """
        request = self._decidable(user_code, now_ms)
        if isinstance(request, EnrolmentRefusal):
            return request
        request.become(State.CLAIMED)
        return request.waiting

    def approve(self, user_code: str, granted: Granted) -> bool:
        """Finish the approval that `claim` began: store the token `granted`, so that the device can fetch it.

        `user_code` is the code in the `Waiting` that `claim` returned. Return false if the request has expired. Then
        the caller must revoke the token.
        """
        request = self._by_user_code.get(user_code)
        if request is None or request.state is not State.CLAIMED:
            return False
        request.become(State.APPROVED)
        request.granted = granted
        return True

    def release(self, user_code: str) -> None:
        """Cancel the approval that `claim` began, because no token could be made.

        The request waits for a decision again.
        """
        request = self._by_user_code.get(user_code)
        if request is not None and request.state is State.CLAIMED:
            request.become(State.PENDING)

    def reject(self, user_code: str, reason: str, now_ms: int) -> EnrolmentRefusal | None:
        """Reject the request with this code. Return a refusal if no request with this code waits."""
        request = self._decidable(user_code, now_ms)
        if isinstance(request, EnrolmentRefusal):
            return request
        request.become(State.REJECTED)
        request.reason = reason[:_REASON_CHARS_MAX]
        return None

    @property
    def granted(self) -> bool:
        """True if at least one token was made for a device and is not fetched yet."""
        return any(request.granted is not None for request in self._by_device.values())

    def expire(self, now_ms: int) -> list[Granted]:
        """Remove all expired requests.

        Return the tokens that no device fetched in time; the caller must revoke these tokens.
        """
        self._drop_expired(now_ms)
        unfetched, self._unfetched = self._unfetched, []
        return unfetched

    def _decidable(self, user_code: str, now_ms: int) -> _Request | EnrolmentRefusal:
        self._drop_expired(now_ms)
        code = parse_user_code(user_code)
        if code is None:
            return EnrolmentRefusal(400, "invalid user code")
        request = self._by_user_code.get(code)
        if request is None:
            return EnrolmentRefusal(404, "no such enrollment, or it expired")
        if request.state is not State.PENDING:
            return EnrolmentRefusal(409, "the enrollment was decided already")
        return request

    def _drop_expired(self, now_ms: int) -> None:
        while self._by_device:
            request = next(iter(self._by_device.values()))
            if request.waiting.expires_at_ms > now_ms:
                return
            self._drop(request)
            if request.granted is not None:
                self._unfetched.append(request.granted)

    def _drop(self, request: _Request) -> None:
        del self._by_device[request.digest]
        del self._by_user_code[request.waiting.user_code]

    def _user_codes(self) -> Iterator[str]:
        """Yield random codes without end. A person types in such a code to approve a device.

        All characters of the alphabet are equally likely: each one is chosen for 8 of the 256 values of a random byte.
        """
        while True:
            letters = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in self._randomness(_USER_CHARS))
            yield f"{letters[:4]}-{letters[4:]}"


def parse_user_code(text: str) -> str | None:
    """Return the normal form of a code that a person typed: capital letters, no lookalikes, one dash.

    Return `None` if the text is not a valid code.
    """
    if len(text) > 4 * _USER_CHARS:
        return None
    letters = text.upper().translate(_LOOKALIKES)
    if len(letters) != _USER_CHARS or any(letter not in _ALPHABET for letter in letters):
        return None
    return f"{letters[:4]}-{letters[4:]}"


def _digest(device_code: str) -> bytes:
    return sha256(device_code.encode("utf-8", "surrogatepass")).digest()
