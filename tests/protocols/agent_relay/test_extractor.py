"""Tests of the extractor (finds messages in a program's output): each rule of the grammar, line by line."""

from pathlib import Path

import msgspec
import pytest

from tests.protocols.agent_relay.extracts import FENCE, HELLO, extract, is_unchanged, joined, outputs_of
from tieline.protocols.agent_relay.extractor import BYTES_MAX, LINES_MAX, Extractor
from tieline.protocols.agent_relay.instruction import GLYPHS, PLACEHOLDERS
from tieline.wire.extractor import Declined, Extracted, Instruction, Passed

# The fenced form


def test_a_fence_is_sent_and_its_text_is_consumed() -> None:
    assert extract(b"before\n" + FENCE + b"after\n") == (b"before\nafter\n", [HELLO])


def test_the_order_of_output_and_instructions_is_kept() -> None:
    assert outputs_of(b"a\n" + FENCE + b"b\n") == [Passed(b"a\n"), Extracted(HELLO), Passed(b"b\n")]


@pytest.mark.parametrize("before", [b"quoted: ", b"> ", b"x\r\ny"])
def test_text_behind_other_text_is_not_sent_wherever_a_terminal_cuts_the_line(before: bytes) -> None:
    printed = before + FENCE
    for cut in range(len(printed)):
        assert extract(printed[:cut], printed[cut:]) == (printed, [])


def test_a_body_has_any_number_of_lines_and_is_trimmed() -> None:
    _, sent = extract(b"->relay:bob <<<\n\n  one\n\n\n\n  two  \n\n>>>\n")
    assert [instruction.body for instruction in sent] == ["one\n\n\n\n  two"]


def test_two_blank_lines_do_not_end_a_body() -> None:
    assert extract(b"->relay:bob <<<\na\n\n\nb>>>\n")[1] == [Instruction(to="bob", body="a\n\n\nb")]


def test_the_end_mark_stands_at_the_end_of_a_line() -> None:
    body = b">>> print(1)\nx >>> y\n"
    assert extract(b"->relay:bob <<<\n" + body + b"end>>> \t\n")[1] == [
        Instruction(to="bob", body=">>> print(1)\nx >>> y\nend")
    ]


def test_an_end_mark_after_a_bracket_leaves_the_bracket_in_the_body() -> None:
    assert extract(b"->relay:bob <<<\n<b>hi</b>>>>\n")[1] == [Instruction(to="bob", body="<b>hi</b>")]


def test_escaped_marks_in_a_body_do_not_end_it_and_lose_their_backslash() -> None:
    assert extract(b"->relay:bob <<<\nopen \\<<<\nclose \\>>>\nend>>>\n")[1] == [
        Instruction(to="bob", body="open <<<\nclose >>>\nend")
    ]


def test_an_escaped_start_in_a_body_loses_its_backslash() -> None:
    assert extract(b"->relay:bob <<<\nwrite\n  \\->relay:amy <<<\n\\[[RELAY]]\nso>>>\n")[1] == [
        Instruction(to="bob", body="write\n  ->relay:amy <<<\n[[RELAY]]\nso")
    ]


@pytest.mark.parametrize(
    ("target", "project", "to"),
    [("*", None, "*"), ("#general", None, "#general"), ("web:bob", "web", "bob"), ("codex-1", None, "codex-1")],
)
def test_a_target_is_a_name_everybody_or_a_channel_with_its_project(target: str, project: str | None, to: str) -> None:
    assert extract(f"->relay:{target} <<<\nhi>>>\n".encode())[1] == [Instruction(to=to, body="hi", project=project)]


@pytest.mark.parametrize("target", ["", "a b", "-a", "a:b:c", "é", "**", "#", "x" * 129, "../a", "a,b"])
def test_what_is_no_target_starts_nothing(target: str) -> None:
    assert is_unchanged(f"->relay:{target} <<<\nhi>>>\n".encode())


