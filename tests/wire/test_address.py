"""Tests of addresses of listeners: the forms that people write, and which of them only this machine can reach."""

import socket
from errno import ENETUNREACH

import pytest

from tieline.wire.address import (
    CannotListen,
    ascii_name,
    check_url,
    is_loopback,
    parse_address,
    reachable,
    refuse_plain,
)


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


def test_an_address_that_means_all_addresses_is_replaced_by_one_that_others_can_use() -> None:
    for host in ("0.0.0.0", "::"):
        assert reachable(host) not in ("0.0.0.0", "::", "", "127.0.0.1")
    for host in ("127.0.0.1", "192.0.2.1", "hub.example.org"):
        assert reachable(host) == host


def test_a_port_without_tls_is_refused_where_others_reach_it_with_the_ways_out() -> None:
    assert refuse_plain("127.0.0.1", "a port") == ""
    for way in ("a port", "--tls", "--tls-cert", "--insecure-http"):
        assert way in refuse_plain("0.0.0.0", "a port")


def test_the_address_of_a_site_has_a_scheme_and_a_host() -> None:
    assert check_url("https://hub.example.org/") == "https://hub.example.org"
    for text in (
        "hub.example.org",
        "ftp://hub",
        "https://",
        "https://hub/?a=b",
        "https://hub/#x",
        "https://a:b@hub",
        "https://hub:x",
    ):
        with pytest.raises(ValueError, match="write https://HOST"):
            check_url(text)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("hub.example", "hub.example"),
        ("hüb.example", "xn--hb-xka.example"),
        ("HÜB.example", "xn--hb-xka.example"),
        ("Team.hüb.Example", "team.xn--hb-xka.example"),
        ("*.hüb.example", "*.xn--hb-xka.example"),
    ],
)
def test_a_host_name_has_the_form_that_clients_send(name: str, sent: str) -> None:
    assert ascii_name(name) == sent
    assert check_url(f"https://{name}:7117/a/") == f"https://{sent}:7117/a"


@pytest.mark.parametrize("name", ["straße.example", "ü..example", "ü" * 64])
def test_a_host_name_that_clients_encode_in_different_ways_is_refused(name: str) -> None:
    for use in (ascii_name, lambda name: check_url(f"https://{name}")):
        with pytest.raises(ValueError, match="write it in ASCII"):
            use(name)


def test_a_machine_without_a_network_is_reachable_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_down(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("socket.socket", type("Down", (socket.socket,), {"connect": is_down}))
    assert reachable("0.0.0.0") == socket.gethostname()
