"""Tests of the enrolment of devices: two codes, one decision, one token, and limits on all of it."""

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from tieline.services.enrolments import (
    EXPIRES_MS,
    EnrolmentRefusal,
    Enrolments,
    Granted,
    PollError,
    Started,
    Waiting,
    parse_user_code,
)

NOW = 1_700_000_000_000
GRANTED = Granted("ac7_x", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "ada")
PENDING = PollError("authorization_pending")
EXPIRED = PollError("expired_token")


@pytest.fixture
def enrolments() -> Enrolments:
    return Enrolments(os.urandom)


def start(enrolments: Enrolments, now: int = NOW, source: str = "10.0.0.1") -> Started:
    started = enrolments.start(source, "curl/8", "laptop", now, "ac7-dc_")
    assert isinstance(started, Started)
    return started


def approve(enrolments: Enrolments, user_code: str, now: int = NOW) -> None:
    waiting = enrolments.claim(user_code, now)
    assert isinstance(waiting, Waiting)
    assert enrolments.approve(waiting.user_code, GRANTED)


def test_a_device_gets_two_codes(enrolments: Enrolments) -> None:
    started = start(enrolments)
    assert re.fullmatch(r"ac7-dc_[A-Za-z0-9_-]{43}", started.device_code)
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}", started.user_code)
    assert (started.expires_in, started.interval) == (300, 5)
    waiting = Waiting(started.user_code, "laptop", "10.0.0.1", "curl/8", NOW, NOW + EXPIRES_MS)
    assert enrolments.pending(NOW) == [waiting]


def test_the_token_of_an_approved_device_is_given_out_once(enrolments: Enrolments) -> None:
    started = start(enrolments)
    assert enrolments.poll(started.device_code, NOW) == PENDING
    approve(enrolments, started.user_code.lower().replace("-", " "))
    assert enrolments.pending(NOW) == []
    assert enrolments.poll(started.device_code, NOW + 1) == GRANTED
    assert enrolments.poll(started.device_code, NOW + 2) == EXPIRED
    assert enrolments.expire(NOW + EXPIRES_MS) == []


def test_a_rejected_device_hears_why_once(enrolments: Enrolments) -> None:
    started, silent = start(enrolments), start(enrolments)
    assert enrolments.reject(started.user_code, "unknown device", NOW) is None
    assert enrolments.reject(silent.user_code, "", NOW) is None
    assert enrolments.poll(started.device_code, NOW) == PollError("access_denied", "unknown device")
    assert enrolments.poll(started.device_code, NOW) == EXPIRED
    assert enrolments.poll(silent.device_code, NOW) == PollError("access_denied", UNSET)


def test_a_device_that_polls_too_often_is_told_to_slow_down(enrolments: Enrolments) -> None:
    started = start(enrolments)
    assert enrolments.poll(started.device_code, NOW) == PENDING
    assert enrolments.poll(started.device_code, NOW + 2499) == PollError("slow_down")
    assert enrolments.poll(started.device_code, NOW + 2499 + 2500) == PENDING


def test_a_code_expires_and_an_unknown_one_looks_the_same(enrolments: Enrolments) -> None:
    started = start(enrolments)
    assert enrolments.poll(started.device_code, NOW + EXPIRES_MS - 1) == PENDING
    assert enrolments.poll(started.device_code, NOW + EXPIRES_MS) == EXPIRED
    assert enrolments.poll("ac7-dc_" + "A" * 43, NOW) == EXPIRED
    assert enrolments.claim(started.user_code, NOW) == EnrolmentRefusal(404, "no such enrollment, or it expired")


def test_a_token_that_nobody_fetched_is_handed_back(enrolments: Enrolments) -> None:
    started = start(enrolments)
    approve(enrolments, started.user_code)
    assert enrolments.expire(NOW + EXPIRES_MS - 1) == []
    assert enrolments.expire(NOW + EXPIRES_MS) == [GRANTED]
    assert enrolments.expire(NOW + EXPIRES_MS) == []


def test_only_one_decides(enrolments: Enrolments) -> None:
    started = start(enrolments)
    decided = EnrolmentRefusal(409, "the enrollment was decided already")
    assert isinstance(enrolments.claim(started.user_code, NOW), Waiting)
    assert enrolments.claim(started.user_code, NOW) == decided
    assert enrolments.reject(started.user_code, "", NOW) == decided
    enrolments.release(started.user_code)
    assert enrolments.poll(started.device_code, NOW) == PENDING
    approve(enrolments, started.user_code)
    assert not enrolments.approve(started.user_code, GRANTED)
    assert enrolments.reject(started.user_code, "", NOW) == decided


def test_what_was_claimed_and_expired_cannot_be_approved(enrolments: Enrolments) -> None:
    started = start(enrolments)
    enrolments.claim(started.user_code, NOW)
    assert enrolments.poll(started.device_code, NOW + EXPIRES_MS) == EXPIRED
    assert not enrolments.approve(started.user_code, GRANTED)


def test_an_address_may_ask_ten_times_an_hour(enrolments: Enrolments) -> None:
    for number in range(10):
        start(enrolments, NOW + number)
    refused = EnrolmentRefusal(429, "too many enrollment requests", 3600)
    assert enrolments.start("10.0.0.1", None, "", NOW + 9) == refused
    start(enrolments, NOW + 9, source="10.0.0.2")
    start(enrolments, NOW + 3600 * 1000)


def test_a_bounded_number_waits(enrolments: Enrolments) -> None:
    for number in range(1000):
        start(enrolments, source=f"10.1.{number // 250}.{number % 250}")
    assert enrolments.start("10.2.0.1", None, "", NOW) == EnrolmentRefusal(429, "too many enrollments are waiting", 300)
    start(enrolments, NOW + EXPIRES_MS, source="10.2.0.1")


def test_a_label_has_a_limit(enrolments: Enrolments) -> None:
    assert enrolments.start(None, None, "x" * 65, NOW) == EnrolmentRefusal(400, "invalid enroll payload")
    assert enrolments.pending(NOW) == []


@settings(deadline=None)
@given(st.text(max_size=40))
def test_whatever_is_typed_is_a_code_or_is_none(text: str) -> None:
    code = parse_user_code(text)
    assert code is None or re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}", code)


def test_letters_that_look_like_digits_are_taken_for_them() -> None:
    assert parse_user_code("oil0-1234") == "0110-1234"
    assert parse_user_code("u000-1234") is None