def test_thinking_is_a_kind() -> None:
    assert extract(b"->thinking:bob <<<\nhmm>>>\n")[1] == [Instruction(to="bob", body="hmm", kind="thinking")]


@pytest.mark.parametrize(
    ("tag", "milliseconds"), [("await", None), ("await:30s", 30_000), ("await:5m", 300_000), ("await:1h", 3_600_000)]
)
def test_an_await_tag_says_how_long_the_program_waits(tag: str, milliseconds: int | None) -> None:
    assert extract(f"->relay:bob [{tag}] <<<\nhi>>>\n".encode())[1] == [
        Instruction(to="bob", body="hi", awaits=True, await_ms=milliseconds)
    ]


def test_a_thread_tag_names_a_thread_and_perhaps_its_project() -> None:
    assert extract(b"->relay:bob [thread:t1] <<<\nhi>>>\n")[1] == [Instruction(to="bob", body="hi", thread="t1")]
    assert extract(b"->relay:bob [thread:web:t1][await] <<<\nhi>>>\n")[1] == [
        Instruction(to="bob", body="hi", thread="t1", thread_project="web", awaits=True)
    ]


@pytest.mark.parametrize(
    "tags", ["[urgent]", "[await:0s]", "[await:5]", "[await] [await]", "[thread:]", "[]", "[await", "await]", "please"]
)
def test_anything_but_known_tags_before_the_opening_mark_starts_nothing(tags: str) -> None:
    assert is_unchanged(f"->relay:bob {tags} <<<\nhi>>>\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        b"->relay:bob hello",
        b"->relay:bob <<<hello>>>",
        b"->relay:bob <<< hello",
        b"->relay:bob<<<",
        b"->relay:bob",
        b"-> relay:bob <<<",
        b"->RELAY:bob <<<",
        b'->relay.json:{"to":"bob","type":"message","body":"x"}',
        b"->relay:spawn bob claude <<<",
    ],
)
def test_the_opening_mark_ends_its_line_and_there_is_no_one_line_form(line: bytes) -> None:
    assert is_unchanged(line + b"\nhi>>>\n")


@pytest.mark.parametrize("name", [*sorted(PLACEHOLDERS), "AgentName", "TARGET"])
def test_a_placeholder_target_sends_nothing(name: str) -> None:
    assert is_unchanged(f"->relay:{name} <<<\nyour message>>>\n".encode())
    assert is_unchanged(f'[[RELAY]]{{"to":"{name}","type":"message","body":"x"}}[[/RELAY]]\n'.encode())


def test_an_empty_body_sends_nothing() -> None:
    assert is_unchanged(b"->relay:bob <<<\n\n  >>>\n")


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (b"->relay:spawn bob claude <<<", "->relay:spawn"),
        ("⏺ ->relay:spawn bob claude 'do it'".encode(), "->relay:spawn"),
        (b"->relay:release bob", "->relay:release"),
    ],
)
def test_starting_and_ending_agents_is_output_and_told_of(line: bytes, written: str) -> None:
    assert outputs_of(b"a\n" + line + b"\nb\n") == [Passed(b"a\n" + line), Declined(written), Passed(b"\nb\n")]
    assert is_unchanged(b"```\n" + line + b"\n```\n"), "not in a code fence"


@pytest.mark.parametrize("line", [b"->relay:spawn", b"->relay:spawned x", b"x ->relay:spawn y", b"->thinking:spawn x"])
def test_nothing_else_is_told_of(line: bytes) -> None:
    assert outputs_of(line + b"\n") == [Passed(line + b"\n")]


def test_a_member_may_be_called_spawn() -> None:
    assert extract(b"->relay:spawn <<<\nhi>>>\n")[1] == [Instruction(to="spawn", body="hi")]


# The block form


def test_a_block_on_lines_of_its_own_is_sent() -> None:
    block = b'[[RELAY]]\n{"to": "*", "type": "message",\n "body": "Hello everyone"}\n[[/RELAY]]\n'
    assert extract(b"a\n" + block + b"b\n") == (b"a\nb\n", [Instruction(to="*", body="Hello everyone")])


