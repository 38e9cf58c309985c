"""Tests of the command that binds a peer's name to another of the shared tokens."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.cli.hub_process import HubProcess
from tieline.protocols.peerbus.client import Adapter, Rejected

pytestmark = pytest.mark.slow

SECRET = "k" * 32


def configure(hub: HubProcess, *tokens: str) -> None:
    (hub.home / "tieline.toml").write_text(f'[peerbus]\ntokens = {json.dumps(tokens)}\nhmac_secret = "{SECRET}"\n')


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    process = HubProcess("--peerbus", "127.0.0.1:0")
    process.home.mkdir(mode=0o700)
    try:
        yield process
    finally:
        process.__exit__()


def may_register(hub: HubProcess, name: str, token: str) -> bool:
    async def register() -> bool:
        url = hub.running.places["peerbus"]
        assert url is not None
        try:
            async with asyncio.timeout(20), Adapter(url, name=name, token=token, secret=SECRET):
                return True
        except Rejected as rejected:
            return rejected.reason != "name claimed under a different token"

    return asyncio.run(register())


def test_the_operator_moves_a_name_with_the_hub_running_or_not(hub: HubProcess) -> None:
    configure(hub, "the old token")
    hub.start()
    assert may_register(hub, "bob", "the old token")
    hub.stop()
    configure(hub, "the first token", "the second token")
    done = hub.cli("peerbus", "retoken", "bob")
    assert (done.returncode, done.stdout) == (0, "bob belongs to the first of 2 tokens now.\n"), done.stderr
    hub.start()
    assert [may_register(hub, "bob", f"the {which} token") for which in ("second", "first")] == [False, True]
    done = hub.cli("peerbus", "retoken", "bob", "--token", "the second token")
    assert (done.returncode, done.stdout) == (0, "bob belongs to the token that you named now.\n"), done.stderr
    assert [may_register(hub, "bob", f"the {which} token") for which in ("first", "second")] == [False, True]
    assert hub.cli("peerbus", "retoken", "bob", "--token", "no token of this hub").returncode == 3
    assert hub.cli("audit", "verify").returncode == 0


def test_a_token_of_this_machine_is_not_sent_to_a_hub_elsewhere(hub: HubProcess) -> None:
    configure(hub, "the first token")
    done = hub.cli("peerbus", "retoken", "bob", "--url", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "there is no token for the name to belong to" in done.stderr
