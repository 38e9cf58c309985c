"""Tests of logins of humans: sessions that last seven days after their last use, and delays after wrong codes."""

import os

import pytest

from tieline.services.logins import (
    SESSION_MS,
    TOO_MANY,
    Denied,
    Logins,
    SignedIn,
    digest_of,
)
from tieline.services.totp import code_at

NOW = 1_700_000_000_000
MINUTE = 60_000


class LoginsHarness:
    """Test helper: logins with two members that have an authenticator app."""

    def __init__(self) -> None:
        self.logins = Logins(os.urandom)
        self.secrets: dict[str, str] = {}
        for name in ("ada", "bob"):
            self.enrol(name)

    def enrol(self, name: str) -> None:
        self.secrets[name] = self.logins.new_secret()
        self.logins.enrol(name, self.secrets[name], NOW)

    def right(self, name: str, now: int) -> str:
        return code_at(self.secrets[name], now)

    def wrong(self, now: int) -> str:
        """Return a code that is wrong for all members during the test. `now` is the current time in milliseconds."""
        taken = {code_at(secret, now + step * 30_000) for secret in self.secrets.values() for step in range(-2, 40)}
        return next(code for number in range(10_000) if (code := f"{number:06}") not in taken)

    def sign_in(self, name: str, now: int = NOW) -> SignedIn:
        result = self.logins.sign_in(self.right(name, now), name, now)
        assert isinstance(result, SignedIn)
        return result


@pytest.fixture
def harness() -> LoginsHarness:
    return LoginsHarness()


def test_a_right_code_opens_a_session_and_is_good_once(harness: LoginsHarness) -> None:
    signed = harness.sign_in("ada")
    assert harness.logins.find(signed.id, NOW) == (signed.session, False)
    assert signed.session.member == "ada"
    assert harness.logins.sign_in(harness.right("ada", NOW), "ada", NOW) == Denied(401, "invalid code")


def test_a_session_lasts_seven_days_after_its_last_use(harness: LoginsHarness) -> None:
    signed = harness.sign_in("ada")
    later = NOW + SESSION_MS - 1
    session, changed = harness.logins.find(signed.id, later)
    assert session is not None
    assert session.expires_at_ms == later + SESSION_MS
    assert changed
    assert harness.logins.find(signed.id, later + SESSION_MS) == (None, True)
    assert harness.logins.find(signed.id, later + SESSION_MS) == (None, False)


def test_signing_out_ends_the_session(harness: LoginsHarness) -> None:
    signed = harness.sign_in("ada")
    assert harness.logins.sign_out(signed.id)
    assert not harness.logins.sign_out(signed.id)
    assert harness.logins.find(signed.id, NOW) == (None, False)


def test_what_is_kept_survives_a_restart_and_opens_nothing_by_itself(harness: LoginsHarness) -> None:
    signed = harness.sign_in("ada")
    kept = harness.logins.encode()
    assert signed.id.encode() not in kept
    again = Logins(os.urandom, kept)
    assert again.find(signed.id, NOW)[0] == signed.session
    assert again.sign_in(harness.right("ada", NOW), "ada", NOW) == Denied(401, "invalid code")
    assert isinstance(again.sign_in(harness.right("bob", NOW), "bob", NOW), SignedIn)


@pytest.mark.parametrize("name", ["ada", "nobody", None])
def test_after_too_many_wrong_codes_right_and_wrong_ones_are_answered_alike(
    harness: LoginsHarness, name: str | None
) -> None:
    for number in range(5):
        assert harness.logins.sign_in(harness.wrong(NOW), name, NOW + number) == Denied(401, "invalid code")
    answers = [harness.logins.sign_in(code, name, NOW + 6) for code in (harness.wrong(NOW), harness.right("ada", NOW))]
    for denied in answers:
        assert isinstance(denied, Denied)
        assert (denied.status, denied.error, denied.retry_after) == (429, TOO_MANY, 10)
        assert denied.attempt is not None
        assert len(denied.attempt) == 64


@pytest.mark.slow
def test_a_member_gets_in_with_three_codes_in_a_row_while_strangers_guess_without_end(harness: LoginsHarness) -> None:
    now, attempt, statuses = NOW, None, []
    for _ in range(3):
        for _ in range(200):
            stranger = harness.logins.sign_in(harness.wrong(NOW), "ada", now)
            assert isinstance(stranger, Denied)
        result = harness.logins.sign_in(harness.right("ada", now), "ada", now, attempt)
        if isinstance(result, SignedIn):
            statuses.append(200)
            break
        statuses.append(result.status)
        attempt = result.attempt
        assert result.retry_after is not None
        now += 1000 * result.retry_after
    assert statuses == [429, 429, 200]
    assert now - NOW <= 60_000, "the short delay that strangers can cause"