def test_a_block_on_one_line_is_sent_with_all_it_says() -> None:
    block = (
        '[[RELAY]]{"to":"web:bob","type":"state","text":"é","data":{"n":1},"thread":"t","more":0}[[/RELAY]]\n'
    ).encode()
    assert extract(block) == (
        b"",
        [Instruction(to="bob", body="é", kind="state", project="web", thread="t", data={"n": 1})],
    )


def test_a_block_with_data_needs_no_body() -> None:
    assert extract(b'[[RELAY]]{"to":"bob","type":"action","data":{"n":1}}[[/RELAY]]\n')[1] == [
        Instruction(to="bob", body="", kind="action", data={"n": 1})
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"to":"bob","type":"message","body":"x"',
        '{"to":"bob","body":"x"}',
        '{"type":"message","body":"x"}',
        '{"to":"bob","type":"shout","body":"x"}',
        '{"to":"bob","type":"message","body":" "}',
        '{"to":"bob","type":"message"}',
        '{"to":1,"type":"message","body":"x"}',
        '{"to":"bob","type":"message","body":"x","data":[]}',
        '{"to":"not a name","type":"message","body":"x"}',
        '[{"to":"bob"}]',
        "",
        '{"data":' + "[" * 100_000,
        '{"to":"bob","type":"message","data":' + '{"a":' * 257 + "1" + "}" * 258,
    ],
)
def test_a_block_that_does_not_fit_is_output(text: str) -> None:
    assert is_unchanged(b"[[RELAY]]\n" + text.encode() + b"\n[[/RELAY]]\nmore\n")


@pytest.mark.parametrize("depth", [200, 500, 800, 900, *range(930, 1000, 3)])
def test_a_block_is_sent_or_output_however_deep_it_is_and_wherever_it_is_read(depth: int) -> None:
    block = b'[[RELAY]]{"to":"bob","type":"action","data":' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
    passed, sent = extract(block + b"[[/RELAY]]\n")
    assert bool(passed) != bool(sent)
    for instruction in sent:
        assert msgspec.json.decode(msgspec.json.encode(instruction), type=Instruction) == instruction


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-1e400", "1e-400", "1E+30", "0.1", "-0"])
def test_any_number_in_a_block_is_sent_or_output(number: str) -> None:
    passed, sent = extract(f'[[RELAY]]{{"to":"bob","type":"action","data":{{"n":{number}}}}}[[/RELAY]]\n'.encode())
    assert bool(passed) != bool(sent)


def test_a_block_starts_at_the_start_of_a_line_only() -> None:
    assert is_unchanged(b'see [[RELAY]]{"to":"bob","type":"message","body":"x"}[[/RELAY]]\n')


def test_a_block_ends_at_the_end_of_a_line_only() -> None:
    assert is_unchanged(b'[[RELAY]]{"to":"bob","type":"message","body":"x"}[[/RELAY]] and more\n')


# The start of a line


@pytest.mark.parametrize("prefix", ["  ", "\t", "● ", "⏺ ", "• ", "│ ", "\u276f ", "│ ⏺  ", "●", "✦ "])
def test_spaces_and_glyphs_before_a_start_are_skipped(prefix: str) -> None:
    passed, sent = extract(prefix.encode() + FENCE + b"after\n")
    assert sent == [HELLO]
    assert passed == prefix.encode() + b"\nafter\n", "what stands before a start stays, on its line"


@pytest.mark.parametrize(
    "prefix", ["> ", "- ", "* ", "# ", "$ ", "% ", "→ ", "➜ ", "\u203a ", "» ", "◆ ", "1. ", "x", "`"]
)
def test_no_other_sign_before_a_start_is_skipped(prefix: str) -> None:
    assert is_unchanged(prefix.encode() + FENCE)


