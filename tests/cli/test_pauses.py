"""Pausing a conversation from the command line, and letting it go on."""

import pytest

from tests.cli.hub_process import HubProcess

pytestmark = pytest.mark.slow


def test_a_conversation_is_paused_for_agents_and_let_go_on(hub: HubProcess, alice: str, bob: str) -> None:
    assert hub.cli("pause", f"@{bob}+@{alice}").stdout == f"@{bob}+@{alice} is paused.\n"
    refused = hub.cli("send", f"@{bob}", "hello", "--as", alice)
    assert refused.returncode != 0
    assert "is paused" in refused.stderr
    assert hub.cli("resume", f"@{alice}+@{bob}").returncode == 0
    assert hub.cli("send", f"@{bob}", "hello", "--as", alice).returncode == 0
    assert hub.cli("pause", alice).returncode != 0
