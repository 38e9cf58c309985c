"""The extractor: one test per rule of its grammar, then any chunking, garbage, and linear work."""

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.protocols.agent_relay.extractor import (
    BYTES_MAX,
    LINES_MAX,
    Declined,
    Extracted,
    Extractor,
    Output,
    Passed,
)
from tieline.protocols.agent_relay.instruction import GLYPHS, PLACEHOLDERS, Instruction

FENCE = b"->relay:bob <<<\nhello>>>\n"
HELLO = Instruction(to="bob", body="hello")


def joined(outputs: Iterable[Output]) -> list[Output]:
    """Join neighbouring pieces of passed bytes, so that only their order with instructions counts."""
    result: list[Output] = []
    for output in outputs:
        if isinstance(output, Passed) and result and isinstance(result[-1], Passed):
            result[-1] = Passed(result[-1].data + output.data)
        else:
            result.append(output)
    return result


def outputs_of(*chunks: bytes, extractor: Extractor | None = None) -> list[Output]:
    extractor = extractor or Extractor()
    outputs = [output for chunk in chunks for output in extractor.receive_data(chunk)]
    return joined(outputs + extractor.receive_eof())


def extract(*chunks: bytes) -> tuple[bytes, list[Instruction]]:
    """Give what reaches the terminal, and what is sent."""
    outputs = outputs_of(*chunks)
    passed = b"".join(output.data for output in outputs if isinstance(output, Passed))
    return passed, [output.instruction for output in outputs if isinstance(output, Extracted)]


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream at the given places, so that the pieces joined are the stream."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


def passes(stream: bytes) -> bool:
    """Tell whether a stream sends nothing and reaches the terminal unchanged."""
    return extract(stream) == (stream, [])


# The fenced form


def test_a_fence_is_sent_and_its_text_is_consumed() -> None:
    assert extract(b"before\n" + FENCE + b"after\n") == (b"before\nafter\n", [HELLO])


def test_the_order_of_output_and_instructions_is_kept() -> None:
    assert outputs_of(b"a\n" + FENCE + b"b\n") == [Passed(b"a\n"), Extracted(HELLO), Passed(b"b\n")]


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
    assert passes(f"->relay:{target} <<<\nhi>>>\n".encode())


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
    assert passes(f"->relay:bob {tags} <<<\nhi>>>\n".encode())


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
    assert passes(line + b"\nhi>>>\n")


@pytest.mark.parametrize("name", [*sorted(PLACEHOLDERS), "AgentName", "TARGET"])
def test_a_placeholder_target_sends_nothing(name: str) -> None:
    assert passes(f"->relay:{name} <<<\nyour message>>>\n".encode())
    assert passes(f'[[RELAY]]{{"to":"{name}","type":"message","body":"x"}}[[/RELAY]]\n'.encode())


def test_an_empty_body_sends_nothing() -> None:
    assert passes(b"->relay:bob <<<\n\n  >>>\n")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"->relay:spawn bob claude <<<", "spawn"),
        ("⏺ ->relay:spawn bob claude 'do it'".encode(), "spawn"),
        (b"->relay:release bob", "release"),
    ],
)
def test_starting_and_ending_agents_is_output_and_told_of(line: bytes, word: str) -> None:
    assert outputs_of(b"a\n" + line + b"\nb\n") == [Passed(b"a\n" + line), Declined(word), Passed(b"\nb\n")]
    assert passes(b"```\n" + line + b"\n```\n"), "not in a code fence"


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
    assert passes(b"[[RELAY]]\n" + text.encode() + b"\n[[/RELAY]]\nmore\n")


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
    assert passes(b'see [[RELAY]]{"to":"bob","type":"message","body":"x"}[[/RELAY]]\n')


def test_a_block_ends_at_the_end_of_a_line_only() -> None:
    assert passes(b'[[RELAY]]{"to":"bob","type":"message","body":"x"}[[/RELAY]] and more\n')


# The start of a line


@pytest.mark.parametrize("prefix", ["  ", "\t", "● ", "⏺ ", "• ", "│ ", "\u276f ", "│ ⏺  ", "●"])
def test_spaces_and_five_glyphs_before_a_start_are_skipped(prefix: str) -> None:
    passed, sent = extract(prefix.encode() + FENCE + b"after\n")
    assert sent == [HELLO]
    assert passed == prefix.encode() + b"\nafter\n", "what stands before a start stays, on its line"