@pytest.mark.parametrize(
    "prefix", [b"\x1b[1;32m", b"\x1b]0;title\x07", b"\x1b]8;;x\x1b\\", b"\x1b(B", b"\x1b[K\x1b[?25l"]
)
def test_escape_sequences_before_a_start_are_skipped_and_passed_on(prefix: bytes) -> None:
    assert extract(prefix + FENCE + b"after\n") == (prefix + b"after\n", [HELLO])


def test_a_line_may_begin_after_a_carriage_return_alone() -> None:
    assert extract(b"working 50%\r" + FENCE) == (b"working 50%\r", [HELLO])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b"\r"])
def test_every_kind_of_line_end_ends_a_line(end: bytes) -> None:
    stream = end.join([b"a", b"->relay:bob <<<", b"one", b"", b"two>>>", b"b", b""])
    passed, sent = extract(stream)
    assert sent[0].body.split() == ["one", "two"]
    assert passed == end.join([b"a", b"b", b""])


def test_crlf_is_one_line_end_in_a_body() -> None:
    assert extract(b"->relay:bob <<<\r\none\r\n\r\ntwo>>>\r\n")[1] == [Instruction(to="bob", body="one\n\ntwo")]


# Code fences


@pytest.mark.parametrize("mark", [b"```", b"~~~", b"`````", b"  ```python", "⏺ ```".encode()])
def test_nothing_is_parsed_in_a_code_fence(mark: bytes) -> None:
    closing = mark.split(b"p")[0]
    assert is_unchanged(mark + b"\n" + FENCE + b"\\->relay:x\n" + closing + b"\n")
    assert extract(mark + b"\n" + FENCE + closing + b"\n" + FENCE)[1] == [HELLO], "after it everything is"


def test_a_code_fence_is_closed_by_its_own_mark_only() -> None:
    assert is_unchanged(b"````\n```\n" + FENCE + b"~~~~\n" + FENCE + b"````\n")


def test_backticks_in_prose_open_no_code_fence() -> None:
    assert extract(b"```not``` a fence\n" + FENCE)[1] == [HELLO]


def test_in_the_code_fence_of_a_body_nothing_starts_or_ends() -> None:
    code = b"```\n->relay:amy <<<\nmap<a, b<c>>>\n```"
    assert extract(b"->relay:bob <<<\n" + code + b">>>\n")[1] == [Instruction(to="bob", body=code.decode())]


# Escapes and control characters


@pytest.mark.parametrize("start", [b"->relay:", b"->thinking:", b"[[RELAY]]"])
def test_an_escaped_start_prints_without_its_backslash(start: bytes) -> None:
    assert extract(b"  \\" + start + b"bob <<<\nhello>>>\n") == (b"  " + start + b"bob <<<\nhello>>>\n", [])


@pytest.mark.parametrize("text", [b"\\->relax\n", b"\\\\->relay:bob <<<\n", b"a \\->relay:bob <<<\n", b"\\n\n", b"\\"])
def test_no_other_backslash_is_touched(text: bytes) -> None:
    assert is_unchanged(text)


def test_escape_sequences_are_stripped_from_bodies_and_still_reach_the_terminal() -> None:
    stream = b"\x1b[36m->re\x1b[1mlay:\x1b[0mbob <<<\nhe\x1b]0;t>>>\x07llo\x1b[0m>>>\x1b[K\n"
    assert extract(stream) == (b"\x1b[36m\x1b[1m\x1b[0m\x1b]0;t>>>\x07\x1b[0m\x1b[K", [HELLO])


def test_escape_sequences_in_the_strings_of_a_block_are_stripped() -> None:
    block = rb'[[RELAY]]{"to":"bob","type":"message","body":"\u001b[31mhel\u0007lo\u001b[0m"}[[/RELAY]]'
    assert extract(block)[1] == [HELLO]


def test_control_characters_are_taken_out_of_bodies() -> None:
    assert extract(b"->relay:bob <<<\nh\x00e\x08l\x7flo\xc2\x9b\tx>>>\n")[1] == [Instruction(to="bob", body="hello\tx")]


