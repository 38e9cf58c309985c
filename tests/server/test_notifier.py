"""Tests of the command that notifies a human: one run per message, failures are ignored, and a stop ends all runs."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.core.doubles import content
from tests.server.hubs import until
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Message
from tieline.core.outcome import Unseen
from tieline.server.notifier import WAITING_MAX, Notifier

pytestmark = pytest.mark.slow

TELL = "import os, sys; open(sys.argv[1], 'a').write(os.environ['TIELINE_ID'] + ' ' + sys.stdin.read() + '\\n')"


def unseen(number: int, body: str = "hello") -> Unseen:
    message = Message(
        id=MessageId(f"m{number}"),
        offset=number,
        sender="al\0ice",
        protocol="hub",
        sent_at_ms=1,
        content=content("@bob", body),
    )
    return Unseen(MemberName("bob"), message)


async def test_each_message_is_one_run_with_the_body_on_stdin(tmp_path: Path) -> None:
    told = tmp_path / "told"
    notifier = Notifier([sys.executable, "-c", TELL, str(told)])
    for number in range(3):
        notifier.notify(unseen(number, f"body {number}; $HOME"))
    await until(lambda: told.exists() and len(told.read_text().splitlines()) == 3)
    assert sorted(told.read_text().splitlines()) == [f"m{number} body {number}; $HOME" for number in range(3)]
    await notifier.stop()


async def test_a_command_that_cannot_run_or_fails_is_passed_over(tmp_path: Path) -> None:
    for command in (["/nowhere/to/be/found"], [sys.executable, "-c", "raise SystemExit(3)"]):
        notifier = Notifier(command)
        notifier.notify(unseen(1))
        await until(lambda notifier=notifier: not notifier._runs)  # type: ignore[misc]  # its own notifier
        await notifier.stop()


async def test_stopping_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    program = "import sys, tempfile, time; tempfile.mkstemp(dir=sys.argv[1]); time.sleep(60)"
    notifier = Notifier([sys.executable, "-c", program, str(tmp_path)])
    for number in range(WAITING_MAX + 10):
        notifier.notify(unseen(number))
    assert len(notifier._runs) == WAITING_MAX
    await until(lambda: any(tmp_path.iterdir()))
    async with asyncio.timeout(20):
        await notifier.stop()
    assert not notifier._runs
