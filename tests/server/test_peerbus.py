"""Tests of the peerbus settings in the configuration, in the environment and on the command line."""

import json
import socket
import tomllib
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli, wait_until
from tests.server.hubs import running_hub
from tieline.protocols.peerbus.settings import DEFAULT_PORT, PeerbusSettings
from tieline.server.config import ConfigError, load_config
from tieline.wire.address import parse_address


def test_a_first_start_makes_a_token_and_a_secret_of_its_own(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir()
        peerbus = load_config(home).of(PeerbusSettings)
        assert len(peerbus.tokens) == 1
        assert len(peerbus.tokens[0]) >= 16
        assert len(peerbus.hmac_secret.encode()) >= 32
        assert (peerbus.enabled, peerbus.listen) == (True, "")
        assert tomllib.loads((home / "tieline.toml").read_text())["peerbus"]["tokens"] == list(peerbus.tokens)
        made += [*peerbus.tokens, peerbus.hmac_secret]
    assert len(set(made)) == 4


def test_a_home_without_the_section_has_neither(tmp_path: Path) -> None:
    (tmp_path / "tieline.toml").write_text("")
    peerbus = load_config(tmp_path).of(PeerbusSettings)
    assert (peerbus.tokens, peerbus.hmac_secret) == ((), "")


def test_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERBUS_TOKENS", " one , two,,")
    monkeypatch.setenv("PEERBUS_HMAC_SECRET", "s" * 32)
    monkeypatch.setenv("TIELINE_PEERBUS", "127.0.0.1:1")
    peerbus = load_config(tmp_path).of(PeerbusSettings)
    assert (peerbus.tokens, peerbus.hmac_secret, peerbus.listen) == (("one", "two"), "s" * 32, "127.0.0.1:1")


@pytest.mark.parametrize("secret", ["s", "s" * 31, "é" * 15])
def test_a_secret_below_32_bytes_is_refused(tmp_path: Path, secret: str) -> None:
    (tmp_path / "tieline.toml").write_text(f'[peerbus]\nhmac_secret = "{secret}"\n')
    with pytest.raises(ConfigError, match="32"):
        load_config(tmp_path)


@pytest.mark.slow
def test_a_hub_with_a_short_secret_does_not_start(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "serve", "--http", "127.0.0.1:0", env={"PEERBUS_HMAC_SECRET": "short"})
    assert done.returncode == 1
    assert "needs at least 32" in done.stderr
    assert "short" not in done.stderr.replace("shorter", "")


async def test_the_port_of_its_own_is_off_unless_asked_for(folder: Path) -> None:
    async with running_hub(folder / "h", store="memory") as built:
        assert built.running.places["peerbus"] is None
        assert built.running.places["peerbus_socket"] == str(folder / "h" / "peerbus.sock")
    async with running_hub(folder / "h", store="memory", peerbus_listen="127.0.0.1:0") as built:
        assert built.running.places["peerbus"] is not None
        assert built.running.places["peerbus"].startswith("ws://127.0.0.1:")
        assert json.loads((folder / "h" / "run.json").read_text())["peerbus"] == built.running.places["peerbus"]


@pytest.mark.slow
def test_the_command_line_opens_and_closes_it() -> None:
    with HubProcess("--peerbus", "127.0.0.1:0") as hub:
        assert hub.running.places["peerbus"] is not None
        # It says so right after `run.json` is there.
        wait_until(lambda: f"peerbus   {hub.running.places['peerbus']}" in hub.stdout, "the address to be printed")
    with HubProcess("--no-peerbus") as hub:
        assert (hub.running.places["peerbus"], hub.running.places["peerbus_socket"]) == (None, None)


def test_a_host_alone_has_the_usual_port() -> None:
    assert parse_address("127.0.0.2", DEFAULT_PORT) == ("127.0.0.2", 47821)
    assert parse_address("127.0.0.2:5", DEFAULT_PORT) == ("127.0.0.2", 5)


async def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {address} for peerbus"):
            async with running_hub(folder / "h", store="memory", peerbus_listen=address):
                pass


@pytest.mark.slow
def test_an_address_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "serve", "--peerbus", "nowhere:x")
    assert done.returncode == 2
    assert "--peerbus" in done.stderr
