"""Tests of the cookies of ac7: they have strict attributes, and are found among other cookies."""

import pytest

from tieline.protocols.ac7.cookies import clear_cookie, read_cookie, set_cookie


def test_the_cookie_is_strict() -> None:
    assert set_cookie("abc", secure=False) == "ac7_session=abc; Max-Age=604800; Path=/; HttpOnly; SameSite=Strict"
    assert set_cookie("abc", secure=True).endswith("; Secure")
    assert clear_cookie(secure=False) == "ac7_session=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("ac7_session=abc", "abc"),
        ("a=b; ac7_session=abc; c=d", "abc"),
        ("ac7_session=", None),
        ("xac7_session=abc", None),
        ("", None),
        ("a" * 9000 + "; ac7_session=abc", None),
    ],
)
def test_the_cookie_is_found_among_others(header: str, value: str | None) -> None:
    assert read_cookie(header) == value
