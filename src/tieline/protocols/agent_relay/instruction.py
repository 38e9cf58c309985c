r"""Instructions: functions that parse the messages which a terminal program prints in order to send them.

Used by: the extractor, which finds the lines in the output and documents the grammar. Uses: nothing. The extractor, and
not this module, handles escape sequences, line ends and output that comes in chunks.
"""

import re
from typing import Any, NamedTuple

import msgspec

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.message import nested_deeper
from tieline.wire.extractor import Instruction, Kind

PLACEHOLDERS = frozenset(
    {"agentname", "target", "recipient", "yourtarget", "targetagent", "someagent", "otheragent", "worker"}
)
"""Names, in lower case, that are only examples in explanations of the grammar. They are not valid targets."""

HEADER_BYTES_MAX = 512
"""Most bytes of the first line of an instruction (`->relay:… <<<`). Two names, two tags and some spaces fit into it."""

NESTING_MAX = DEFAULT_LIMITS.nesting_max
"""Most nesting levels of the data in a block (`[[RELAY]]…[[/RELAY]]`).

No hub accepts more, and the data must be encoded again to be sent.
"""

# Glyphs that programs print before a line of text: circle, record sign, bullet, box line, the angle of many prompts,
# and Gemini's star.
GLYPHS = "\u25cf\u23fa\u2022\u2502\u276f\u2726"

# spec 9
FENCE_END = b">>>"
BLOCK_START = b"[[RELAY]]"
BLOCK_END = b"[[/RELAY]]"
STARTS = (b"->relay:", b"->thinking:", BLOCK_START)

# An escape sequence without its ESC, such as `[?25l` or `[2K`. Text such as `[Agent` is not an escape sequence.
_BARE_ESCAPE = rb"\[[?0-9][0-9;]{0,30}+"
BARE_ESCAPE_SO_FAR = re.compile(_BARE_ESCAPE)

# No two ways to match the same bytes, so matching takes one pass for any input.
PREFIX = re.compile(
    b"(?:[ \t]++|" + b"|".join(glyph.encode() for glyph in GLYPHS) + b"|" + _BARE_ESCAPE + b"[A-Za-z])*"
)
HEADER_SO_FAR = re.compile(
    rb"->(?:relay|thinking):[^\s<>\[\]]*+(?:[ \t]++(?:\[[^\s\[\]]*+(?:\][ \t]*+|\Z))*(?:<{1,2}+\Z|<<<[ \t]*+)?)?"
)
"""Matches text that may become the first line of an instruction (`->relay:… <<<`) when more bytes come."""

DECLINED = re.compile(rb"->relay:(spawn|release)[ \t]++[^\s<\[]")
"""Matches commands that start or end agents. Other programs of this protocol run such commands; Tieline does not."""

_HEADER = re.compile(r"->(relay|thinking):(\S++)[ \t]++((?:\[[^\s\[\]]++\][ \t]*+)*)<<<[ \t]*+")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}+"
_TARGET = re.compile(rf"(?:({_NAME}):)?(\*|#?{_NAME})")
_TAG = re.compile(r"\[([^\]]*+)\]")
_AWAIT = re.compile(r"await(?::([1-9][0-9]{0,4})([smh]))?")
_THREAD = re.compile(r"thread:(?:([^\s:<>]{1,128}+):)?([^\s:<>]{1,128}+)")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}

_MARK = re.compile(r"->(?=relay:|thinking:)|\[(?=\[/?RELAY\]\])")

_CODE = re.compile(rb"(`{3,}+|~{3,}+)(.*)", re.DOTALL)

_ANSI = re.compile(r"\x1b(?:\[[ -?]*+[@-~]?|[\]PX^_][^\x07\x18\x1a\x1b]*+(?:\x07|\x1b\\)?|[ -/]*+[0-~]?)")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPED_START = re.compile(rf"^([ \t{GLYPHS}]*+)\\(?=->relay:|->thinking:|\[\[RELAY\]\])", re.MULTILINE)


class Header(msgspec.Struct, frozen=True):
    """The parsed first line of an instruction (`->relay:Name [tags] <<<`): all its parts except the body."""

    kind: Kind
    to: str
    project: str | None
    thread: str | None = None
    thread_project: str | None = None
    awaits: bool = False
    await_ms: int | None = None


class CodeFence(NamedTuple):
    """A code fence of Markdown (three backticks, for example) that is open. Lines in it are not instructions."""

    mark: int
    length: int


