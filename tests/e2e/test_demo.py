"""Tests of `tieline demo`, as a person runs it: everything that it claims happens, and it leaves no process or file."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, environment, run_cli, wait_until
from tests.cli.printed import assert_shape
from tieline.cli.demo.script import CAST
from tieline.cli.demo.verdict import Verdict
from tieline.cli.failure import Exit
from tieline.client import connect

slow = pytest.mark.slow

_END_SECONDS = 50.0
_HOME = re.compile(r"as process (\d+), in (\S+),")


def processes_of(folder: Path) -> list[str]:
    """Return the ids of the processes that have this folder in their arguments or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if os.fsencode(folder) in about and process.name != str(os.getpid()):
                found.append(process.name)
    return found


def assert_nothing_is_left(folder: Path) -> None:
    wait_until(lambda: processes_of(folder) == [], "every process of the demo has ended")
    assert list(folder.iterdir()) == []


class Performance:
    """A running `tieline demo` for tests, with its own folder."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process = process
        self.folder = folder
        assert process.stdout is not None
        self._lines = process.stdout
        assert "starting" in self._lines.readline()
        found = _HOME.search(self._lines.readline())
        assert found is not None
        self.hub_pid, self.home = int(found[1]), Path(found[2])

    def wait_for(self, text: str) -> None:
        """Read the output of the demo until a line contains a text. Fail if the demo ends before."""
        for line in self._lines:
            if text in line:
                return
        raise AssertionError(f"the demo ended before: {text}")

    def end(self) -> tuple[int, str, str]:
        """Wait for the end of the demo. Return its exit code, the rest of its output, and its error output."""
        out, errors = self.process.communicate(timeout=_END_SECONDS)
        return self.process.returncode, out, errors


@pytest.fixture
def performance(folder: Path) -> Iterator[Performance]:
    """Fixture: a demo that has just started, with its pauses for human readers."""
    with subprocess.Popen(
        [str(TIELINE), "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder / "none", {"TMPDIR": str(folder)}),
    ) as process:
        try:
            yield Performance(process, folder)
        finally:
            process.terminate()


@slow
def test_five_agents_on_five_protocols_finish_their_work_and_leave_nothing(folder: Path) -> None:
    done = run_cli(folder / "none", "demo", "--fast", env={"TMPDIR": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    for name, protocol, role in CAST:
        assert re.search(rf"{protocol} +{name} +is here, and {role}", done.stdout)
    for what in ("URGENT Stop", "kill -9", "got it", "[objective completed]", "What the pipeline would see"):
        assert what in done.stdout
    assert re.search(r"(\d+) of \1 claims hold", done.stdout)
    assert_nothing_is_left(folder)


@slow
def test_a_program_gets_every_claim_with_what_was_expected_and_found(folder: Path) -> None:
    done = run_cli(folder / "none", "demo", "--json", "--keep", env={"TMPDIR": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert_shape("demo", done.stdout)
    told = json.loads(done.stdout)
    assert told["holds"]
    assert all(check["expected"] == check["found"] for check in told["checks"])
    assert sum(told["events"].values()) <= told["audited_rows"]
    assert {line["protocol"] for line in told["transcript"]} == {*(protocol for _, protocol, _ in CAST), "tieline"}
    audited = run_cli(Path(told["home"]), "audit", "verify")
    assert audited.returncode == 0, "what is kept can be looked at"
    assert processes_of(folder) == []


@slow
def test_ctrl_c_ends_every_process_and_removes_the_folder(performance: Performance) -> None:
    performance.wait_for("ada → @ben")
    assert processes_of(performance.home), "the hub has it among its arguments"
    performance.process.send_signal(signal.SIGINT)
    code, out, _ = performance.end()
    assert (code, "Nothing of it is left." in out) == (130, True)
    assert_nothing_is_left(performance.folder)


@slow
def test_a_demo_that_is_killed_leaves_nothing_either(performance: Performance) -> None:
    performance.wait_for("ada → @ben")
    performance.process.kill()
    assert performance.process.wait(_END_SECONDS) == -signal.SIGKILL
    assert_nothing_is_left(performance.folder)


@slow
def test_a_hub_that_dies_on_the_way_fails_the_demo(performance: Performance) -> None:
    performance.wait_for("is here, and announces")
    os.kill(performance.hub_pid, signal.SIGKILL)
    code, out, errors = performance.end()
    assert code == Exit.FAILED
    assert "NOT SO" in out
    assert "Traceback" not in errors
    assert_nothing_is_left(performance.folder)


@slow
def test_a_member_that_is_removed_on_the_way_fails_the_demo(performance: Performance) -> None:
    async def remove() -> None:
        # In this process: a command would take longer to start than the demo to end, on a busy machine.
        async with await connect(home=performance.home) as operator:
            performance.wait_for("is here, and announces")
            await operator.remove_member("dina")

    asyncio.run(remove())
    code, out, errors = performance.end()
    assert code == Exit.FAILED
    assert "NOT SO" in out
    assert "not everything happened as claimed" in errors
    assert_nothing_is_left(performance.folder)


def test_a_verdict_holds_when_something_was_claimed_and_all_of_it_is_so() -> None:
    verdict = Verdict()
    assert not verdict.holds
    assert verdict.check("two and two", 4, 4)
    assert verdict.holds
    assert not verdict.check("two and three", 5, 6)
    assert not verdict.holds
    assert [check.claim for check in verdict.failed] == ["two and three"]
