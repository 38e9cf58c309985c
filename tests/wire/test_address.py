"""Tests of addresses of listeners: the forms that people write, and which of them only this machine can reach."""

import pytest

from tieline.wire.address import CannotListen, is_loopback, parse_address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_loopback_address_is_reached_from_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "hub.example.org", ""])
def test_any_other_address_may_be_reached_from_elsewhere(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "default", "address"),
    [
        ("127.0.0.1:7117", None, ("127.0.0.1", 7117)),
        ("[::1]:80", None, ("::1", 80)),
        (":0", None, ("127.0.0.1", 0)),
        ("hub.example.org", 47821, ("hub.example.org", 47821)),
        ("hub.example.org:80", 47821, ("hub.example.org", 80)),
        ("", 47821, ("127.0.0.1", 47821)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, default: int | None, address: tuple[str, int]) -> None:
    assert parse_address(text, default) == address


@pytest.mark.parametrize("text", ["", "127.0.0.1", "host:", "host:x", "host:65536", "host:-1", "host: 1"])
def test_any_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("error", "reason"), [(OSError(98, "Address in use"), "Address in use"), (OSError("no"), "no")]
)
def test_an_address_that_cannot_be_listened_on_is_named(error: OSError, reason: str) -> None:
    assert str(CannotListen(("::1", 80), "toy", error)) == f"cannot listen on ::1:80 for toy: {reason}"