def test_right_codes_count_together_only_in_one_attempt_of_one_member(harness: LoginsHarness) -> None:
    suspect(harness, "ada")
    codes = [harness.right("ada", NOW + step * 30_000) for step in range(-1, 2)]
    alone = [harness.logins.sign_in(code, "ada", NOW) for code in codes]
    assert [denied.status for denied in alone if isinstance(denied, Denied)] == [429] * 3
    first = attempt_of(harness.logins.sign_in(codes[0], "ada", NOW))
    assert attempt_of(harness.logins.sign_in(codes[1], "ada", NOW, "0" * 64)) != first, "another browser"
    suspect(harness, "bob")
    bobs = harness.logins.sign_in(harness.right("bob", NOW), "bob", NOW, first)
    assert isinstance(bobs, Denied), "another member's attempt"


def test_a_wrong_code_ends_the_attempt_and_the_same_code_again_does_not(harness: LoginsHarness) -> None:
    suspect(harness, "ada")
    codes = [harness.right("ada", NOW + step * 30_000) for step in range(-1, 2)]
    attempt = attempt_of(harness.logins.sign_in(codes[0], "ada", NOW))
    for code in (codes[0], codes[1], codes[1], codes[0]):
        attempt = attempt_of(harness.logins.sign_in(code, "ada", NOW, attempt))
    for member in ("ada", None, "bob", "nobody"):
        suspect(harness, member)
        attempt = attempt_of(harness.logins.sign_in(codes[0], "ada", NOW))
        attempt = attempt_of(harness.logins.sign_in(codes[1], "ada", NOW, attempt))
        wrong = attempt_of(harness.logins.sign_in(harness.wrong(NOW), member, NOW, attempt))
        for over in (wrong, attempt):
            assert isinstance(harness.logins.sign_in(codes[2], "ada", NOW, over), Denied)
    attempt = attempt_of(harness.logins.sign_in(codes[0], "ada", NOW))
    attempt = attempt_of(harness.logins.sign_in(codes[1], "ada", NOW, attempt))
    assert isinstance(harness.logins.sign_in(codes[2], "ada", NOW, attempt), SignedIn)


def test_an_attempt_is_over_after_five_minutes(harness: LoginsHarness) -> None:
    suspect(harness, "ada")
    attempt = attempt_of(harness.logins.sign_in(harness.right("ada", NOW), "ada", NOW))
    attempt = attempt_of(harness.logins.sign_in(harness.right("ada", NOW + 30_000), "ada", NOW + 30_000, attempt))
    late = NOW + 5 * MINUTE
    assert isinstance(harness.logins.sign_in(harness.right("ada", late), "ada", late, attempt), Denied)


def test_a_name_is_trusted_again_after_the_wait_and_others_were_all_the_time(harness: LoginsHarness) -> None:
    suspect(harness, "ada")
    harness.sign_in("bob")
    harness.sign_in("ada", NOW + 15 * MINUTE)


def test_a_patient_stranger_has_ten_guesses_a_day_though_the_member_logs_in_meanwhile(harness: LoginsHarness) -> None:
    for number in range(10):
        now = NOW + number * 20 * MINUTE
        assert harness.logins.sign_in(harness.wrong(now), "ada", now) == Denied(401, "invalid code")
        if number in (0, 3, 6):
            harness.sign_in("ada", now)
    now = NOW + 200 * MINUTE
    assert attempt_of(harness.logins.sign_in(harness.wrong(now), "ada", now))
    harness.sign_in("ada", NOW + 24 * 60 * MINUTE + 200 * MINUTE)


def test_right_codes_of_suspected_logins_take_bounded_room(harness: LoginsHarness) -> None:
    suspect(harness, "ada")
    first = attempt_of(harness.logins.sign_in(harness.right("ada", NOW), "ada", NOW))
    for _ in range(100):
        harness.logins.sign_in(harness.right("ada", NOW), "ada", NOW)
    assert len(harness.logins._attempts) <= 4
    assert digest_of(first) not in harness.logins._attempts


def suspect(harness: LoginsHarness, name: str | None) -> None:
    for _ in range(5):
        harness.logins.sign_in(harness.wrong(NOW), name, NOW)


def attempt_of(result: SignedIn | Denied) -> str:
    assert isinstance(result, Denied)
    assert result.attempt is not None
    return result.attempt


def test_a_right_code_forgives_the_wrong_ones_before_it(harness: LoginsHarness) -> None:
    for _ in range(4):
        harness.logins.sign_in(harness.wrong(NOW), "ada", NOW)
    harness.sign_in("ada")
    assert harness.logins.sign_in(harness.wrong(NOW), "ada", NOW) == Denied(401, "invalid code")