@pytest.mark.parametrize(
    "prefix", ["> ", "- ", "* ", "# ", "$ ", "% ", "→ ", "➜ ", "\u203a ", "» ", "◆ ", "1. ", "x", "`"]
)
def test_no_other_sign_before_a_start_is_skipped(prefix: str) -> None:
    assert passes(prefix.encode() + FENCE)


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
    assert passes(mark + b"\n" + FENCE + b"\\->relay:x\n" + closing + b"\n")
    assert extract(mark + b"\n" + FENCE + closing + b"\n" + FENCE)[1] == [HELLO], "after it everything is"


def test_a_code_fence_is_closed_by_its_own_mark_only() -> None:
    assert passes(b"````\n```\n" + FENCE + b"~~~~\n" + FENCE + b"````\n")


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
    assert passes(text)


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
    assert passes(b"\x1b]0;\n->relay:bob <<<\nhello>>>\n\x07done\n")


def test_invalid_utf8_passes_unchanged_and_is_replaced_in_bodies() -> None:
    assert passes(b"\xff\xfe \xe2\x97\n\xe2->relay:bob <<<\n")
    assert extract(b"\xff\n->relay:bob <<<\na\xffb>>>\n") == (b"\xff\n", [Instruction(to="bob", body="a\ufffdb")])


# What never ends


def test_an_unterminated_fence_is_given_back_at_the_end() -> None:
    assert passes(b"->relay:bob <<<\nhello\nbye\n")


def test_the_end_of_the_output_ends_the_last_line() -> None:
    assert extract(FENCE.rstrip()) == (b"", [HELLO])


def test_a_fence_of_too_many_lines_is_given_back_and_the_next_is_sent() -> None:
    long = b"->relay:amy <<<\n" + b"line\n" * 4
    assert outputs_of(long + FENCE, extractor=Extractor(lines_max=3)) == [Passed(long), Extracted(HELLO)]


def test_a_fence_of_too_many_bytes_is_given_back_and_the_next_is_sent() -> None:
    long = b"->relay:amy <<<\n" + b"x" * 200 + b"\n"
    assert outputs_of(long + FENCE, extractor=Extractor(bytes_max=100)) == [Passed(long), Extracted(HELLO)]


def test_a_header_that_is_too_long_starts_nothing() -> None:
    assert passes(b"->relay:bob" + b" " * 600 + b"<<<\nhi>>>\n")


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
    assert passes(b"\x1b[5;40H" + FENCE)
    assert passes(b"\x1b[12G" + FENCE)
    assert extract(b"\x1b[5;1H" + FENCE)[1] == [HELLO]


# The page for users


def test_the_page_for_users_has_every_placeholder_glyph_and_limit() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page.lower() for name in PLACEHOLDERS)
    assert all(f"`{glyph}`" in page for glyph in GLYPHS)
    assert f"{LINES_MAX} lines and {BYTES_MAX // 1024} KiB" in page
    assert "counts as a redraw and is *not* sent again" in page


# Any chunking, garbage, and linear work

pieces = st.sampled_from(
    [
        *(b"->relay:", b"->thinking:", b"bob", b" ", b" <<<", b">>>", b"\\", b"\n", b"\r\n", b"\r", b"[[RELAY]]"),
        *(b'{"to":"bob","type":"message","body":"hi"}', b"[[/RELAY]]", b"```", b"~~~", b"[await]", b"[thread:a:b]"),
        *(
            b"\x1b[1m",
            b"\x1b]0;t",
            b"\x07",
            b"\x1b\\",
            b"\x1b[A",
            b"\x1b[G",
            b"\x1b[2C",
            b"\x1b[?1049h",
            b"\x1b[?1049l",
        ),
        *(b"->relay:spawn x", b"->relay:release", b"<<<", b"[[RELAY]]{", b'{"a":', b"\\->relay:", b"\x1b[2J", b"\x1bc"),
        *(b"\x1b", b"[", b"-", b"text", b"\xe2", "⏺ ".encode(), "│".encode(), b"\xff", b"\t", b"\x1b[5;9H", FENCE),
    ]
)
streams = st.lists(st.one_of(pieces, st.binary(max_size=4)), max_size=40).map(b"".join)


@given(streams, st.lists(st.integers(min_value=0), max_size=30))
def test_any_chunking_gives_the_same_as_the_whole(stream: bytes, cuts: list[int]) -> None:
    assert outputs_of(*split(stream, cuts)) == outputs_of(stream)


