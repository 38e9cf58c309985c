"""Tests of the command that speaks peerbus over standard input and output."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, environment, run_cli
from tests.protocols.peerbus.peers import envelope, register
from tieline.protocols.peerbus import codec

pytestmark = pytest.mark.slow

TOKEN = "token-one-of-the-tests"


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    process = HubProcess()
    process.home.mkdir(mode=0o700)
    (process.home / "tieline.toml").write_text(f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{"k" * 32}"\n')
    with process as running:
        yield running


def lines(*frames: bytes) -> str:
    return "".join(frame.decode() + "\n" for frame in frames)


def test_a_script_registers_says_something_and_hears_that_it_is_durable(hub: HubProcess) -> None:
    said = lines(register("alice", TOKEN), envelope("alice", "alice", "note"), codec.encode_peers())
    done = hub.cli("peerbus", "stdio", stdin=said)
    assert done.returncode == 0, done.stderr
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["type"] for frame in frames if frame["type"] == "peers"] == ["peers", "peers"]


def test_two_processes_talk_through_pipes(hub: HubProcess) -> None:
    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(TIELINE), "peerbus", "stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(hub.home),
        )

    with start() as alice, start() as bob:
        for name, process in (("alice", alice), ("bob", bob)):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(lines(register(name, TOKEN)))
            process.stdin.flush()
            assert name in json.loads(process.stdout.readline())["names"]
        assert alice.stdin is not None
        assert bob.stdout is not None
        alice.stdin.write(lines(envelope("alice", "bob", "through a pipe")))
        alice.stdin.flush()
        assert json.loads(bob.stdout.readline())["envelope"]["body"] == {"text": "through a pipe"}
        for process in (alice, bob):
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(20) == 0


def test_a_rejection_and_a_missing_hub_have_their_exit_codes(hub: HubProcess, tmp_path: Path) -> None:
    assert hub.cli("peerbus", "stdio", stdin=lines(register("alice", "wrong"))).returncode == 3
    assert run_cli(tmp_path, "peerbus", "stdio").returncode == 4
