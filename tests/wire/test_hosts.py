"""Tests of the host names that a port accepts in requests."""

import pytest

from tieline.wire.hosts import Hosts


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7117",
        "127.0.0.1",
        "[::1]:7117",
        "10.1.2.3",
        "localhost:7117",
        "LOCALHOST",
        "localhost.:7117",
        "hub.localhost:7117",
        "",
    ],
)
def test_a_port_on_loopback_answers_to_addresses_and_localhost(host: str) -> None:
    assert Hosts((), "127.0.0.1").refusal([host]) is None
    assert Hosts((), "::1").refusal([host]) is None


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example:7117",
        "127.0.0.1.rebound.example",
        "localhost.rebound.example",
        "notlocalhost",
        "[rebound.example]:1",
        "rebound.example@127.0.0.1",
        "127.1",
        "hub",
    ],
)
def test_a_port_on_loopback_answers_to_no_other_name_and_says_which_setting_adds_it(host: str) -> None:
    refusal = Hosts((), "127.0.0.1").refusal([host])
    assert refusal is not None
    assert host in refusal
    assert "names" in refusal


def test_a_name_of_the_configuration_is_answered_in_any_spelling_and_on_any_port() -> None:
    hosts = Hosts(["Hub.example.org"], "127.0.0.1")
    assert hosts.refusal(["hub.example.org"]) is None
    assert hosts.refusal(["HUB.example.ORG.:80"]) is None
    assert hosts.refusal(["other.example.org"]) is not None


def test_a_port_that_the_network_reaches_answers_to_all_names_until_it_is_told_its_own() -> None:
    for address in ("0.0.0.0", "::", "192.0.2.1"):
        assert Hosts((), address).refusal(["anything.example"]) is None
        assert Hosts(["hub.example.org"], address).refusal(["anything.example"]) is not None
        assert Hosts(["hub.example.org"], address).refusal(["192.0.2.1:7117"]) is None


def test_no_header_is_answered_and_of_several_each_must_be_known() -> None:
    hosts = Hosts((), "127.0.0.1")
    assert hosts.refusal([]) is None
    assert hosts.refusal(["localhost", "rebound.example"]) is not None


def test_a_long_name_is_not_repeated_whole() -> None:
    refusal = Hosts((), "127.0.0.1").refusal(["x" * 60_000])
    assert refusal is not None
    assert len(refusal) < 300
