"""Tests of `tieline pipeline` in a separate process: it follows a hub that restarts, and can be stopped at any time."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.processes import HubProcess
from tests.pipeline.conftest import QUICK
from tests.pipeline.oracle import Oracle, stored
from tests.pipeline.test_signatures import signed_home
from tests.protocols.peerbus.peers import SECRET
from tieline.client import connect
from tieline.contract.permission import LOG_READ
from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import run
from tieline.pipeline.sqlite_log import SqliteLog
from tieline.protocols.peerbus.settings import SECRET_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_SECONDS = 300
COLUMNS = 36
_PROGRAM = "import sys; from tieline.cli.main import main; sys.argv[0] = 'tieline'; main()"


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: settings by which new processes start Spark faster for small jobs."""
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in QUICK.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    # A session that follows a log is made for a long life, with Java's optimising compiler. Here it is short.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, "pipeline", *map(str, arguments), "--master", "local[2]"]


async def until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]", errors: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, errors.read_text()
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.1)


class FixedHub(HubProcess):
    """A hub in a separate process that has the same address after each start."""

    def _spawn(self) -> "subprocess.Popen[bytes]":
        if not hasattr(self, "_port"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
        (self.home / "tieline.toml").write_text(f'[http]\nlisten = "127.0.0.1:{self._port}"\n')
        serve = [sys.executable, "-c", _PROGRAM, "serve", "--home", str(self.home)]
        with self.log.open("ab") as log:
            return subprocess.Popen(serve, stdout=log, stderr=log)


def _start(arguments: list[str], errors: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with errors.open("wb") as stderr:
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **environment})


async def _talk(home: Path, messages: int) -> str:
    """Send messages from ada to reader.

    Return a token that may read the log, or an empty text if it was issued before.
    """
    async with await connect(home=home) as operator:
        names = {member.name for member in await operator.members()}
        issued = None if "reader" in names else await operator.add_member("reader", permissions=(LOG_READ,))
        if issued is not None:
            await operator.add_member("ada")
    async with await connect(home=home, member="ada") as ada:
        for number in range(messages):
            await ada.send("@reader", f"number {number}")
    return issued.token if issued is not None else ""


async def test_a_hub_that_goes_away_while_it_is_followed_is_read_on_when_it_is_back(folder: Path) -> None:
    home, lake, errors = folder / "h", Lake(folder / "lake"), folder / "errors"
    home.mkdir(mode=0o700)
    hub = FixedHub(home)
    running = await hub.start()
    token = await _talk(home, 20)
    arguments = command("run", "--follow", "--json", "--hub", running.http, "--lake", lake.path)
    following = _start(arguments, errors, {"TIELINE_TOKEN": token})
    try:
        await until(lambda: lake.head().number > 0, following, errors)
        hub.kill()
        await until(lambda: "does not answer; trying again in 1 s" in errors.read_text(), following, errors)
        await hub.start()
        await _talk(home, 20)
        end = SqliteLog(str(home)).end("main")
        await until(lambda: lake.head().position.get("main") == end, following, errors)
        following.send_signal(signal.SIGINT)
        told, _ = await asyncio.to_thread(following.communicate, timeout=WAIT_SECONDS)
    finally:
        following.kill()
        following.wait()
        hub.kill()
    assert following.returncode == 0, errors.read_text()
    assert "The hub answers again." in errors.read_text()
    (line,) = told.splitlines()
    summary = json.loads(line)
    assert set(summary) == {"events_read", "batches", "tables", "seconds"}
    assert (summary["events_read"], summary["batches"]) == (end, lake.head().number)
    assert summary["tables"]["messages"] == lake.head().rows("messages")
    offsets = stored(lake.files("bronze"), ["log", "offset"])
    assert sorted(offset for log, offset in offsets if log == "main") == list(range(end))


def test_ctrl_c_leaves_the_last_whole_batch_and_the_next_run_completes_it(
    spark: SparkSession, made_home: Path, oracle: Oracle, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    process, terminal = pty.fork()
    if process == 0:
        arguments = command("run", "--home", made_home, "--lake", lake.path)
        os.execv(arguments[0], arguments)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    seen = b""
    asked = False
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
        if not asked and b"batch 1: bronze" in seen:
            os.write(terminal, b"\x03")
            asked = True
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    screen = seen.decode()
    assert os.waitstatus_to_exitcode(status) == 130, screen
    assert "stopped before all rows were read" in screen
    assert "run the same command again" in screen
    drawn, _, _ = screen.partition("^C")
    lines = drawn.split("\r\x1b[K")
    assert "Starting Spark …" in lines
    assert any(line.startswith("0 of ") and "events, batch 1: bronze" in line for line in lines)
    assert max(map(len, lines)) < COLUMNS, "no line is wider than the terminal"
    assert "\n" not in drawn, "nothing but the one line was drawn"
    assert lake.head().number == 0
    run(spark, lake, {"home": str(made_home)})
    assert stored(lake.files("edges"), SCHEMAS["edges"].fieldNames()) == oracle.rows("edges")


async def test_signatures_are_checked_where_the_secret_is_given(folder: Path) -> None:
    home = folder / "h"
    places = await signed_home(home)
    process = await asyncio.create_subprocess_exec(
        *command("verify", "--home", home, "--json"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, SECRET_VARIABLE: SECRET},
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 1, errors.decode()
    found = json.loads(out)
    assert (found["intact"], found["signatures_checked"], found["signatures_unchecked"]) == (False, 3, 0)
    assert [(one["offset"], one["kind"]) for one in found["findings"]] == [(places["forged"], "signature")]
    assert json.loads(errors)["error"]["message"] == (
        f"the audit chain is not intact: the signature of the message at row {places['forged']} is wrong"
    )
