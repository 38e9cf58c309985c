"""Tests of `tieline run`: messages in the output of a program reach members.

Everything is real: the hub is a process, `tieline run` is a process with its own terminal, and the program runs in that
terminal.
"""

import shlex
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, wait_until
from tests.cli.program_talk import bash, bodies, fence, waiting
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("said", "screen", "sent"),
    [
        pytest.param("->relay:{bob} <<<\nhello\n  there>>>\n", "", ["hello\n  there"], id="fenced"),
        pytest.param('[[RELAY]]\n{{"to":"{bob}","type":"message","body":"hi"}}\n[[/RELAY]]\n', "", ["hi"], id="block"),
        pytest.param("\\->relay:{bob} <<<\nhello>>>\n", "->relay:{bob} <<<\nhello>>>\n", [], id="escaped"),
        pytest.param("```\n->relay:{bob} <<<\nhello>>>\n```\n", None, [], id="in a code fence"),
        pytest.param("> ->relay:{bob} <<<\nhello>>>\n", None, [], id="quoted"),
        pytest.param("see ->relay:{bob} <<<\nhello>>>\n", None, [], id="not at the start of a line"),
        pytest.param("⏺ ->relay:{bob} <<<\nhello>>>\n", "⏺ \n", ["hello"], id="after a glyph"),
        pytest.param("\x1b[1m->relay:{bob} <<<\x1b[0m\nh\x1b[31mi\x1b[0m>>>\n", None, ["hi"], id="in colour"),
        pytest.param("->relay:AgentName <<<\nyour message>>>\n", None, [], id="placeholder"),
    ],
)
def test_a_program_is_heard_by_the_grammar_and_the_rest_is_untouched(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path, said: str, screen: str | None, sent: list[str]
) -> None:
    text = said.format(bob=bob)
    shown = text if screen is None else screen.format(bob=bob)
    if sent and screen is None:
        shown = "\x1b[1m\x1b[0m\x1b[31m\x1b[0m"
    (tmp_path / "said").write_text(f"before\n{text}after\n")
    with at_terminal(hub.home, "--as", alice, "--", "cat", str(tmp_path / "said")) as person:
        assert person.leaves() == 0
        assert person.everything().decode() == f"before\n{shown}after\n".replace("\n", "\r\n")
    assert bodies(hub, bob) == sent
    assert {message.sender for message in waiting(hub, bob)} <= {alice}


def test_what_is_no_instruction_reaches_the_terminal_byte_for_byte(hub: HubProcess, alice: str, tmp_path: Path) -> None:
    every = bytes(range(256)) * 64 + b"\n\x1b[31mred\x1b[0m\xe2\x97" + "⏺ é\n".encode() * 2000 + b"no line end"
    (tmp_path / "every").write_bytes(every)
    script = f"stty -opost; cat {tmp_path / 'every'}"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
        assert person.everything() == every


def test_instructions_arrive_in_the_order_they_were_said(hub: HubProcess, alice: str, bob: str) -> None:
    script = f"for i in {{1..300}}; do printf '%s\\n' '->relay:{bob} <<<' $i'>>>'; done"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
    assert bodies(hub, bob) == [str(number) for number in range(1, 301)]


def test_kind_thread_and_data_come_along(hub: HubProcess, alice: str, bob: str) -> None:
    block = f'[[RELAY]]{{"to":"{bob}","type":"action","data":{{"n":1}},"thread":"t"}}[[/RELAY]]'
    script = f"echo {shlex.quote(block)}; {fence(bob, 'hm', '[thread:web:t1] ').replace('relay', 'thinking')}"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
    action, thought = waiting(hub, bob)
    assert (action.body, action.thread, action.kind) == ('{"n":1}', "t", "chat")
    assert action.data == {"kind": "action", "n": 1}
    assert (thought.body, thought.data, thought.thread) == ("hm", {"kind": "thinking"}, "web:t1")
    assert thought.kind == "status"


def test_a_refused_instruction_is_told_on_one_line_and_the_program_goes_on(
    hub: HubProcess, alice: str, bob: str
) -> None:
    script = f"{fence('nobody-here', 'x')}; {fence(bob, 'still')}; read -r line; echo got:$line; exit 3"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees("tieline: not sent to @nobody-here: no member is called 'nobody-here'")
        person.type("on\r")
        person.sees("got:on")
        assert person.leaves() == 3
    assert bodies(hub, bob) == ["still"]


def test_what_was_not_told_yet_is_told_after_the_program(hub: HubProcess, alice: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(fence("nobody-here", "x"))) as person:
        assert person.leaves() == 0
        assert b"tieline: not sent to @nobody-here:" in person.everything()


def test_a_program_is_not_its_own_correspondent(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("sub", "#ours", "--as", alice)
    hub.cli("sub", "#ours", "--as", bob)
    script = f"{fence(alice, 'me')}; {fence('*', 'all')}; {fence('#ours', 'some')}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees(f"tieline: not sent to @{alice}: that is this program itself")
        wait_until(lambda: bodies(hub, bob) == ["all", "some"], "the broadcasts")
        hub.send(bob, f"@{alice}", "last")
        person.sees("last")
        assert b"\r\n  all" not in person.seen
        assert b"\r\n  some" not in person.seen
        person.type("\r")
        assert person.leaves() == 0


@pytest.mark.parametrize("line", ["->relay:spawn Worker claude <<<", "->relay:release Worker"])
def test_starting_and_ending_agents_is_not_offered_and_a_line_says_so(hub: HubProcess, alice: str, line: str) -> None:
    word = line.split(":")[1].split(maxsplit=1)[0]
    script = f"printf '%s\\n' {shlex.quote(line)} 'a task>>>' {shlex.quote(line)}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees(f"tieline: '->relay:{word}' is not offered here")
        person.type("\r")
        assert person.leaves() == 0
        assert person.everything().count(b"is not offered") == 1


def test_a_project_in_a_target_is_refused_rather_than_guessed(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(fence(f"web:{bob}", "x"))) as person:
        assert person.leaves() == 0
        assert b"there are no projects here" in person.everything()
    assert bodies(hub, bob) == []


def test_a_program_may_wait_for_the_acknowledgement(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(f"{fence(bob, 'look', '[await] ')}; read -r line")) as person:
        wait_until(lambda: bodies(hub, bob) == ["look"], "the message")
        hub.cli("drain", "--as", bob)
        person.sees(f"tieline: @{bob} acknowledged 'look' after ")
        person.type("\r")
        assert person.leaves() == 0


def test_waiting_for_an_acknowledgement_ends_in_time(hub: HubProcess, alice: str, bob: str) -> None:
    script = f"{fence(bob, 'look', '[await:1s] ')}; {fence('*', 'all', '[await] ')}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees("tieline: not sent to *: [await] waits for one member")
        person.sees(f"tieline: @{bob} did not acknowledge 'look' within 1 s; it is pending")
        person.type("\r")
        assert person.leaves() == 0
    assert bodies(hub, bob) == ["look"], "the message itself stays"


def test_a_tieline_in_the_program_speaks_as_the_same_member(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(f"{TIELINE} send @{bob} hi")) as person:
        assert person.leaves() == 0
    assert [(message.sender, message.body) for message in waiting(hub, bob)] == [(alice, "hi")]