def test_a_cursor_moved_right_is_spaces() -> None:
    assert extract(b"->relay:bob\x1b[1C<<<\none\x1b[2Ctwo>>>\n")[1] == [Instruction(to="bob", body="one  two")]


@pytest.mark.parametrize("sequence", [b"\x1b[31", b"\x1b]0;title", b"\x1bP1$", b"\x1b(", b"\x1b"])
def test_a_sequence_that_is_cut_off_by_another_ends_there(sequence: bytes) -> None:
    assert extract(sequence + b"\x1b[0m\n" + FENCE) == (sequence + b"\x1b[0m\n", [HELLO])


def test_a_title_may_hold_a_start_and_sends_nothing() -> None:
    assert is_unchanged(b"\x1b]0;\n->relay:bob <<<\nhello>>>\n\x07done\n")


def test_invalid_utf8_passes_unchanged_and_is_replaced_in_bodies() -> None:
    assert is_unchanged(b"\xff\xfe \xe2\x97\n\xe2->relay:bob <<<\n")
    assert extract(b"\xff\n->relay:bob <<<\na\xffb>>>\n") == (b"\xff\n", [Instruction(to="bob", body="a\ufffdb")])


# Fences that never end


def test_an_unterminated_fence_is_given_back_at_the_end() -> None:
    assert is_unchanged(b"->relay:bob <<<\nhello\nbye\n")


def test_the_end_of_the_output_ends_the_last_line() -> None:
    assert extract(FENCE.rstrip()) == (b"", [HELLO])


def test_a_fence_of_too_many_lines_is_given_back_and_the_next_is_sent() -> None:
    long = b"->relay:amy <<<\n" + b"line\n" * 4
    assert outputs_of(long + FENCE, extractor=Extractor(lines_max=3)) == [Passed(long), Extracted(HELLO)]


def test_a_fence_of_too_many_bytes_is_given_back_and_the_next_is_sent() -> None:
    long = b"->relay:amy <<<\n" + b"x" * 200 + b"\n"
    assert outputs_of(long + FENCE, extractor=Extractor(bytes_max=100)) == [Passed(long), Extracted(HELLO)]


def test_a_header_that_is_too_long_starts_nothing() -> None:
    assert is_unchanged(b"->relay:bob" + b" " * 600 + b"<<<\nhi>>>\n")


def test_a_start_in_a_body_gives_back_what_it_interrupts() -> None:
    assert extract(b"->relay:amy <<<\nfor amy\n" + FENCE) == (b"->relay:amy <<<\nfor amy\n", [HELLO])
    block = b'  [[RELAY]]{"to":"bob","type":"message","body":"hello"}[[/RELAY]]\n'
    assert extract(b"->relay:amy <<<\nfor amy\n" + block) == (b"->relay:amy <<<\nfor amy\n", [HELLO])
    assert extract(b'[[RELAY]]{"to":\n' + FENCE) == (b'[[RELAY]]{"to":\n', [HELLO])


def test_a_placeholder_in_a_body_interrupts_nothing() -> None:
    assert extract(b"->relay:bob <<<\n->relay:AgentName <<<\nis how>>>\n")[1] == [
        Instruction(to="bob", body="->relay:AgentName <<<\nis how")
    ]


# The screen


@pytest.mark.parametrize(
    "prompt", [b"$ ", b"> ", "\u276f ".encode(), b"[user@host]$ ", b"-> ", b"Continue? [y/N] ", b"\\ "]
)
def test_a_prompt_without_a_line_end_is_passed_at_once(prompt: bytes) -> None:
    extractor = Extractor()
    assert joined(extractor.receive_data(prompt)) == [Passed(prompt)]
    assert extractor.next_timeout() is None


