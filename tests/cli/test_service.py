"""Tests of `tieline service`: the text of its units, as systemd itself reads it, and the commands for systemd."""

import contextlib
import http.client
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.cli.failure import Failure
from tieline.cli.serve import tell_service_manager
from tieline.cli.service import Service, _check_system, _try_program, _unit
from tieline.cli.systemd_unit import Unit
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = "systemd/user/tieline.service"


def unit(home: Path, *options: str, user: str = "", backups: Path | None = None) -> Unit:
    command = (sys.executable, "serve", "--home", str(home), *options)
    return Unit(command=command, home=home, backups=backups, user=user, programs=(Path("/opt/tieline"),))


@pytest.mark.parametrize("user", ["", "daemon"])
@pytest.mark.parametrize("home", ["/var/lib/tieline", "/srv/hub of 100% $HOME"])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_accepts_the_unit(tmp_path: Path, user: str, home: str) -> None:
    path = tmp_path / "tieline.service"
    path.write_text(unit(Path(home), user=user, backups=Path("/backups of 100% $HOME")).text())
    scope = "--system" if user else "--user"
    done = subprocess.run(
        ["systemd-analyze", scope, "verify", "--recursive-errors=no", str(path)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_service_of_the_system_can_write_only_to_its_home() -> None:
    text = unit(Path("/srv/hub"), user="tieline").text()
    for line in (
        "User=tieline",
        "ReadWritePaths=/srv/hub",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
    ):
        assert line in text.splitlines()


def test_systemd_makes_the_home_in_its_state_folder() -> None:
    text = unit(Path("/var/lib/tieline"), user="tieline").text()
    assert "StateDirectory=tieline" in text.splitlines()
    assert "ReadWritePaths" not in text


@pytest.mark.parametrize(("home", "hidden"), [("/srv/hub", "yes"), ("/run/user/7/hub", "read-only")])
def test_folders_of_people_are_hidden_unless_the_hub_needs_one(home: str, hidden: str) -> None:
    assert f"ProtectHome={hidden}" in unit(Path(home), user="tieline").text().splitlines()


def test_a_word_of_the_command_stays_one_word() -> None:
    text = unit(Path('/a b"c\\d'), "--x", "50%", user="").text()
    assert r"""serve --home "/a b\"c\\d" --x 50%%""" in text


def test_a_path_is_no_command_so_systemd_replaces_no_variable_in_it() -> None:
    lines = unit(Path("/srv/a $b"), user="tieline", backups=Path("/c $d")).text().splitlines()
    assert 'ReadWritePaths="/srv/a $b"' in lines
    assert 'ReadWritePaths="-/c $d"' in lines


def test_a_start_may_take_as_long_as_the_backup_before_an_upgrade() -> None:
    assert "TimeoutStartSec=infinity" in unit(Path("/srv/hub")).text().splitlines()


def test_a_hub_that_is_long_not_ready_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 330)

    monkeypatch.setattr(subprocess, "run", wait)
    with pytest.raises(Failure, match="not ready after 330 seconds") as failed:
        Service(system=True).tell("start", "tieline.service")
    assert "journalctl" in failed.value.hint or "root" in failed.value.hint


BACKUPS = ("--backup", "6h", "--backup-dir")


def test_a_service_of_the_system_can_write_its_backups(tmp_path: Path) -> None:
    service = Service(system=True)
    text = _unit(service, tmp_path, (*BACKUPS, "/backups/tieline"), "daemon").text()
    assert "ReadWritePaths=-/backups/tieline" in text.splitlines()
    (tmp_path / "tieline.toml").write_text('[backup]\nevery = "1h"\nfolder = "/home/configured"\n')
    text = _unit(service, tmp_path, (), "daemon").text()
    assert {"ReadWritePaths=-/home/configured", "ProtectHome=read-only"} <= set(text.splitlines())
    assert _unit(service, tmp_path, (*BACKUPS, str(tmp_path / "backups")), "daemon").backups is None
    with pytest.raises(Failure, match="whole path"):
        _unit(service, tmp_path, (*BACKUPS, "backups"), "daemon")
    (tmp_path / "tieline.toml").write_text("nonsense")
    with pytest.raises(Failure, match=r"tieline\.toml"):
        _unit(service, tmp_path, (), "daemon")


def test_a_service_of_the_system_needs_folders_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    me = pwd.getpwuid(os.getuid()).pw_name
    home, backups = tmp_path / "home", tmp_path / "backups"
    for missing in (home, backups):
        with pytest.raises(Failure, match=f"no folder {missing}") as refused:
            _check_system(unit(home, user=me, backups=backups))
        assert refused.value.hint == f"install -d -o {me} -m 700 {missing}"
        missing.mkdir()
    _check_system(unit(home, user=me, backups=backups))
    _check_system(unit(Path("/var/lib/no-such-hub"), user=me))
    other = next(user.pw_name for user in pwd.getpwall() if user.pw_uid != os.getuid())
    with pytest.raises(Failure, match=f"{home} does not belong to {other}"):
        _check_system(unit(home, user=other))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_service_of_the_system_needs_a_program_that_its_user_can_run(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    program, broken = tmp_path / "own" / "tieline", Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp")) / "tieline"
    for file, text in ((program, "exit 0"), (broken, "echo 'no such module' >&2; exit 1")):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    program.parent.chmod(0o700)
    broken.parent.chmod(0o755)
    try:
        for file, said in ((program, "Permission denied"), (broken, "no such module")):
            with pytest.raises(Failure, match=f"nobody cannot run {file}: {said}") as refused:
                _try_program(str(file), nobody)
            assert "/opt/tieline" in refused.value.hint
        _try_program("/bin/true", nobody)
    finally:
        shutil.rmtree(broken.parent)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--store", "postgresql://ada:secret@db/tieline"), "password"),
        (("--store", "postgres://ada@db/tieline?sslmode=require&password=secret"), "password"),
        (("--home", "/srv/hub"), "before the two dashes"),
        (("--base-url", "https://hub\nExecStartPre=/bin/sh"), "control character"),
    ],
)
def test_options_that_a_unit_must_not_have_are_refused(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    with pytest.raises(Failure, match=text) as refused:
        _unit(Service(system=False), tmp_path, options, "daemon")
    assert "secret" not in refused.value.message + refused.value.hint
    assert "ada@db" in _unit(Service(system=False), tmp_path, ("--store", "postgresql://ada@db/x"), "daemon").text()


@pytest.fixture
def systemctl(tmp_path: Path) -> dict[str, str]:
    """Fixture: variables in which `systemctl` is a program that writes down its arguments."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.slow
def test_the_unit_is_written_once_and_removed_once(tmp_path: Path, systemctl: dict[str, str]) -> None:
    home = tmp_path / "home"
    for said in ("was written", "is up to date"):
        done = run_cli(home, "service", "install", "--", "--http", "127.0.0.1:0", env=systemctl)
        assert (done.returncode, said in done.stdout) == (0, True), done.stderr
    text = (tmp_path / UNIT).read_text()
    assert f"serve --home {home} --http 127.0.0.1:0\n" in text
    done = run_cli(home, "service", "install", "--print", "--", "--http", "127.0.0.1:0", env=systemctl)
    assert done.stdout == text
    assert json.loads(run_cli(home, "service", "status", "--json", env=systemctl).stdout)["installed"]
    for said in ("was removed", "There is no"):
        assert said in run_cli(home, "service", "uninstall", env=systemctl).stdout
    assert not (tmp_path / UNIT).exists()


@pytest.mark.slow
def test_options_that_serve_does_not_have_are_refused_before_anything_is_written(
    tmp_path: Path, systemctl: dict[str, str]
) -> None:
    done = run_cli(tmp_path, "service", "install", "--", "--nonsense", env=systemctl)
    assert (done.returncode, "--nonsense" in done.stderr) == (2, True)
    assert not (tmp_path / UNIT).exists()


@pytest.mark.slow
def test_a_machine_without_systemd_is_told_what_to_run_instead(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "service", "install", env={"PATH": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert (done.returncode, f"serve --home {tmp_path}" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "is_abstract", [False, pytest.param(True, marks=pytest.mark.skipif("sys.platform != 'linux'"))]
)
def test_the_hub_tells_systemd_its_state(folder: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool) -> None:
    path = f"@{folder}" if is_abstract else str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path.replace("@", "\0", 1) if is_abstract else path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        tell_service_manager("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.slow
def test_the_container_of_compose_names_an_address_that_works_and_refuses_other_hosts() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    (command,) = re.findall(r"^ +command: (\[.*\])$", compose, re.MULTILINE)
    (health,) = re.findall(r'^ +test: \["CMD", (.*)\]$', compose, re.MULTILINE)
    assert f"CMD [{health}]" in (DEPLOY / "Containerfile").read_text()
    _, *options = json.loads(command)
    with HubProcess("--http", "0.0.0.0:0", *options) as hub:
        assert "http://127.0.0.1:7117/#/enter/" in hub.stdout
        assert hub.cli(*json.loads(f"[{health}]")[1:]).returncode == 0
        port = hub.running.http.rpartition(":")[2]
        for host, status in (("127.0.0.1", 200), ("evil.example", 421)):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)) as connection:
                connection.request("GET", "/", headers={"Host": host})
                assert connection.getresponse().status == status


@pytest.mark.slow
@pytest.mark.parametrize("is_journal", [True, False])
def test_a_hub_tells_systemd_that_it_is_ready_and_the_journal_no_secrets(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_journal: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        hub = HubProcess()
        (hub.folder / "stdout").touch()
        output = (hub.folder / "stdout").stat()
        # Terminals of a desktop inherit the variable, which then names another stream than theirs.
        monkeypatch.setenv("JOURNAL_STREAM", f"{output.st_dev}:{output.st_ino if is_journal else 1}")
        with hub:
            assert manager.recv(100) == b"READY=1"
            assert Path(hub.running.hub_socket).exists()
            hub.stop()
            assert manager.recv(100) == b"STOPPING=1"
            assert ("is running in" in hub.stdout) == is_journal
            assert load_config(hub.home).of(BackchannelSettings).room_token not in hub.stdout
            assert ("/#/enter/" in hub.stdout) != is_journal, "others may read the journal"