def test_a_login_without_a_name_finds_whose_code_it_is(harness: LoginsHarness) -> None:
    result = harness.logins.sign_in(harness.right("bob", NOW), None, NOW)
    assert isinstance(result, SignedIn)
    assert result.session.member == "bob"


def test_wrong_codes_without_a_name_count_once_for_each_member_that_has_an_app(harness: LoginsHarness) -> None:
    for _ in range(5):
        assert harness.logins.sign_in(harness.wrong(NOW), None, NOW) == Denied(401, "invalid code")
    codes = [harness.right("bob", NOW + step * 30_000) for step in range(-1, 2)]
    attempt = None
    for code in codes[:2]:
        attempt = attempt_of(harness.logins.sign_in(code, None, NOW, attempt))
    result = harness.logins.sign_in(codes[2], None, NOW, attempt)
    assert isinstance(result, SignedIn)
    assert result.session.member == "bob"
    assert attempt_of(harness.logins.sign_in(harness.wrong(NOW), None, NOW)), (
        "a right code does not clear the count of all"
    )
    harness.sign_in("ada")


def test_inventing_names_does_not_make_a_members_count_be_forgotten(harness: LoginsHarness) -> None:
    for _ in range(5):
        harness.logins.sign_in(harness.wrong(NOW), "ada", NOW)
    for number in range(3000):
        harness.logins.sign_in("000000", f"ghost-{number}", NOW)
    assert attempt_of(harness.logins.sign_in(harness.right("ada", NOW), "ada", NOW))


def test_a_member_that_is_forgotten_or_enrolled_anew_is_signed_out(harness: LoginsHarness) -> None:
    ada, bob = harness.sign_in("ada"), harness.sign_in("bob")
    assert harness.logins.forget("ada")
    assert not harness.logins.forget("ada")
    assert harness.logins.app("ada") is None
    harness.enrol("bob")
    assert harness.logins.find(ada.id, NOW)[0] is None
    assert harness.logins.find(bob.id, NOW)[0] is None


def test_a_member_has_a_bounded_number_of_sessions(harness: LoginsHarness) -> None:
    signed = [harness.sign_in("ada", NOW + number * 30_000) for number in range(40)]
    now = NOW + 40 * 30_000
    alive = [harness.logins.find(one.id, now)[0] is not None for one in signed]
    assert alive == [False] * 8 + [True] * 32


def test_a_session_that_a_token_opened_lasts_like_one_of_a_code_and_outlives_a_new_secret(
    harness: LoginsHarness,
) -> None:
    coded = harness.sign_in("ada")
    opened = harness.logins.open("ada", "token", NOW, "id-1")
    assert harness.logins.find("token", NOW) == (opened, False)
    harness.enrol("ada")
    assert harness.logins.find(coded.id, NOW) == (None, False)
    assert harness.logins.find("token", NOW) == (opened, False)
    assert [session.digest for session in harness.logins.take_ended()] == [digest_of(coded.id)]
    assert harness.logins.take_ended() == []
    assert Logins(os.urandom, harness.logins.encode()).find("token", NOW) == (opened, False)


def test_every_session_that_ends_is_told_so_that_its_token_ends_too(harness: LoginsHarness) -> None:
    for number in range(33):
        harness.logins.open("ada", f"token-{number}", NOW, f"id-{number}")
    assert [session.token_id for session in harness.logins.take_ended()] == ["id-0"]
    assert harness.logins.sign_out("token-1")
    assert harness.logins.find("token-2", NOW + SESSION_MS) == (None, True)
    assert [session.token_id for session in harness.logins.take_ended()] == ["id-1", "id-2"]


def test_sessions_of_who_was_removed_while_nobody_looked_end(harness: LoginsHarness) -> None:
    for name in ("cid", "dan", "eve"):
        harness.logins.open(name, name, NOW, name)
    assert harness.logins.reconcile({"ada": NOW, "bob": NOW, "cid": NOW, "dan": NOW + 1})
    assert [name for name in ("cid", "dan", "eve") if harness.logins.find(name, NOW)[0]] == ["cid"]


def test_a_file_of_before_sessions_had_tokens_is_read() -> None:
    kept = b'{"credentials":{},"sessions":[{"digest":"%s","member":"ada","created_at_ms":1,"expires_at_ms":%d}]}'
    logins = Logins(os.urandom, kept % (digest_of("x").encode(), NOW + SESSION_MS))
    session, _ = logins.find("x", NOW)
    assert session is not None
    assert (session.member, session.token_id) == ("ada", "")