class _Block(msgspec.Struct, frozen=True):
    """The JSON of an instruction in the form `[[RELAY]]…[[/RELAY]]`."""

    to: str
    type: Kind
    body: str | None = None
    text: str | None = None
    data: dict[str, Any] | None = None
    thread: str | None = None
    project: str | None = None


_block_decoder = msgspec.json.Decoder(_Block)


def skip_prefix(line: bytes) -> bytes:
    """Return a line without the spaces, glyphs and bare escape sequences that programs print before text."""
    prefix = PREFIX.match(line)
    assert prefix is not None
    return line[prefix.end() :]


def parse_header(line: bytes) -> Header | None:
    """Parse the first line of an instruction, which begins with `->`. Return `None` if no instruction starts here."""
    if not line.startswith(STARTS) or len(line) > HEADER_BYTES_MAX:
        return None
    try:
        found = _HEADER.fullmatch(line.decode())
    except UnicodeDecodeError:
        return None
    target = found and _parse_target(found[2])
    if not found or not target:
        return None
    project, to = target
    tags: dict[str, Any] = {}
    for tag in _TAG.findall(found[3]):
        said = _parse_tag(tag)
        if said is None or not tags.keys().isdisjoint(said):
            return None
        tags |= said
    return Header("thinking" if found[1] == "thinking" else "message", to, project, **tags)


def may_open_block(text: bytes) -> bool:
    """True if the JSON of a block (`[[RELAY]]…[[/RELAY]]`) may begin with `text`.

    This is so if `text` is only white space, or if its first other character is `{`.
    """
    text = text.lstrip()
    return not text or text.startswith(b"{")


def next_code(code: CodeFence | None, line: bytes) -> CodeFence | None:
    """Return the code fence that is open after a line, by the rules of Markdown; `None` if no fence is open.

    `code` is the code fence that was open before the line.
    """
    found = _CODE.match(skip_prefix(line))
    if not found:
        return code
    mark, info = found[1], found[2]
    if code is None:
        # A second run of backticks in the same line means inline code, not a fence.
        return None if mark[:1] == b"`" and b"`" in info else CodeFence(mark[0], len(mark))
    return None if mark[0] == code.mark and len(mark) >= code.length and not info.strip() else code


def read_fence(header: Header, body: bytes) -> Instruction | None:
    """Return the instruction (message to send) with this header (`->relay:… <<<`) and body.

    Return `None` if the body is empty.
    """
    text = _ESCAPED_START.sub(r"\1", _clean(body.decode(errors="replace")))
    text = text.replace("\\>>>", ">>>").replace("\\<<<", "<<<").strip()
    return Instruction(body=text, **msgspec.structs.asdict(header)) if text else None


def read_block(text: bytes) -> Instruction | None:
    """Return the instruction in the JSON of a block (`[[RELAY]]…[[/RELAY]]`).

    Return `None` if the JSON is not valid or contains no message.
    """
    try:
        block = _block_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    target = _parse_target(block.to)
    body = _clean(block.body if block.body is not None else block.text or "").strip()
    if not target or not (body or block.data) or (block.data and nested_deeper(block.data, NESTING_MAX)):
        return None
    project, to = target
    return Instruction(
        to=to,
        body=body,
        kind=block.type,
        project=block.project or project,
        thread=block.thread or None,
        data=block.data,
    )


def break_marks(text: str) -> str:
    """Return a changed copy of the text. If the copy is printed, no instruction starts or ends in it."""
    return _MARK.sub(lambda mark: f"{mark[0]} ", text)


def _parse_target(text: str) -> tuple[str | None, str] | None:
    """Return the project (`None` if there is none) and the name in a target.

    Return only `None` if the target is invalid, or if its name is one of `PLACEHOLDERS`.
    """
    found = _TARGET.fullmatch(text)
    if not found or found[2].lower() in PLACEHOLDERS:
        return None
    return found[1], found[2]


def _parse_tag(tag: str) -> dict[str, Any] | None:
    if found := _AWAIT.fullmatch(tag):
        return {"awaits": True, "await_ms": int(found[1]) * _UNIT_MS[found[2]] if found[1] else None}
    if found := _THREAD.fullmatch(tag):
        return {"thread": found[2], "thread_project": found[1]}
    return None


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("", _ANSI.sub("", text))