@pytest.mark.parametrize("held", [b"-", b"\\", b"[", b"->relay:bob", b"->relay:bob <<<\nhello", b"[[RELAY]]\n{"])
def test_what_may_become_an_instruction_is_held_until_the_program_is_quiet(held: bytes) -> None:
    extractor = Extractor()
    assert extractor.receive_data(held) == []
    assert extractor.next_timeout() is not None
    assert extractor.flush() == [Passed(held)]
    assert extractor.next_timeout() is None
    assert extractor.flush() == []


def test_an_instruction_shown_in_part_is_shown_whole_and_still_sent() -> None:
    extractor = Extractor()
    extractor.receive_data(FENCE[:18])
    shown = extractor.flush() + extractor.receive_data(FENCE[18:] + FENCE + b"after\n")
    assert joined(shown) == [
        *(Passed(FENCE[:-1]), Extracted(HELLO), Passed(b"\n")),
        *(Extracted(HELLO), Passed(b"after\n")),
    ]


def test_a_line_is_let_go_as_soon_as_it_cannot_become_an_instruction() -> None:
    extractor = Extractor()
    assert extractor.receive_data(b"->relay:bob ") == []
    assert extractor.receive_data(b"h") == [Passed(b"->relay:bob h")]
    assert extractor.receive_data(b"i <<<") == [Passed(b"i <<<")]


UP = b"\x1b[2K\x1b[1A\x1b[2K\x1b[G"


def test_a_program_that_draws_keeps_its_lines_on_the_screen() -> None:
    assert outputs_of(b"x\n" + UP + FENCE + b"y\n") == [
        Passed(b"x\n" + UP + FENCE[:-1]),
        Extracted(HELLO),
        Passed(b"\ny\n"),
    ]


def test_an_escaped_start_loses_its_backslash_on_a_drawn_screen_too() -> None:
    assert extract(UP + b"\\->relay:bob <<<\n") == (UP + b"->relay:bob <<<\n", [])


def test_a_redraw_in_a_body_gives_it_back_and_the_complete_drawing_is_sent() -> None:
    stream = b"->relay:bob <<<\nhel\n" + UP + UP + FENCE
    assert extract(stream) == (stream, [HELLO])


def test_what_is_drawn_again_is_marked_and_what_is_said_again_is_not() -> None:
    found = [output for output in outputs_of(FENCE + FENCE + UP + FENCE) if isinstance(output, Extracted)]
    assert [output.redrawn for output in found] == [False, False, True]


def test_nothing_is_extracted_on_the_alternate_screen() -> None:
    stream = b"\x1b[?1049h\x1b[H" + FENCE + b"\\->relay:\n```\n\x1b[?1049l\n"
    extractor = Extractor()
    assert joined(extractor.receive_data(stream[:-9])) == [Passed(stream[:-9])]
    assert extractor.alternate_screen
    assert joined(extractor.receive_data(stream[-9:])) == [Passed(stream[-9:])]
    assert not extractor.alternate_screen
    assert Extracted(HELLO) in extractor.receive_data(FENCE)


def test_a_start_placed_beside_other_text_is_not_at_the_start_of_a_line() -> None:
    assert is_unchanged(b"\x1b[5;40H" + FENCE)
    assert is_unchanged(b"\x1b[12G" + FENCE)
    assert extract(b"\x1b[5;1H" + FENCE)[1] == [HELLO]


# Programs' own ways


def test_gemini_prints_a_star_before_what_the_model_says() -> None:
    fence = "->relay:Lead <<<\nHere is my analysis:\n\n1. Update token validation\n2. Add refresh logic\n>>>\n"
    sent = Instruction(to="Lead", body="Here is my analysis:\n\n1. Update token validation\n2. Add refresh logic")
    for before in ("✦ ", "✦  ", "✦", "✦ Processing your request...\n✦ ", "$ ls -la\ntotal 48\n✦ ", "Done.\n"):
        printed = f"{before}{fence}✦ Ready for the next task.\n".encode()
        for cut in range(len(printed)):
            passed, found = extract(printed[:cut], printed[cut:])
            assert found == [sent]
            assert passed.endswith("✦ Ready for the next task.\n".encode())
    assert extract("✦ ->relay:* <<<\nall agents>>>\n".encode())[1] == [Instruction(to="*", body="all agents")]
    assert extract('✦ [[RELAY]]{"to":"bob","type":"message","body":"hello"}[[/RELAY]]\n'.encode())[1] == [HELLO]


