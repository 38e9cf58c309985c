"""Tests of the first frames of a link: only a worker with the key and with the same contract gets in."""

import msgspec
import pytest

from tieline import __version__
from tieline.contract.limits import Limits
from tieline.wire.hub_link.codec import BadFrame, contract_version
from tieline.wire.hub_link.greeting import (
    Hello,
    LinkRefused,
    Refused,
    Welcome,
    check_hello,
    encode_answer,
    read_answer,
    say_hello,
)

KEY = "the key of the link"


def test_a_worker_with_the_key_gets_in_and_learns_the_limits() -> None:
    assert check_hello(say_hello(KEY), KEY) == Hello(KEY, contract_version(), __version__)
    welcome = Welcome(Limits(window_max=7), "a link", 3)
    assert read_answer(encode_answer(welcome)) == welcome


def test_a_worker_that_connects_again_says_its_link_and_how_much_it_has() -> None:
    assert check_hello(say_hello(KEY, "a link", 7), KEY) == Hello(KEY, contract_version(), __version__, "a link", 7)


@pytest.mark.parametrize("key", ["", "another key", KEY + "x", "\udc80"])
def test_a_worker_without_the_key_does_not_learn_anything(key: str) -> None:
    hello = msgspec.json.encode(Hello("", "of another contract", "9.9.9")).replace(
        b'"key":""', b'"key":"' + key.encode("utf-8", "replace") + b'"'
    )
    answer = check_hello(hello, KEY)
    assert answer == Refused("the key of this worker is not the key of the hub")
    assert isinstance(answer, Refused)
    with pytest.raises(LinkRefused, match="the key of this worker is not the key of the hub"):
        read_answer(encode_answer(answer))


def test_a_worker_with_another_contract_is_refused_with_a_sentence_that_names_both() -> None:
    hello = msgspec.json.encode(Hello(KEY, "0123", "9.9.9"))
    answer = check_hello(hello, KEY)
    assert answer == Refused(
        f"this worker is Tieline 9.9.9 with contract 0123, and the hub is Tieline {__version__} with contract "
        f"{contract_version()}; start both from the same installation"
    )


def test_a_greeting_may_have_fields_of_a_later_program() -> None:
    hello = {**msgspec.json.decode(say_hello(KEY)), "color": "green"}
    assert isinstance(check_hello(msgspec.json.encode(hello), KEY), Hello)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b"\xff", b'{"key": 1}', b"GET / HTTP/1.1"])
def test_bytes_that_are_no_greeting_are_refused(payload: bytes) -> None:
    assert check_hello(payload, KEY) == Refused("a worker must first say its key and its version")
    with pytest.raises(BadFrame):
        read_answer(payload)