@given(streams)
def test_byte_by_byte_gives_the_same_as_the_whole(stream: bytes) -> None:
    assert outputs_of(*(stream[index : index + 1] for index in range(len(stream)))) == outputs_of(stream)


@given(streams, st.lists(st.integers(min_value=0), max_size=10))
def test_limits_fall_at_the_same_byte_however_the_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    def small() -> Extractor:
        return Extractor(lines_max=2, bytes_max=30)

    assert outputs_of(*split(stream, cuts), extractor=small()) == outputs_of(stream, extractor=small())


@given(streams, st.lists(st.integers(min_value=0), max_size=10))
def test_when_a_program_is_quiet_changes_what_is_shown_and_never_what_is_sent(stream: bytes, cuts: list[int]) -> None:
    extractor = Extractor()
    outputs: list[Output] = []
    for chunk in split(stream, cuts):
        outputs += extractor.receive_data(chunk) + extractor.flush()
    outputs += extractor.receive_eof()
    sent = [output for output in outputs if isinstance(output, Extracted)]
    assert sent == [output for output in outputs_of(stream) if isinstance(output, Extracted)]


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=10))
def test_garbage_without_marks_passes_unchanged(garbage: bytes, cuts: list[int]) -> None:
    assert extract(*split(garbage, cuts)) == (garbage, [])


@given(streams)
def test_without_an_instruction_only_the_backslashes_of_escaped_starts_are_missing(stream: bytes) -> None:
    passed, sent = extract(stream)
    if not sent:
        assert passed.replace(b"\\", b"") == stream.replace(b"\\", b"")


# Lines that no rule of the grammar touches: what people and programs print.
words = st.text(st.sampled_from("ab \t->relay:<[]{}é漢⏺│\x00\x07\x7f$#*\"'"), max_size=20)
plain_lines = words.map(lambda text: f"x{text}\n".encode())
# Bodies without a start, an end or a code fence of their own, and without what is taken out of bodies.
body_lines = st.text(st.sampled_from("abc é漢,.:;{}[]()#*!?\"'=+/|_@&%$0129"), min_size=1, max_size=30)
body_texts = st.lists(body_lines, min_size=1, max_size=4).map("\n".join).map(str.strip).filter(bool)
names = st.sampled_from(["bob", "*", "#general", "codex-1", "a.b_c"])


@st.composite
def scripts(draw: st.DrawFn) -> tuple[bytes, bytes, list[Instruction]]:
    """A stream with what must pass and what must be sent, by construction."""
    stream, passed, sent = bytearray(), bytearray(), []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["plain", "fence", "block", "escaped", "in code"]))
        to, body = draw(names), draw(body_texts)
        match kind:
            case "plain":
                line = draw(plain_lines)
                stream += line
                passed += line
            case "fence":
                stream += f"->relay:{to} <<<\n{body}>>>\n".encode()
                sent.append(Instruction(to=to, body=body))
            case "block":
                block = msgspec.json.encode({"to": to, "type": "message", "body": body})
                stream += b"[[RELAY]]\n" + block + b"\n[[/RELAY]]\n"
                sent.append(Instruction(to=to, body=body))
            case "escaped":
                stream += f"\\->relay:{to} <<<\n".encode()
                passed += f"->relay:{to} <<<\n".encode()
            case _:
                code = f"```\n->relay:{to} <<<\n{body}>>>\n```\n".encode()
                stream += code
                passed += code
    return bytes(stream), bytes(passed), sent


@given(scripts(), st.lists(st.integers(min_value=0), max_size=30))
def test_what_passes_and_what_is_sent_is_what_was_written(
    script: tuple[bytes, bytes, list[Instruction]], cuts: list[int]
) -> None:
    stream, passed, sent = script
    assert extract(*split(stream, cuts)) == (passed, sent)


@given(streams, st.lists(st.tuples(st.integers(min_value=0), st.booleans()), max_size=20))
def test_nothing_is_passed_that_was_not_printed_and_in_no_other_order(
    stream: bytes, cuts: list[tuple[int, bool]]
) -> None:
    extractor = Extractor()
    outputs: list[Output] = []
    flushes = [flush for _, flush in cuts] or [False]
    for index, chunk in enumerate(split(stream, [cut for cut, _ in cuts])):
        outputs += extractor.receive_data(chunk)
        if flushes[index % len(flushes)]:
            outputs += extractor.flush()
    outputs += extractor.receive_eof()
    rest = iter(stream)
    passed = b"".join(output.data for output in outputs if isinstance(output, Passed))
    assert all(byte in rest for byte in passed), "what passes is what came, with parts of it missing"
    assert not extractor.flush()


