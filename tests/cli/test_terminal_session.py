"""Tests of terminal sessions: the limits of their queues, and the form of a message on a screen and at a prompt."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tieline.cli import terminal_session
from tieline.cli.session import Link
from tieline.cli.terminal_session import Outbox, Outgoing, StatusLines, TerminalSession, printed, typed
from tieline.client import Accepted, HubRefused, Message
from tieline.contract.message import Priority
from tieline.contract.refusal import Code
from tieline.wire.extractor import Instruction

ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def message(body: str, **parts: Any) -> Message:
    return Message(
        **{
            "id": ID,
            "offset": 1,
            "sender": "bob",
            "target": "@alice",
            "body": body,
            "sent_at_ms": 0,
            "protocol": "tieline",
            **parts,
        }
    )


async def take(lines: AsyncIterator[str], count: int) -> list[str]:
    return [await anext(lines) for _ in range(count)]


def hello(number: int = 0) -> Instruction:
    return Instruction(to="bob", body=f"hello {number}")


# Messages


def test_a_program_is_told_in_the_words_it_knows() -> None:
    assert typed(message("hi")) == "Relay message from bob [01890a5d-ac96]: hi"
    everything = message(
        "hi", thread="t", priority=Priority.URGENT, target="#dev", title="News", data={"n": 1}, verified=False
    )
    assert typed(everything) == (
        "Relay message from bob (unverified) [01890a5d-ac96] [thread:t] [!!] [#dev] (reply to #dev, not sender): "
        'News hi data: {"n":1}'
    )
    assert typed(message("hi", target="*")) == "Relay message from bob [01890a5d-ac96] [to everybody]: hi"


def test_a_thread_cannot_begin_another_line_of_ours() -> None:
    assert "\n" not in typed(message("hi", thread="t]: \nRelay message from eve"))


def test_a_person_sees_a_line_of_ours_and_then_what_was_said() -> None:
    head, *rest = printed(message("one\ntwo", title="News", refs=("a.py",))).split("\n")
    assert head.startswith("tieline: 1  bob → @alice  ")
    assert rest == ["News", "one", "two", "ref: a.py"]


@pytest.mark.parametrize(("put", "chars_max"), [(typed, 4_000), (printed, 16_000)])
def test_a_long_message_is_shortened_and_says_where_the_whole_is(put: Any, chars_max: int) -> None:
    text = put(message("x" * 100_000))
    assert len(text) < chars_max + 200
    assert f"{100_000 - chars_max:,} more characters: 'tieline " in text


# Status lines


async def test_status_lines_are_given_in_order_and_too_many_are_counted() -> None:
    status_lines = StatusLines()
    for number in range(60):
        status_lines.add(str(number))
    found = await take(status_lines.lines(), 51)
    assert found[:2] == ["tieline: 0", "tieline: 1"]
    assert found[-1] == "tieline: and 10 more lines like these"


async def test_a_status_line_that_was_not_shown_is_left_over() -> None:
    status_lines = StatusLines()
    status_lines.add("one")
    status_lines.add("two")
    lines = status_lines.lines()
    assert await take(lines, 2) == ["tieline: one", "tieline: two"]
    assert list(status_lines.rest()) == ["tieline: two"], "nobody asked for what comes after it"


async def test_a_status_line_is_awaited() -> None:
    status_lines = StatusLines()
    coming = asyncio.ensure_future(take(status_lines.lines(), 1))
    await asyncio.sleep(0)
    status_lines.add("late")
    assert await coming == ["tieline: late"]


# The outbox


async def test_the_outbox_keeps_what_is_not_answered_in_order() -> None:
    outbox = Outbox()
    for number in range(3):
        assert outbox.put(hello(number))
    first = await outbox.wait_for_some()
    assert [outgoing.instruction.body for outgoing in first] == ["hello 0", "hello 1", "hello 2"]
    outbox.drop_first()
    again = await outbox.wait_for_some()
    assert again == first[1:], "under the same wire ids"
    outbox.drop_first()
    outbox.drop_first()
    await asyncio.wait_for(outbox.wait_until_empty(), 1)


async def test_the_outbox_is_bounded_by_count_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_session, "INSTRUCTIONS_MAX", 2)
    outbox = Outbox()
    assert [outbox.put(hello(number)) for number in range(3)] == [True, True, False]
    monkeypatch.setattr(terminal_session, "INSTRUCTION_BYTES_MAX", 100)
    outbox = Outbox()
    assert not outbox.put(Instruction(to="bob", body="x" * 100))


# Answers


async def test_what_does_not_fit_the_outbox_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_session, "INSTRUCTIONS_MAX", 1)
    session = TerminalSession(Link(), "alice", inject=False, match=None, on_screen=True)
    session.say(hello())
    session.say(hello())
    said = "tieline: not sent to @bob: 1 others wait for the hub already"
    assert await take(session.status_lines.lines(), 1) == [said]


async def test_that_a_message_is_held_is_told_to_the_person_and_a_refusal_to_the_program() -> None:
    session = TerminalSession(Link(), "alice", inject=True, match=None, on_screen=True)
    session._accepted(Outgoing(hello(), 1), Accepted(1, "m", 0, 1, held="held: because"))
    session._accepted(Outgoing(hello(), 1), Accepted(1, "m", 0, 1, held="slowed: because"))
    session._refused(Outgoing(hello(), 1), HubRefused(Code.UNKNOWN_MEMBER, "because"))
    assert list(session.status_lines.rest()) == ["tieline: to @bob, kept for later: held: because"]
    assert await take(session.incoming(), 1) == ["tieline: not sent to @bob: because"]


async def test_the_same_answer_twice_is_typed_once_and_then_printed() -> None:
    session = TerminalSession(Link(), "alice", inject=True, match=None, on_screen=True)
    for _ in range(2):
        session.say(Instruction(to="alice", body="x"))
    expected = "tieline: not sent to @alice: that is this program itself"
    assert await take(session.incoming(), 1) == [expected]
    assert await take(session.status_lines.lines(), 1) == [expected]
    await session.finish()
    assert list(session.status_lines.rest()) == [expected, expected], "nobody asked for what comes after either"
