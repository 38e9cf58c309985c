"""Tests of `tieline search`."""

import json

import pytest

from tests.cli.hub_process import HubProcess
from tieline.cli.search import moment_ms

pytestmark = pytest.mark.slow

NOW = 1_800_000_000.0


def test_words_are_found_by_whoever_may_see_them(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", f"the zebra of {alice}", "a horse")
    found = json.loads(hub.cli("search", "zebra", "--as", bob, "--json").stdout)
    assert [message["body"] for message in found] == [f"the zebra of {alice}"]
    shown = hub.cli("search", "horse", "--from", alice, "--in", f"@{alice}", "--since", "1h", "--as", bob).stdout
    assert "a horse" in shown
    assert "zebra" not in shown
    nothing = hub.cli("search", "horse", "--until", "2020-01-01", "--as", bob)
    assert (nothing.returncode, nothing.stdout.strip()) == (0, "Nothing was found.")


def test_a_query_or_a_time_that_means_nothing_is_said_so(hub: HubProcess, alice: str) -> None:
    assert hub.cli("search", "***", "--as", alice).returncode == 3
    wrong = hub.cli("search", "x", "--since", "yesterday", "--as", alice)
    assert wrong.returncode == 2
    assert "is not a time" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("2h", 7_200_000), ("3d", 259_200_000), ("1w", 604_800_000)],
)
def test_a_moment_is_how_long_ago(text: str, ms: int) -> None:
    assert moment_ms(text, NOW) == int(NOW * 1000) - ms


def test_a_moment_is_a_date_with_or_without_a_time() -> None:
    assert moment_ms("2027-01-15T08:00:00+00:00", NOW) == 1_800_000_000_000
    assert moment_ms("2027-01-16", NOW) - moment_ms("2027-01-15", NOW) == 86_400_000