def seconds(work: Callable[[], object]) -> float:
    """Time the better of two runs by this thread's own clock, to see the work and not the machine's other business."""
    times = []
    for _ in range(2):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)


ADVERSARIES = {
    "plain lines": b"the quick brown fox\n",
    "line ends": b"\n",
    "starts that are not": b"->relay:bo",
    "starts that never end": b"->relay:bob <<<\n",
    "one fence of one line": b"x",
    "end marks in one line": b">>> ",
    "escaped end marks": b"\\>>>\n",
    "blanks in a block": b" ",
    "open brackets": b"[",
    "parameters": b"1;",
    "escapes": b"\x1b",
    "colours in a header": b"\x1b[1m",
    "moves right": b"\x1b[999C",
    "redraws": b"\x1b[A->relay:b <<<\n",
    "backticks": b"`",
    "torn glyphs": b"\xe2\x97",
    "prefixes": "⏺ ".encode(),
    "backslashes": b"\\",
    "line without an end": b"the quick brown fox ",
    "opening marks": b"<<<",
    "opening marks in a header": b"<<<",
    "opening marks in a body": b"<<<\n",
    "block starts": b"[[RELAY]]\n",
    "block starts that go on": b'[[RELAY]]{"a":\n',
    "nested objects": b'{"a":',
    "nested lists in lines": b"[\n",
    "code fences": b"```\n",
    "code fences in a body": b"```\n",
    "coloured text": b"\x1b[31mred\x1b[0m ",
    "titles": b"\x1b]0;title\x07",
    "titles that never end": b"\x1b]0;",
    "cursor moves": b"\x1b[5;9H\x1b[G",
    "returns": b"50%\r",
    "spawns": b"->relay:spawn x\n",
    "long headers": b"->relay:bob" + b" " * 501,
}
LEADS = {
    "one fence of one line": b"->relay:bob <<<\n",
    "end marks in one line": b"->relay:bob <<<\n",
    "escaped end marks": b"->relay:bob <<<\n",
    "blanks in a block": b"[[RELAY]]",
    "parameters": b"\x1b[",
    "colours in a header": b"->relay:b",
    "moves right": b"->relay:bob <<<\n",
    "opening marks in a header": b"->relay:bob ",
    "opening marks in a body": b"->relay:bob <<<\n",
    "nested objects": b'[[RELAY]]\n{"to":"bob","type":"message","data":',
    "nested lists in lines": b'[[RELAY]]\n{"to":"bob","type":"message","data":',
    "code fences in a body": b"->relay:bob <<<\n",
}
# And what comes after, so that what was collected is read.
TAILS = {"nested objects": b"\n[[/RELAY]]\n", "nested lists in lines": b"\n[[/RELAY]]\n"}


@pytest.mark.parametrize("chunk_bytes", [1, 65536])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_the_work_grows_linearly_with_the_bytes(name: str, chunk_bytes: int) -> None:
    def work(count: int) -> None:
        repeated = ADVERSARIES[name] * (count // len(ADVERSARIES[name]))
        stream = LEADS.get(name, b"") + repeated + TAILS.get(name, b"")
        extractor = Extractor(lines_max=10**9, bytes_max=10**9)
        for start in range(0, len(stream), chunk_bytes):
            extractor.receive_data(stream[start : start + chunk_bytes])
        extractor.receive_eof()

    small, large = seconds(lambda: work(2_000)), seconds(lambda: work(32_000))
    # 16 times the bytes; quadratic work would take 256 times as long.
    assert large < 64 * small


@pytest.mark.slow
@pytest.mark.parametrize("name", ADVERSARIES)
def test_any_amount_of_anything_passes_with_bounded_memory(name: str) -> None:
    stream = LEADS.get(name, b"") + ADVERSARIES[name] * (2**17 // len(ADVERSARIES[name]))
    extractor = Extractor(bytes_max=2**14)
    passed = 0
    for start in range(0, len(stream), 4096):
        outputs = extractor.receive_data(stream[start : start + 4096])
        passed += sum(len(output.data) for output in outputs if isinstance(output, Passed))
        held = start + 4096 - passed
        assert held <= 2**14 + 8192
    passed += sum(len(output.data) for output in extractor.receive_eof() if isinstance(output, Passed))
    assert passed == len(stream)