def test_an_escape_sequence_that_lost_its_esc_is_skipped_before_a_start() -> None:
    for before in (b"[?25l[2K", b"[2K", b"[1;31m ", b"[?2026h\xe2\x8f\xba [0m"):
        printed = before + FENCE
        for cut in range(len(printed)):
            assert extract(printed[:cut], printed[cut:]) == (before + b"\n", [HELLO])
    for before in (b"[Agent ", b"[1] ", b"[?25", b"[" + b"0" * 40 + b"m", b"[2K]"):
        printed = before + FENCE
        for cut in range(len(printed)):
            assert extract(printed[:cut], printed[cut:]) == (printed, [])


THOUGHT = b"<thinking>\nLet me think.\n->relay:amy <<<\nnot yet>>>\n"


def test_a_thinking_block_is_shown_and_not_sent() -> None:
    printed = THOUGHT + b"</thinking>\n\n"
    for cut in range(len(printed)):
        assert extract(printed[:cut], printed[cut:] + FENCE) == (printed, [HELLO])
    for printed in (
        b"<thinking>->relay:amy <<<</thinking>\n",
        "⏺ ".encode() + THOUGHT + b"so much for that</thinking> and now:\n",
        b"<thinking>" + b"x" * 5000 + b"</thin\x1b[0mking>\n",
    ):
        assert extract(printed + FENCE) == (printed, [HELLO])


def test_only_a_block_at_the_start_of_a_line_is_a_thinking_block() -> None:
    for printed in (
        b"write <thinking> first\n",
        b"<thinking\n",
        b"<think>\n",
        b"< thinking>\n",
        b"```\n<thinking>\n```\n",
        b"</thinking>\n",
    ):
        for cut in range(len(printed)):
            assert extract(printed[:cut], printed[cut:] + FENCE) == (printed, [HELLO])
    # A pager shows a file.
    assert extract(b"\x1b[?1049h<thinking>\x1b[?1049l\n" + FENCE)[1] == [HELLO]
    assert extract(b"->relay:bob <<<\n<thinking>\nhello>>>\n")[1] == [Instruction(to="bob", body="<thinking>\nhello")]


@pytest.mark.parametrize("prompt", ["> ", ">", "\u276f run the tests", "│ > what now?  │", "\u203a "])
def test_a_thinking_block_that_is_never_closed_ends_at_the_next_prompt(prompt: str) -> None:
    printed = THOUGHT + prompt.encode() + b"\n"
    for cut in range(len(printed)):
        assert extract(printed[:cut], printed[cut:] + FENCE) == (printed, [HELLO])


@pytest.mark.slow
def test_a_thinking_block_that_is_never_closed_mutes_nobody() -> None:
    line = b"x" * 1023 + b"\n"
    assert is_unchanged(THOUGHT + line * 63 + FENCE)
    printed = THOUGHT + line * 64
    for size in (1, 1000, 65536):
        chunks = [printed[start : start + size] for start in range(0, len(printed), size)]
        assert extract(*chunks, FENCE) == (printed, [HELLO])
    # A program that addresses the screen prints no line ends.
    drawn = THOUGHT + (b"\x1b[5;9H" + b"x" * 1024) * 65 + b"\x1b[5;1H"
    assert extract(drawn + FENCE)[1] == [HELLO]


# The page for users


def test_the_page_for_users_has_every_placeholder_glyph_and_limit() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page.lower() for name in PLACEHOLDERS)
    assert all(f"`{glyph}`" in page for glyph in GLYPHS)
    assert f"{LINES_MAX} lines and {BYTES_MAX // 1024} KiB" in page
    assert "counts as a redraw and is *not* sent again" in page
