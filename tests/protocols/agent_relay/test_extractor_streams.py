"""Tests of the extractor (finds messages in a program's output) with any chunks, garbage and hostile output."""

import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.agent_relay.extracts import FENCE, extract, outputs_of, split
from tieline.protocols.agent_relay.extractor import Extractor
from tieline.wire.extractor import Extracted, Instruction, Output, Passed

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
        *(b"<", b"<thinking>", b"</thinking>", b"thinking>", "✦ ".encode(), b"> ", b"[?25l", b"?2", b"2K", b";"),
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
    """Generate a stream.

    Return it with the bytes that must pass to the terminal, and the messages that must be sent.
    """
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
    """Return the processor time of this thread for `work`: the less of two runs, because other processes disturb."""
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


@pytest.mark.parametrize("chunk_bytes", [pytest.param(1, marks=pytest.mark.slow), 65536])
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
