"""Time-based one-time passwords (RFC 6238): SHA-1, 30 seconds, six digits, as in every authenticator app.

A step is one of these periods of 30 seconds, counted since 1970. A code is valid in its own step, and in the step
before and the step after, because clocks differ. A code can be used only once, so that an observer who sees it cannot
use it, too. The caller stores the last used step. The caller must store it before the login succeeds.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import StrEnum
from urllib.parse import quote, urlencode

from msgspec import Struct

ISSUER = "tieline"
"""Issuer of the codes, which an authenticator app shows beside the member's name."""
STEP_SECONDS = 30
DIGITS = 6
WINDOW = 1
"""Number of 30-second steps before and after the current one in which a code is valid."""

_SECRET_BYTES = 20
"""Length of a secret, in bytes. It is the length of the hash, as RFC 4226 recommends."""
_SECRET_CHARS_MAX = 256  # authenticator apps use 16 to 64
_CODE = re.compile(rf"[0-9]{{{DIGITS}}}\Z")


class Reason(StrEnum):
    """Reason for refusing a code: it is not six digits, it is wrong, or it was used before."""

    MALFORMED = "malformed"
    INVALID = "invalid"
    REPLAY = "replay"


class Accepted(Struct, frozen=True):
    """Result of a check of a code: the code is right."""

    step: int
    """The 30-second step of the code. Codes of this step and of all earlier steps cannot be used any more."""


class Rejected(Struct, frozen=True):
    """Result of a check of a code: the code is wrong, or was used before."""

    reason: Reason


def new_secret(randomness: Callable[[int], bytes]) -> str:
    """Return a new secret in base32, the format of authenticator apps. `randomness(n)` returns n random bytes."""
    return base64.b32encode(randomness(_SECRET_BYTES)).decode("ascii")


def otpauth_uri(secret: str, issuer: str, label: str) -> str:
    """Return the URI for a QR code that passes the secret to an authenticator app.

    The app shows `issuer` and `label`.
    """
    parameters = {"issuer": issuer, "secret": secret, "algorithm": "SHA1", "digits": DIGITS, "period": STEP_SECONDS}
    return f"otpauth://totp/{quote(issuer, safe='')}:{quote(label, safe='')}?{urlencode(parameters, quote_via=quote)}"


def code_at(secret: str, at_ms: int) -> str:
    """Return the code that an authenticator app with this secret shows at the time `at_ms`."""
    key = _key(secret)
    assert key is not None, "secrets are made here"
    return hotp(key, step_at(at_ms))


def step_at(at_ms: int) -> int:
    """Return the number of the 30-second step that contains the time `at_ms`. Steps are counted since 1970."""
    return at_ms // 1000 // STEP_SECONDS


def verify(secret: str, code: str, at_ms: int, last_step: int) -> Accepted | Rejected:
    """Check a code against a secret, and return the result.

    `last_step` is the time step of the last used code. Codes of this step and of earlier steps are refused. The check
    takes the same time for every code of six digits, right or wrong.
    """
    key = _key(secret)
    if key is None or not _CODE.match(code):
        return Rejected(Reason.MALFORMED)
    now = step_at(at_ms)
    matched: int | None = None
    for step in range(max(0, now - WINDOW), now + WINDOW + 1):
        if hmac.compare_digest(hotp(key, step), code):
            # If two steps have the same code, which is rare, take the later one. Then both steps are used up.
            matched = step
    if matched is None:
        return Rejected(Reason.INVALID)
    return Accepted(matched) if matched > last_step else Rejected(Reason.REPLAY)


def hotp(key: bytes, counter: int, digits: int = DIGITS) -> str:
    """Return the code for a counter value (RFC 4226, section 5.3)."""
    digest = hmac.digest(key, counter.to_bytes(8, "big"), hashlib.sha1)
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return str(number % 10**digits).zfill(digits)


def _key(secret: str) -> bytes | None:
    """Decode a secret to bytes. Return `None` if the secret is invalid.

    Small letters, spaces and missing padding are allowed.
    """
    if len(secret) > _SECRET_CHARS_MAX:
        return None
    text = secret.replace(" ", "").rstrip("=").upper()
    try:
        return base64.b32decode(text + "=" * (-len(text) % 8)) or None
    except (binascii.Error, ValueError):
        return None
