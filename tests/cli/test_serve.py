"""Tests of `tieline serve`: the hub as a process starts, prints its addresses, stops, or refuses to start."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.cli import port_holder
from tieline.console import documentation
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config
from tieline.stores.sqlite.database import open_database
from tieline.wire.address import parse_address

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_hub_cleanly(number: signal.Signals) -> None:
    with HubProcess() as hub:
        assert hub.signal(number) == 0
        assert not (hub.home / "run.json").exists()
        assert "has stopped" in hub.stdout
        assert hub.stderr == ""


def test_a_first_start_says_where_everything_is_and_what_to_do_next() -> None:
    with HubProcess() as hub:
        running = hub.running
        assert hub.stop() == 0
        said = hub.stdout
        for part in (str(hub.home), running.http, "first start", "tieline.toml"):
            assert part in said
        quick_start = (ROOT / "docs" / "start" / "index.md").read_text()
        for command in (
            "tieline member add me --kind human\n",
            "tieline init me",
            "tieline member add bob\n",
            'tieline send @bob "hello"\n',
            "tieline drain --as bob\n",
        ):
            assert command in said
            assert command in quick_start
        assert (f"docs      {running.http}/docs/\n" in said) is documentation.is_built()
        assert "tieline connect" in said
        room_token = load_config(hub.home).of(BackchannelSettings).room_token
        # Of no use to a newcomer. The token is in the configuration, and the sockets are in `status`.
        assert room_token not in said
        assert running.hub_socket not in said
        assert "tieline invite\n" in said
        hub.start()
        assert hub.stop() == 0
        assert "first start" not in hub.stdout
        assert "To a first message" not in hub.stdout
        assert running.hub_socket in hub.stdout
        assert f"export TIELINE_HOME={hub.home}\n" in hub.stdout


@pytest.mark.parametrize(("options", "warned"), [((), True), (("--no-backchannel",), False)])
def test_a_hub_that_anybody_can_register_with_says_so(tmp_path: Path, options: tuple[str, ...], warned: bool) -> None:
    (tmp_path / "tieline.toml").write_text("[backchannel]\nroom_token = ''\n")
    with HubProcess(*options, home=tmp_path) as hub:
        assert hub.stop() == 0
        assert ("can register" in hub.stdout) is warned


def test_a_second_hub_in_the_same_home_is_refused(hub: HubProcess) -> None:
    done = run_cli(hub.home, "serve", "--http", "127.0.0.1:0")
    assert (done.returncode, done.stdout) == (1, "")
    assert str(hub.home) in done.stderr
    assert str(hub.running.pid) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_cli(tmp_path / "home", "serve", "--http", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on {address}" in done.stderr
    assert "--http" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_of_another_hub_is_refused_with_the_home_of_that_hub(hub: HubProcess, tmp_path: Path) -> None:
    address = hub.running.http.removeprefix("http://")
    done = run_cli(tmp_path / "home", "serve", "--http", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on {address}" in done.stderr
    assert f"the hub of {hub.home} listens there" in done.stderr
    assert f"'tieline stop --home {hub.home}'" in done.stderr


def test_a_hub_whose_home_is_not_known_is_still_known_as_a_hub(
    hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIELINE_HOME", str(tmp_path))
    monkeypatch.setattr(port_holder, "_SOCKETS", tmp_path / "none")
    address = parse_address(hub.running.http.removeprefix("http://"))
    assert port_holder.find_home_of(address) is None
    assert port_holder.is_hub(address)
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert port_holder.find_home_of(other.getsockname()) is None


def test_a_configuration_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tieline.toml").write_text("[http]\nlisten = 7\n")
    done = run_cli(tmp_path, "serve")
    assert (done.returncode, done.stdout) == (1, "")
    assert "tieline.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "tieline.db", "main")
    connection.pragma("user_version", 999)
    connection.close()
    for args in (("serve", "--http", "127.0.0.1:0"), ("member", "add", "alice")):
        done = run_cli(tmp_path, *args)
        assert (done.returncode, done.stdout) == (1, ""), args
        assert "newer Tieline" in done.stderr
        assert "Traceback" not in done.stderr


def test_logs_in_a_file_are_json_lines(tmp_path: Path) -> None:
    done = run_cli(tmp_path / ("deep" * 30), "serve", "--log-level", "debug")
    assert done.returncode == 1
    assert "too long" in done.stderr
    logged = [line for line in done.stderr.splitlines() if not line.startswith(("tieline:", "  hint:"))]
    assert all(json.loads(line)["event"] for line in logged)


EVE = 65534
"""User id of another user, who owns a folder before the hub starts."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
@pytest.mark.parametrize("option", ["--home", "--channels-dir", "--spool", "--relay-socket"])
def test_nothing_is_written_through_links_that_somebody_else_planted(folder: Path, option: str) -> None:
    precious = folder / "precious"
    precious.write_text("precious")
    theirs = folder / "theirs"
    theirs.mkdir(mode=0o777)
    for name in ("lock", "key", ".group.json", ".hub-lock", "config.json", "relay.sock"):
        (theirs / name).symlink_to(precious)
    for path in (theirs, *theirs.iterdir()):
        os.chown(path, EVE, EVE, follow_symlinks=False)
    named = theirs / "relay.sock" if option == "--relay-socket" else theirs
    planted = sorted(theirs.iterdir())
    done = run_cli(folder / "h", "serve", "--http", "127.0.0.1:0", option, str(named))
    assert done.returncode == 1
    assert f"{theirs} belongs to" in done.stderr
    assert "name a folder of your own" in done.stderr
    assert "Traceback" not in done.stderr
    assert precious.read_text() == "precious"
    assert sorted(theirs.iterdir()) == planted


def test_a_hub_that_others_would_reach_without_tls_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    done = run_cli(tmp_path / "home", "serve", "--http", "0.0.0.0:0")
    assert (done.returncode, done.stdout) == (1, "")
    for way in ("--tls ", "--tls-cert", "--insecure-http"):
        assert way in done.stderr
