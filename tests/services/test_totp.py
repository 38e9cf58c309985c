"""Tests of one-time passwords: the examples of the RFCs, the accepted time, and that each code works only once."""

import base64
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.services.totp import (
    Accepted,
    Reason,
    Rejected,
    code_at,
    hotp,
    new_secret,
    otpauth_uri,
    step_at,
    verify,
)

KEY = b"12345678901234567890"
SECRET = base64.b32encode(KEY).decode()
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_the_codes_of_rfc_6238_are_made(seconds: int, code: str) -> None:
    assert hotp(KEY, step_at(seconds * 1000), digits=8) == code
    assert code_at(SECRET, seconds * 1000) == code[2:]


def test_the_codes_of_rfc_4226_are_made() -> None:
    codes = "755224 287082 359152 969429 338314 254676 287922 162583 399871 520489"
    assert [hotp(KEY, counter) for counter in range(10)] == codes.split()


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_code_is_good_one_step_before_and_after_its_own(steps: int) -> None:
    at_ms = NOW_MS + steps * 30_000
    assert verify(SECRET, code_at(SECRET, at_ms), NOW_MS, -1) == Accepted(step_at(at_ms))


@pytest.mark.parametrize("steps", [-3, -2, 2, 3])
def test_a_code_is_not_good_further_away(steps: int) -> None:
    assert verify(SECRET, code_at(SECRET, NOW_MS + steps * 30_000), NOW_MS, -1) == Rejected(Reason.INVALID)


def test_a_code_is_good_once_and_uses_up_those_before_it() -> None:
    used = step_at(NOW_MS)
    assert verify(SECRET, code_at(SECRET, NOW_MS), NOW_MS, used) == Rejected(Reason.REPLAY)
    assert verify(SECRET, code_at(SECRET, NOW_MS - 30_000), NOW_MS, used) == Rejected(Reason.REPLAY)
    assert verify(SECRET, code_at(SECRET, NOW_MS + 30_000), NOW_MS, used) == Accepted(used + 1)


@pytest.mark.parametrize("code", ["", "12345", "1234567", "12345a", " 12345", "123456\n", "\uff11" * 6])
def test_what_is_not_six_digits_is_malformed(code: str) -> None:
    assert verify(SECRET, code, NOW_MS, -1) == Rejected(Reason.MALFORMED)


@settings(deadline=None)
@given(secret=st.text(max_size=300), code=st.text(max_size=10))
def test_no_secret_and_no_code_is_a_fault(secret: str, code: str) -> None:
    assert isinstance(verify(secret, code, NOW_MS, -1), Accepted | Rejected)


def test_an_app_reads_the_secret_from_the_address() -> None:
    secret = new_secret(lambda count: b"\x07" * count)
    parts = urlsplit(otpauth_uri(secret, "Tie line", "ada"))
    assert (parts.scheme, parts.netloc, parts.path) == ("otpauth", "totp", "/Tie%20line:ada")
    expected = {"secret": secret, "issuer": "Tie line", "algorithm": "SHA1", "digits": "6", "period": "30"}
    assert parse_qs(parts.query) == {key: [value] for key, value in expected.items()}
    assert len(base64.b32decode(secret)) == 20
