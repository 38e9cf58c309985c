"""Time-based one-time passwords (RFC 6238): SHA-1, 30 seconds, six digits, as every authenticator app has them.

A code is good for its own step and for one before and after it, because clocks differ, and only once: whoever reads it
over a shoulder comes too late. The caller keeps the step that was used last, and keeps it before it lets anybody in.
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
"""The name that an app shows beside a member's."""
STEP_SECONDS = 30
DIGITS = 6
WINDOW = 1
"""Steps before and after the present one."""

_SECRET_BYTES = 20
"""As long as the hash, which RFC 4226 recommends."""
_SECRET_CHARS_MAX = 256  # authenticator apps use 16 to 64
_CODE = re.compile(rf"[0-9]{{{DIGITS}}}\Z")


class Reason(StrEnum):
    """Why a code is refused."""

    MALFORMED = "malformed"
    INVALID = "invalid"
    REPLAY = "replay"


class Accepted(Struct, frozen=True):
    """The code is right."""

    step: int
    """The step that it was for: this one and all before it are used up."""


class Rejected(Struct, frozen=True):
    """The code is wrong, or right and used."""

    reason: Reason


def new_secret(randomness: Callable[[int], bytes]) -> str:
    """A secret as apps take it."""
    return base64.b32encode(randomness(_SECRET_BYTES)).decode("ascii")


def otpauth_uri(secret: str, issuer: str, label: str) -> str:
    """The address that an app reads from a QR code."""
    parameters = {"issuer": issuer, "secret": secret, "algorithm": "SHA1", "digits": DIGITS, "period": STEP_SECONDS}
    return f"otpauth://totp/{quote(issuer, safe='')}:{quote(label, safe='')}?{urlencode(parameters, quote_via=quote)}"


def code_at(secret: str, at_ms: int) -> str:
    """The code of a moment."""
    key = _key(secret)
    assert key is not None, "secrets are made here"
    return hotp(key, step_at(at_ms))


def step_at(at_ms: int) -> int:
    """The step of a moment."""
    return at_ms // 1000 // STEP_SECONDS


def verify(secret: str, code: str, at_ms: int, last_step: int) -> Accepted | Rejected:
    """Check a code. Takes the same time whichever step it was for and whatever is wrong with it."""
    key = _key(secret)
    if key is None or not _CODE.match(code):
        return Rejected(Reason.MALFORMED)
    now = step_at(at_ms)
    matched: int | None = None
    for step in range(max(0, now - WINDOW), now + WINDOW + 1):
        if hmac.compare_digest(hotp(key, step), code):
            # The latest, in the rare case that two steps have the same code: all before it are used up then.
            matched = step
    if matched is None:
        return Rejected(Reason.INVALID)
    return Accepted(matched) if matched > last_step else Rejected(Reason.REPLAY)


def hotp(key: bytes, counter: int, digits: int = DIGITS) -> str:
    """The code of a counter (RFC 4226, section 5.3)."""
    digest = hmac.digest(key, counter.to_bytes(8, "big"), hashlib.sha1)
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return str(number % 10**digits).zfill(digits)


def _key(secret: str) -> bytes | None:
    """The bytes of a secret; people type them in small letters, with spaces and without padding."""
    if len(secret) > _SECRET_CHARS_MAX:
        return None
    text = secret.replace(" ", "").rstrip("=").upper()
    try:
        return base64.b32decode(text + "=" * (-len(text) % 8)) or None
    except (binascii.Error, ValueError):
        return None
