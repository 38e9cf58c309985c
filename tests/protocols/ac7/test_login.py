"""Logins of humans: sessions that slide, counts of wrong codes, and a strict cookie."""

import os

import pytest

from tieline.protocols.ac7.login import (
    SESSION_MS,
    Denied,
    Logins,
    SignedIn,
    clear_cookie,
    read_cookie,
    set_cookie,
)
from tieline.protocols.ac7.totp import code_at

NOW = 1_700_000_000_000
MINUTE = 60_000


class Desk:
    """Logins with two members that have an app."""

    def __init__(self) -> None:
        self.logins = Logins(os.urandom)
        self.secrets = {name: self.logins.enrol(name, NOW) for name in ("ada", "bob")}

    def right(self, name: str, now: int) -> str:
        return code_at(self.secrets[name], now)

    def wrong(self, now: int) -> str:
        """A code that nobody has for long enough."""
        taken = {code_at(secret, now + step * 30_000) for secret in self.secrets.values() for step in range(-2, 40)}
        return next(code for number in range(10_000) if (code := f"{number:06}") not in taken)

    def sign_in(self, name: str, now: int = NOW) -> SignedIn:
        result = self.logins.sign_in(self.right(name, now), name, now)
        assert isinstance(result, SignedIn)
        return result


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_right_code_opens_a_session_and_is_good_once(desk: Desk) -> None:
    signed = desk.sign_in("ada")
    assert desk.logins.find(signed.id, NOW) == (signed.session, False)
    assert signed.session.member == "ada"
    assert desk.logins.sign_in(desk.right("ada", NOW), "ada", NOW) == Denied(401, "invalid code")


def test_a_session_lasts_seven_days_after_its_last_use(desk: Desk) -> None:
    signed = desk.sign_in("ada")
    later = NOW + SESSION_MS - 1
    session, changed = desk.logins.find(signed.id, later)
    assert session is not None
    assert session.expires_at_ms == later + SESSION_MS
    assert changed
    assert desk.logins.find(signed.id, later + SESSION_MS) == (None, True)
    assert desk.logins.find(signed.id, later + SESSION_MS) == (None, False)


def test_signing_out_ends_the_session(desk: Desk) -> None:
    signed = desk.sign_in("ada")
    assert desk.logins.sign_out(signed.id)
    assert not desk.logins.sign_out(signed.id)
    assert desk.logins.find(signed.id, NOW) == (None, False)


def test_what_is_kept_survives_a_restart_and_opens_nothing_by_itself(desk: Desk) -> None:
    signed = desk.sign_in("ada")
    kept = desk.logins.encode()
    assert signed.id.encode() not in kept
    again = Logins(os.urandom, kept)
    assert again.find(signed.id, NOW)[0] == signed.session
    assert again.sign_in(desk.right("ada", NOW), "ada", NOW) == Denied(401, "invalid code")
    assert isinstance(again.sign_in(desk.right("bob", NOW), "bob", NOW), SignedIn)


@pytest.mark.parametrize("name", ["ada", "nobody"])
def test_five_wrong_codes_make_a_name_wait(desk: Desk, name: str) -> None:
    for number in range(5):
        assert desk.logins.sign_in(desk.wrong(NOW), name, NOW + number) == Denied(401, "invalid code")
    denied = desk.logins.sign_in(desk.right("ada", NOW), name, NOW + 5)
    assert denied == Denied(429, "too many failed attempts", 900)
    halfway = desk.logins.sign_in(desk.wrong(NOW), name, NOW + 10 * MINUTE)
    assert halfway == Denied(429, "too many failed attempts", 300)


def test_a_name_may_try_again_after_the_wait_and_others_never_waited(desk: Desk) -> None:
    for _ in range(5):
        desk.logins.sign_in(desk.wrong(NOW), "ada", NOW)
    desk.sign_in("bob")
    desk.sign_in("ada", NOW + 15 * MINUTE)


def test_a_right_code_forgives_the_wrong_ones_before_it(desk: Desk) -> None:
    for _ in range(4):
        desk.logins.sign_in(desk.wrong(NOW), "ada", NOW)
    desk.sign_in("ada")
    assert desk.logins.sign_in(desk.wrong(NOW), "ada", NOW) == Denied(401, "invalid code")


def test_a_login_without_a_name_finds_whose_code_it_is(desk: Desk) -> None:
    result = desk.logins.sign_in(desk.right("bob", NOW), None, NOW)
    assert isinstance(result, SignedIn)
    assert result.session.member == "bob"


def test_ten_wrong_codes_without_a_name_make_everybody_without_a_name_wait(desk: Desk) -> None:
    for number in range(10):
        assert desk.logins.sign_in(desk.wrong(NOW), None, NOW) == Denied(401, "invalid code"), number
    assert desk.logins.sign_in(desk.right("bob", NOW), None, NOW) == Denied(429, "too many failed attempts", 900)
    desk.sign_in("bob")
    assert desk.logins.sign_in(desk.wrong(NOW), None, NOW) == Denied(429, "too many failed attempts", 900)


def test_inventing_names_does_not_make_a_members_count_be_forgotten(desk: Desk) -> None:
    for _ in range(5):
        desk.logins.sign_in(desk.wrong(NOW), "ada", NOW)
    for number in range(3000):
        desk.logins.sign_in("000000", f"ghost-{number}", NOW)
    assert desk.logins.sign_in(desk.right("ada", NOW), "ada", NOW) == Denied(429, "too many failed attempts", 900)


def test_a_member_that_is_forgotten_or_enrolled_anew_is_signed_out(desk: Desk) -> None:
    ada, bob = desk.sign_in("ada"), desk.sign_in("bob")
    assert desk.logins.forget("ada")
    assert not desk.logins.forget("ada")
    assert not desk.logins.is_enrolled("ada")
    desk.logins.enrol("bob", NOW)
    assert desk.logins.find(ada.id, NOW)[0] is None
    assert desk.logins.find(bob.id, NOW)[0] is None


def test_a_member_has_a_bounded_number_of_sessions(desk: Desk) -> None:
    signed = [desk.sign_in("ada", NOW + number * 30_000) for number in range(40)]
    now = NOW + 40 * 30_000
    alive = [desk.logins.find(one.id, now)[0] is not None for one in signed]
    assert alive == [False] * 8 + [True] * 32


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
