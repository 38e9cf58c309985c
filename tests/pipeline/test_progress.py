"""Tests of the progress display of a run: on a terminal one line that is redrawn, elsewhere one line for each batch."""

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tieline.cli import pipeline_progress
from tieline.cli.pipeline_progress import Display
from tieline.pipeline.lake import Commit

END = "<end>"


class Clock:
    """Test double for the module `time`: each call returns a time that is five seconds later."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 5
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_progress, "time", Clock())


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Iterator[list[str]]:
    """Replace stderr by a terminal of this width.

    Yield a list, which at the end has all texts that were drawn on the line, one after the other.
    """
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    drawn: list[str] = []
    with os.fdopen(other, "w") as stderr, monkeypatch.context() as during:
        during.setattr(sys, "stderr", stderr)
        yield drawn
        stderr.write(END)
        stderr.flush()
        # A terminal hands on what was written in pieces of its own.
        read = b""
        while not read.endswith(END.encode()):
            read += os.read(own, 65536)
        drawn += read.decode().removesuffix(END).split("\r\x1b[K")
    os.close(own)


def work(display: Display) -> None:
    """Report two complete batches and the start of a third one to a progress display."""
    with display:
        for number, table in ((1, "bronze"), (2, "deliveries")):
            display.stage(table)
            display.done(Commit(number=number, written={"bronze": 10_000}))
        display.note("The hub answers again.")
        display.stage("edges")


def test_a_terminal_shows_events_rate_batch_table_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 100) as drawn:
        work(Display(30_000, quiet=False))
    assert drawn == [
        "",
        "Starting Spark …",
        "0 of 30,000 events, batch 1: bronze",
        "10,000 of 30,000 events, 1,000/s, 20 s left",
        "10,000 of 30,000 events, 667/s, 30 s left, batch 2: deliveries",
        "20,000 of 30,000 events, 1,000/s, 10 s left",
        "\x1b[33mThe hub answers again.\x1b[0m\r\n",
        "20,000 of 30,000 events, 800/s, 12 s left, batch 3: edges",
        "",
    ]


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (20, 40):
        with terminal(monkeypatch, columns) as drawn:
            work(Display(30_000, quiet=False))
        assert max(len(line) for line in drawn if "\n" not in line) == columns - 1


def test_elsewhere_each_batch_is_a_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    work(Display(30_000, quiet=False))
    written = capsys.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert [line.partition(",000 of")[0] for line in lines] == ["batch 1: 10", "batch 2: 20", "The hub answers again."]
    assert written.err.replace("\n", "").isprintable()
    work(Display(30_000, quiet=True))
    assert capsys.readouterr().err == "The hub answers again.\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (59, "59 s"), (61, "1 min 1 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")]
)
def test_a_long_time_is_told_in_larger_units(seconds: float, text: str) -> None:
    assert pipeline_progress._duration(seconds) == text
