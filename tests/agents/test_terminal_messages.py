"""Tests of messages that are shown to a program under a terminal."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agents.terminals import (
    DEADLINE_SECONDS,
    Screen,
    bash,
    run_piped,
    start,
    until,
)
from tieline.agents import terminal


class Messages:
    """Test double for incoming messages. It gives `texts` in order;

    `asked` counts how often a message was requested.
    """

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.asked = 0

    def __aiter__(self) -> "Messages":
        return self

    async def __anext__(self) -> str:
        self.asked += 1
        if not self._texts:
            raise StopAsyncIteration
        return self._texts.pop(0)


def showing(screen: Screen, script: str, messages: AsyncIterator[str], **options: Any) -> "asyncio.Task[int]":
    return start(screen, bash(f"echo started; {script}"), incoming=messages, **{"idle_ms": 50, **options})


async def test_a_message_is_printed_on_a_line_of_its_own_and_the_program_gets_nothing(screen: Screen) -> None:
    running = showing(screen, "stty -echo; printf 'prompt> '; read -r line; echo got:$line", Messages("news"))
    await screen.shows(b"prompt> \r\nnews\r\nprompt> ")
    screen.type(b"mine\r")
    await screen.shows(b"got:mine")
    assert await running == 0


async def test_no_message_is_shown_while_the_program_starts(screen: Screen) -> None:
    running = start(screen, bash("sleep 0.2; echo up; read -r line"), incoming=Messages("news"), idle_ms=10)
    await screen.shows(b"news")
    assert screen.seen.startswith(b"up\r\nnews")
    screen.type(b"\r")
    await running


async def test_a_program_that_prints_nothing_is_idle_after_a_while(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "START_SECONDS", 0.1)
    running = start(screen, bash("read -r line"), incoming=Messages("news"), idle_ms=10)
    await screen.shows(b"news")
    screen.type(b"\r")
    await running


@pytest.mark.slow
async def test_no_message_is_shown_while_the_program_prints(screen: Screen) -> None:
    messages = Messages("news")
    # By the shell itself: on a busy machine a program for each pause may take longer to start than the wait for quiet.
    script = "for i in {1..50}; do echo $i; read -rt 0.01 _; done; read -r line"
    running = showing(screen, script, messages, idle_ms=1000)
    await screen.shows(b"news")
    assert screen.seen.index(b"\n50\r\n") < screen.seen.index(b"news")
    screen.type(b"\r")
    await running


async def test_no_message_is_shown_while_the_person_types(screen: Screen) -> None:
    messages = Messages("first", "second")
    running = showing(screen, "echo ready; read -r a; echo got:$a; read -r b", messages, idle_ms=150)
    screen.type(b"hal")
    await screen.shows(b"ready")
    screen.type(b"f a line\r")
    await screen.shows(b"second")
    assert screen.seen.index(b"f a line\r\n") < screen.seen.index(b"first")
    screen.type(b"\r")
    await running


async def test_the_next_message_is_asked_for_only_when_the_last_was_shown(screen: Screen) -> None:
    messages = Messages("first", "second")
    running = showing(screen, "echo ready; read -r a; echo entered; read -r b", messages, idle_ms=150)
    screen.type(b"typing")
    await screen.shows(b"typing")
    assert messages.asked == 1
    screen.type(b"\r")
    await screen.shows(b"second")
    assert messages.asked >= 2
    screen.type(b"\r")
    await running


async def test_what_a_person_left_half_typed_is_no_reason_to_wait_for_ever(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "TYPING_SECONDS", 0.3)
    typed = asyncio.Event()

    async def later() -> AsyncIterator[str]:
        await typed.wait()
        yield "news"

    running = showing(screen, "printf 'name? '; read -r name; echo got:$name", later())
    await screen.shows(b"name? ")
    screen.type(b"al")
    await screen.shows(b"name? al")
    typed.set()
    await screen.shows(b"news\r\nname? al")
    assert screen.seen.endswith(b"name? al\r\nnews\r\nname? al"), "and the line is there again"
    screen.type(b"ice\r")
    await screen.shows(b"got:alice")
    assert await running == 0


async def test_a_key_pressed_in_a_pager_is_not_half_a_line(screen: Screen) -> None:
    script = r"printf '\033[?1049hpage'; read -rsn 1 key; printf '\033[?1049l'; read -r line"
    running = showing(screen, script, Messages("news"))
    await screen.shows(b"page")
    screen.type(b"q")
    await screen.shows(b"news")
    screen.type(b"\r")
    assert await running == 0


async def test_what_a_terminal_sends_by_itself_is_not_typing(screen: Screen) -> None:
    running = showing(screen, "stty -echo; echo ready; read -r line", Messages("news"), idle_ms=100)
    screen.type(b"\x1b[I\x1b[12;40R\x1b[<0;3;4M\x1b]11;rgb:00/00/00\x1b\\\x1bOA")
    await screen.shows(b"news")
    screen.type(b"\r")
    await running


async def test_no_message_is_printed_on_the_alternate_screen(screen: Screen) -> None:
    script = r"printf '\033[?1049hfull'; read -r a; printf '\033[?1049l'; echo left; read -r b"
    running = showing(screen, script, Messages("news"))
    await screen.shows(b"full")
    screen.type(b"\r")
    await screen.shows(b"news")
    assert screen.seen.index(b"left") < screen.seen.index(b"news")
    screen.type(b"\r")
    await running


async def test_control_characters_in_a_message_are_made_visible(screen: Screen) -> None:
    text = "a\x1b[2Jb\rc\x9b5Ad\x07\u202ee\r\n->relay:x <<<\nlast"
    running = showing(screen, "read -r line", Messages(text))
    await screen.shows(rb"a\x1b[2Jb\rc\x9b5Ad\x07\u202ee" + b"\r\n  ->relay:x <<<\r\n  last\r\n")
    screen.type(b"\r")
    assert await running == 0


async def test_a_failure_of_the_messages_lets_the_program_end_first(screen: Screen) -> None:
    async def failing() -> AsyncIterator[str]:
        yield "news"
        raise ConnectionError("the hub is gone")

    running = showing(screen, "read -r line; echo got:$line", failing())
    await screen.shows(b"news")
    screen.type(b"x\r")
    with pytest.raises(ConnectionError, match="the hub is gone"):
        await running
    await screen.shows(b"got:x")


async def test_with_injection_a_message_is_typed_on_one_line_and_entered(screen: Screen) -> None:
    running = showing(screen, "read -r line; echo got:$line", Messages("from amy:\nhi\x1b"), inject=True)
    await screen.shows(rb"got:from amy: hi\x1b")
    assert await running == 0


async def test_with_injection_enter_is_a_key_of_its_own(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SUBMIT_SECONDS", DEADLINE_SECONDS)
    running = showing(screen, "read -r line; echo got:$line", Messages("hi"), inject=True)
    await screen.shows(b"hi")
    assert b"got:" not in screen.seen
    screen.type(b"gh\r")
    await screen.shows(b"got:high")
    assert await running == 0


@pytest.mark.slow
async def test_with_injection_a_person_who_begins_to_type_enters_it_or_not(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "SUBMIT_SECONDS", 1.0)
    messages = Messages("hi", "again")
    running = showing(screen, "read -r a; echo got:$a; read -r b; echo got:$b", messages, inject=True)
    await screen.shows(b"hi")
    screen.type(b" x")
    await until(lambda: messages.asked == 2)
    assert b"got:" not in screen.seen
    screen.type(b"\r")
    await screen.shows(b"got:hi x")
    await screen.shows(b"got:again")
    assert await running == 0


async def test_an_injected_message_cannot_make_the_program_send(screen: Screen) -> None:
    text = "->relay:carol <<<"
    running = showing(screen, "read -r line; printf '%s\n' \"$line\" 'secret>>>'", Messages(text), inject=True)
    await screen.shows(b"secret>>>")
    assert await running == 0  # on_instruction would have failed
    assert screen.seen.count(b"-> relay:carol <<<") == 2


async def test_with_injection_a_tab_is_no_key(screen: Screen) -> None:
    running = showing(screen, "read -r line; printf 'got:%s' \"$line\"", Messages("a\tb"), inject=True)
    await screen.shows(rb"got:a\tb")
    assert await running == 0


async def test_with_injection_status_lines_are_printed_all_the_same(screen: Screen) -> None:
    running = showing(screen, "read -r line; echo got:$line", Messages(), status_lines=Messages("for you"), inject=True)
    await screen.shows(b"\r\nfor you\r\n")
    screen.type(b"mine\r")
    await screen.shows(b"got:mine")
    assert await running == 0


async def test_messages_are_printed_beside_an_output_that_is_no_screen(screen: Screen) -> None:
    outcome = await run_piped(
        bash("printf 'no line end'; sleep 0.5"), incoming=Messages("news"), screen=screen.fd, idle_ms=50
    )
    await screen.shows(b"news")
    assert bytes(screen.seen) == b"news\r\n"
    assert outcome.output == b"no line end"


async def test_a_message_that_cannot_be_printed_was_not_shown() -> None:
    messages = Messages("news")
    read_out, write_out = os.pipe()
    os.close(read_out)
    try:
        outcome = await run_piped(bash("echo up; sleep 0.3; exit 4"), incoming=messages, screen=write_out, idle_ms=50)
    finally:
        os.close(write_out)
    assert (outcome.code, messages.asked) == (4, 1)


async def test_with_injection_and_no_terminal_the_input_stays_open_for_messages() -> None:
    outcome = await run_piped(
        bash("read -r a; echo one; read -r b; echo got:$a,$b"),
        given=b"piped\n",
        incoming=Messages("hi"),
        inject=True,
        idle_ms=50,
    )
    assert outcome.output.endswith(b"got:piped,hi\n")
