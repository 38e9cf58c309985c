"""Tests of the screen: a message is printed between the outputs of a program.

If the program had an unfinished line (such as a prompt), the line is printed again after the message.
"""

import os
from collections.abc import AsyncIterator

import pytest

from tieline.agents.screen import Screen


class Pipe:
    """A screen that writes to a pipe, so that a test can read its output."""

    def __init__(self, read: int, write: int) -> None:
        self._read = read
        self.screen = Screen(write, write, line_end="\n")

    def seen(self) -> bytes:
        return os.read(self._read, 65536)


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    read, write = os.pipe()
    pipe = Pipe(read, write)
    yield pipe
    pipe.screen.close()
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    "line",
    [
        b"$ ",
        b"\x1b[?2004h\x1b[1;32muser@host\x1b[0m:~$ ",
        b"\x1b]0;title\x07# half\x08\x08\x08\x08\x1b[K",
        "\u276f ".encode(),
        b"working 50%\rworking 60%",
        b"",
    ],
)
async def test_the_unfinished_line_is_given_back_behind_a_message(pipe: Pipe, line: bytes) -> None:
    for chunk in (b"done\n" + line[:3], line[3:]):
        await pipe.screen.pass_on(chunk)
    pipe.seen()
    await pipe.screen.show("one\ntwo")
    await pipe.screen.show("three")
    end = b"\n" if line else b""
    assert pipe.seen() == end + b"one\n  two\n" + line + end + b"three\n" + line


async def test_the_prompt_behind_a_pager_is_given_back(pipe: Pipe) -> None:
    await pipe.screen.pass_on(b"\x1b[?1049h\x1b[1;1Hpage\n\x1b[24;1H:\r\x1b[K\x1b[?1l\x1b>\x1b[?1049l$ ")
    pipe.seen()
    await pipe.screen.show("one")
    assert pipe.seen() == b"\none\n$ "


@pytest.mark.parametrize(
    "line", [b"\x1b[2A\x1b[Gdrawn", b"\x1b[5;9Hplaced", b"rings\x07", b"torn\x1b[", b"torn\x1b]", b"x" * 5000]
)
async def test_a_line_that_cannot_be_repeated_is_left_where_it_is(pipe: Pipe, line: bytes) -> None:
    await pipe.screen.pass_on(line)
    pipe.seen()
    await pipe.screen.show("one")
    await pipe.screen.show("two")
    assert pipe.seen() == b"\none\ntwo\n"
