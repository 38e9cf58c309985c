r"""The extractor: finds the messages that a terminal program wants to send, in the bytes that it prints.

Used by: the wrapper that runs a program in a pty, and sends the messages found. Uses: nothing. This module knows
nothing about processes, terminals and clocks. It gets bytes. It returns, in order, the bytes for the screen (`Passed`)
and the instructions found among them (`Extracted`). The result does not depend on how the bytes were cut into chunks.

The grammar
-----------
Two forms, and no others (section 9 of the specification)::

    ->relay:Target [tags] <<<            [[RELAY]]
    the body, on any number of lines>>>  {"to": "Target", "type": "message", "body": "…"}
                                         [[/RELAY]]

- A *start* (`->relay:`, `->thinking:` or `[[RELAY]]`) is at the start of a line. Before it, only these are skipped:
  spaces, escape sequences (also without their ESC, as `[?25l`), and the glyphs ● ⏺ • │ ✦ and U+276F (the angle of many
  prompts). `>`, `-`, `*`, `#` and `$` are not skipped, because people use them to quote, to list and to show commands.
- `<<<` is at the end of its line. Only tags may be between the target and `<<<`: `[await]`, `[await:30s]` (also m, h),
  `[thread:id]`, `[thread:project:id]`, each once. A target is a name, `*` or `#channel`. `project:` may be before the
  target. `->thinking:` has the same form, and its message has the kind `thinking`.
- A line that ends with `>>>` ends the body; a line that ends with `\>>>` does not. `>>>` elsewhere in a line is text,
  so a Python prompt can be in a body.
- The end of a block, `[[/RELAY]]`, is at the end of its line. The JSON of a block needs `to`, `type` (message, action,
  state, thinking) and a `body` (or `text`) or `data`. It may have `thread` and `project`.
- In code fences (three or more backticks or tildes, as in Markdown) nothing is a start. In code fences inside a body,
  nothing is an end either, so that code can be quoted. Between `<thinking>` at the start of a line and `</thinking>`,
  nothing is a start (see `thinking.py`).
- `\->relay:`, `\->thinking:` and `\[[RELAY]]` at the start of a line print without the backslash and start nothing.
- Escape sequences and control characters are taken out of bodies, `\>>>`, `\<<<` and the escaped starts lose their
  backslash, and the body is trimmed.
- A line ends with LF, CRLF, or a CR alone (after which a program writes from the left edge again).

Anything else is ordinary output and passes unchanged: a placeholder as the target, an empty body, an unknown tag, JSON
of another form, an unfinished instruction. An instruction is unfinished if it has more than `LINES_MAX` lines or
`BYTES_MAX` bytes, if the output ends, or if another start comes inside the body. Known programs of this protocol *send*
an unfinished body at two blank lines or at the next start. That can send a text that its author did not finish, or put
the message for one recipient into the message for another. Here an unfinished body is ordinary output, and blank lines
are text. The one-line forms (`->relay:Name text`, `->relay.json:`) are not supported, because text can match them by
accident. Lines that start or end agents (`->relay:spawn Name …`, `->relay:release Name`) are ordinary output too. They
are also reported (`Declined`), so that nobody waits for their result.

The screen
----------
The extractor consumes an instruction's text and line end, and the backslash of an escaped start. Escape sequences
inside an instruction pass on, so that colours and modes stay right. If text before the start on the same line was
passed on already, the line end is passed on too. The extractor holds bytes back only while they may still be consumed.
When the program is quiet for `next_timeout`, `flush` shows the held bytes. The rest of that instruction is then shown
too, and the instruction is still sent.

A program that moves the cursor up, or to a position, remembers what is on the screen. Such a program would draw over
the wrong lines if a line were missing. So after its first such move, instructions are both shown and sent. If the
program redraws the screen inside an instruction, the unfinished instruction becomes ordinary output; the next drawing
contains the complete instruction. Redraws print the same instruction many times. If an instruction was found before the
last redraw, and is found again, it is marked `redrawn`. On the alternate screen (pagers, editors) nothing is extracted,
because a program that shows a file there does not want to send its text.
"""

import hashlib
import re
from enum import Enum, auto

import msgspec

from tieline.protocols.agent_relay.escapes import ESC, Column, Effect, EscapeReader
from tieline.protocols.agent_relay.held_output import HeldOutput
from tieline.protocols.agent_relay.instruction import (
    BARE_ESCAPE_SO_FAR,
    BLOCK_END,
    BLOCK_START,
    DECLINED,
    FENCE_END,
    GLYPHS,
    HEADER_BYTES_MAX,
    HEADER_SO_FAR,
    STARTS,
    CodeFence,
    Header,
    break_marks,
    may_open_block,
    next_code,
    parse_header,
    read_block,
    read_fence,
    skip_prefix,
)
from tieline.protocols.agent_relay.thinking import START as THINKING_START
from tieline.protocols.agent_relay.thinking import Thinking
from tieline.wire import extractor
from tieline.wire.extractor import Declined, Extracted, Instruction, Output, Passed

LINES_MAX = 1000
"""Most lines of one instruction (a message that a program sends by printing it).

This is more than a person reads in one message, but few enough that the text of an unfinished instruction appears soon.
"""

BYTES_MAX = 512 * 1024
"""Most bytes of one printed instruction. Its message then still fits into a protocol message of 1 MiB."""

QUIET_SECONDS = 0.1
"""Seconds without output after which the bytes that are held back are shown.

A person does not notice this delay, and the program's next write usually comes within it.
"""

# Number of instructions remembered to tell a redraw from a new instruction; a screen and its history rarely hold more.
_SEEN_MAX = 256

# A cursor move to the right stands for spaces. A move further than any screen is wide counts as this many.
_SPACES_MAX = 512


class _At(Enum):
    """State of `Extractor`: the part of a line or of an instruction to which the next text belongs."""

    BEGIN = auto()  # only prefix characters (spaces, glyphs) have come
    MARK = auto()  # the text so far may be the beginning of a start
    HEADER = auto()  # after `->relay:`
    CODE = auto()  # after a backtick or tilde at the start of the line
    TAG = auto()  # after a `<` at the start of the line
    PLAIN = auto()  # nothing more can begin in this line
    FENCE = auto()  # in the body of a fence
    BLOCK = auto()  # in the JSON of a block
    THINKING = auto()  # in a thinking block


_OPEN = (_At.FENCE, _At.BLOCK)
_UNDECIDED = (_At.MARK, _At.HEADER, _At.FENCE, _At.BLOCK)

_MARKS = STARTS + tuple(b"\\" + start for start in STARTS)
_MARK_BYTES_MAX = max(map(len, _MARKS))
_BACKSLASH = ord("\\")
_TORN_GLYPHS = frozenset(glyph.encode()[:size] for glyph in GLYPHS for size in (1, 2))
_CONTROL = re.compile(rb"[\r\n\x1b]")
# A whole line in which no instruction can begin: most of a program's output, taken in one step.
_PLAIN_LINE = re.compile(rb"(?:[^\x1b\r\n \t\-\[\\`~<\xe2][^\x1b\r\n]*+)?\r?\n")


class Extractor(extractor.Extractor):
    """Parser that finds the instructions in the output of one terminal program.

    An instruction is a message that the program sends by printing it, for example `->relay:Name <<<text>>>`.
    """

    def __init__(self, *, lines_max: int = LINES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        # The result of the current call: finished outputs, and then the bytes that are passed on after them.
        self._outputs: list[Output] = []
        self._passing = bytearray()

        self._at = _At.BEGIN
        # The text of the current line, if it is needed: a possible start, a code fence, a line of a body.
        self._line = bytearray()
        # The first bytes of a possible glyph.
        self._torn = b""
        # True if something visible stands before the start on its line.
        self._indented = False
        # `_after_return`: a CR ended the last line, so an LF would belong to that line end. `_end_consumed`: that line
        # end was consumed.
        self._after_return = False
        self._end_consumed = False
        self._code: CodeFence | None = None
        # The open thinking block; used at `_At.THINKING`.
        self._thinking = Thinking()
        # The unsupported request in the current line, such as starting an agent; empty if there is none.
        self._declined = ""

        # The open instruction: the header of a fence, its lines so far, the number of lines, and their size in bytes.
        self._header: Header | None = None
        self._body = bytearray()
        self._lines = 0
        self._size = 0
        # True while an open block has no text yet.
        self._blank = False
        # True if new bytes are kept in `_held_output`; false if they are shown at once.
        self._holding = False
        self._held_output = HeldOutput()

        self._escape = EscapeReader()
        # `_draws`: the program has moved its cursor back over the screen. `_alternate`: it uses the alternate screen.
        # `_drawings`: how often it has moved its cursor back.
        self._draws = False
        self._alternate = False
        self._drawings = 0
        # Digests of instructions, with the drawing in which each was first seen. The oldest are dropped first.
        self._seen: dict[bytes, int] = {}

    @property
    def alternate_screen(self) -> bool:
        """True if the program uses the alternate screen. Meanwhile, other programs must not print to the terminal."""
        return self._alternate

    def receive_data(self, data: bytes) -> list[Output]:
        """Read the program's next bytes.

        Return the bytes that can be shown now, and the messages (instructions) found.
        """
        position, end = self._skip_plain_lines(data, 0), len(data)
        while position < end:
            stop = position + 1
            if self._escape.under_way:
                stop, effect = self._escape.receive_data(data, position)
                self._show(data[position:stop], escape=True)
                self._obey(effect)
            elif data[position] == ESC:
                self._escape.begin()
                self._show(data[position:stop], escape=True)
            elif data[position] in b"\r\n":
                self._end_line(data[position:stop])
            else:
                found = _CONTROL.search(data, position)
                stop = found.start() if found else end
                self._receive_text(data[position:stop])
            position = self._skip_plain_lines(data, stop)
        return self._take_outputs()

    def _skip_plain_lines(self, data: bytes, start: int) -> int:
        """Pass on the lines in which no instruction can begin, from the position `start` in `data`.

        Return the position after these lines.
        """
        if self._at is not _At.BEGIN or self._escape.under_way or self._after_return or self._torn:
            return start
        end = start
        while line := _PLAIN_LINE.match(data, end):
            end = line.end()
        if end > start:
            self._passing += data[start:end]
            self._indented = False
        return end

    def next_timeout(self) -> float | None:
        """Return the seconds without output after which the caller must call `flush`.

        Return `None` while no bytes are held back.
        """
        return QUIET_SECONDS if self._held_output else None

    def flush(self) -> list[Output]:
        """Return the bytes that are held back, so that they are shown.

        Call this when the program prints nothing for a while.

        An instruction that is not complete yet may still continue.
        """
        self._passing += self._held_output.take()
        self._holding = False
        return self._take_outputs()

    def receive_eof(self) -> list[Output]:
        """Handle the end of the output, which also ends the last line. Return all bytes that were held back."""
        if self._line:
            self._end_line(b"")
        self._pass_through()
        self._at = _At.BEGIN
        return self._take_outputs()

    def disarm(self, text: str) -> str:
        """Return a changed copy of the text. If the copy is printed, no instruction starts or ends in it."""
        return break_marks(text)

    def _take_outputs(self) -> list[Output]:
        self._push_passing()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _push_passing(self) -> None:
        if self._passing:
            self._outputs.append(Passed(bytes(self._passing)))
            self._passing.clear()

    def _show(self, raw: bytes, *, escape: bool = False) -> None:
        """Pass the bytes `raw` on to the screen, or hold them back while they may be part of an instruction.

        `escape` is true if the bytes are an escape sequence. An instruction that exceeds its limits becomes ordinary
        output.
        """
        if self._holding:
            self._held_output.add(raw, escape=escape)
        else:
            self._passing += raw
        if self._at in _UNDECIDED:
            self._grow(len(raw))
        elif self._at is _At.THINKING:
            self._thinking.size += len(raw)

    def _grow(self, count: int) -> None:
        self._size += count
        if self._size > self._bytes_max:
            self._pass_through()

    def _pass_through(self) -> None:
        """Pass the bytes that are held back on to the screen, as ordinary output."""
        self._passing += self._held_output.take()
        self._holding = False
        self._at = _At.PLAIN if self._line else _At.BEGIN

    # Text and line ends

    def _receive_text(self, text: bytes) -> None:
        self._after_return = False
        match self._at:
            case _At.BEGIN:
                self._begin_line(text)
            case _At.MARK:
                self._match_mark(text)
            case _At.HEADER:
                self._read_header(text)
            case _At.CODE:
                self._show(text)
                self._line += text
                if len(self._line) > HEADER_BYTES_MAX:
                    self._at = _At.PLAIN
            case _At.TAG:
                self._read_tag(text)
            case _At.PLAIN:
                self._show(text)
            case _At.FENCE | _At.BLOCK:
                self._read_body(text)
            case _At.THINKING:
                self._show(text)
                if self._thinking.receive_text(text):
                    self._at = _At.PLAIN

    def _begin_line(self, text: bytes) -> None:
        seen = self._torn + text
        rest = skip_prefix(seen)
        self._indented = self._indented or len(rest) < len(seen)
        self._torn = b""
        if not rest or rest in _TORN_GLYPHS or BARE_ESCAPE_SO_FAR.fullmatch(rest):
            self._torn = rest
            self._show(text)
        elif len(rest) > len(text):
            # The torn bytes were shown, so they can begin nothing.
            self._at = _At.PLAIN
            self._show(text)
        elif rest[0] in b"-[\\" and self._code is None and not self._alternate:
            self._show(text[: len(text) - len(rest)])
            self._at = _At.MARK
            self._size = 0
            # An escaped start loses its backslash on any screen.
            self._holding = not self._draws or rest[0] == _BACKSLASH
            self._line.clear()
            self._match_mark(rest)
        elif rest[0] in b"`~" and not self._alternate:
            self._show(text[: len(text) - len(rest)])
            self._at = _At.CODE
            self._line.clear()
            self._receive_text(rest)
        elif rest[0] in b"<" and self._code is None and not self._alternate:
            self._show(text[: len(text) - len(rest)])
            self._at = _At.TAG
            self._line.clear()
            self._read_tag(rest)
        else:
            self._at = _At.PLAIN
            self._show(text)

    def _read_tag(self, text: bytes) -> None:
        missing = len(THINKING_START) - len(self._line)
        self._line += text[:missing]
        self._show(text[:missing])
        if self._line == THINKING_START:
            self._line.clear()
            self._thinking = Thinking()
            self._at = _At.THINKING
            self._receive_text(text[missing:])
        elif not THINKING_START.startswith(self._line):
            self._at = _At.PLAIN
            self._show(text[missing:])

    def _match_mark(self, text: bytes) -> None:
        probe = bytes(self._line) + text[: _MARK_BYTES_MAX - len(self._line)]
        mark = next((mark for mark in _MARKS if probe.startswith(mark)), None)
        if mark is None and self._line == b"[" and BARE_ESCAPE_SO_FAR.match(probe):
            self._line.clear()
            self._pass_through()
            self._torn = b"["
            self._begin_line(text)
            return
        if mark is None:
            self._line += text[:_MARK_BYTES_MAX]
            if not any(mark.startswith(probe) for mark in _MARKS):
                self._pass_through()
            self._show(text)
            return
        cut = len(mark) - len(self._line)
        self._line[:] = mark
        self._show(text[:cut])
        rest = text[cut:]
        if self._at is not _At.MARK:
            self._show(rest)
        elif mark[0] == _BACKSLASH:
            if self._holding:
                self._passing += self._held_output.take()[1:]
            self._pass_through()
            self._show(rest)
        elif mark == BLOCK_START:
            self._open_block()
            self._read_body(rest)
        else:
            self._at = _At.HEADER
            self._read_header(rest)

    def _read_header(self, text: bytes) -> None:
        self._line += text
        self._show(text)
        if len(self._line) > HEADER_BYTES_MAX or not HEADER_SO_FAR.fullmatch(self._line):
            declined = DECLINED.match(self._line[:HEADER_BYTES_MAX])
            self._declined = f"->relay:{declined[1].decode()}" if declined else ""
            self._pass_through()

    def _read_body(self, text: bytes) -> None:
        self._line += text
        self._show(text)
        if self._at is _At.BLOCK and self._blank and text.strip():
            self._blank = False
            if not may_open_block(text):
                self._pass_through()

    def _end_line(self, raw: bytes) -> None:
        """Handle the end of a line. `raw` is the CR or LF, or empty if the cursor was moved or the output ended."""
        if self._after_return:
            self._after_return = raw != b"\n"
            if not self._end_consumed:
                self._show(raw)
                self._held_output.mark()
            return
        self._after_return = raw != b"\n"
        self._end_consumed = False
        if self._declined:
            self._push_passing()
            self._outputs.append(Declined(self._declined))
            self._declined = ""
        match self._at:
            case _At.BEGIN | _At.PLAIN | _At.TAG:
                self._show(raw)
            case _At.MARK:
                self._pass_through()
                self._show(raw)
            case _At.HEADER:
                header = parse_header(bytes(self._line))
                if header is None:
                    self._pass_through()
                else:
                    self._open_fence(header)
                self._show(raw)
            case _At.CODE:
                self._code = next_code(self._code, bytes(self._line))
                self._show(raw)
            case _At.FENCE | _At.BLOCK:
                self._end_body_line(raw)
            case _At.THINKING:
                self._show(raw)
                if self._thinking.end_line():
                    self._at = _At.BEGIN
        self._line.clear()
        self._torn = b""
        if self._at in _OPEN:
            self._held_output.mark()
        elif self._at is not _At.THINKING:
            self._at = _At.BEGIN
            self._indented = False

    # Instructions

    def _open_fence(self, header: Header) -> None:
        self._at = _At.FENCE
        self._header = header
        self._body.clear()
        self._lines = 0

    def _open_block(self) -> None:
        self._at = _At.BLOCK
        self._header = None
        self._blank = True
        self._line.clear()
        self._body.clear()
        self._lines = 0

    def _end_body_line(self, raw: bytes) -> None:
        line = bytes(self._line)
        fence = self._at is _At.FENCE
        end = FENCE_END if fence else BLOCK_END
        content = line.rstrip()
        ends = content.endswith(end) and not (fence and content.endswith(b"\\" + end))
        if ends:
            content = content[: -len(end)]
        was_code = self._code
        if fence:
            self._code = next_code(was_code, content)
        if ends and self._code is None:
            self._close(content, raw)
        elif was_code is self._code is None and self._restart(line, raw):
            pass
        else:
            if line or self._body:
                self._body += line + b"\n"
            self._lines += 1
            self._show(raw)
            if self._lines > self._lines_max:
                self._line.clear()
                self._pass_through()

    def _restart(self, line: bytes, raw: bytes) -> bool:
        """Return true if `line`, which is part of an unfinished instruction, starts another instruction.

        Then the unfinished instruction becomes ordinary output, and the new instruction begins. `raw` is the line end.
        An instruction is a message that a program sends by printing it.
        """
        start = skip_prefix(line)
        header = parse_header(start)
        tail = start[len(BLOCK_START) :]
        if header is None and not (start.startswith(BLOCK_START) and may_open_block(tail)):
            return False
        self._passing += self._held_output.take_lines()
        self._indented = False
        self._size = len(line)
        if header is not None:
            self._open_fence(header)
            self._show(raw)
        else:
            self._open_block()
            self._line += tail
            self._blank = not tail.strip()
            self._end_body_line(raw)
        return True

    def _close(self, content: bytes, raw: bytes) -> None:
        """Finish an instruction whose end was found: report its message, or show its text if it contains no message."""
        body = bytes(self._body) + content
        instruction = read_block(body) if self._header is None else read_fence(self._header, body)
        if instruction is None:
            self._pass_through()
            self._show(raw)
            return
        shown = not self._holding
        self._passing += self._held_output.take_escapes()
        self._holding = False
        self._at = _At.BEGIN
        self._push_passing()
        self._outputs.append(Extracted(instruction, self._is_redrawn(instruction)))
        if shown or self._indented:
            self._show(raw)
        else:
            self._end_consumed = True

    def _is_redrawn(self, instruction: Instruction) -> bool:
        digest = hashlib.blake2b(msgspec.json.encode(instruction), digest_size=16).digest()
        first = self._seen.setdefault(digest, self._drawings)
        if len(self._seen) > _SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return first < self._drawings

    # Escape sequences

    def _obey(self, effect: Effect) -> None:
        """Apply the effect of an escape sequence: a redraw, a switch of the screen, or a move of the cursor."""
        if effect.draws:
            self._draws = True
            self._drawings += 1
            if self._at in _UNDECIDED:
                self._pass_through()
        if effect.alternate is not None:
            self._alternate = effect.alternate
        match effect.column:
            case Column.LEFT:
                # A line begins there, as after a CR. A line of a body that is still empty is not begun twice.
                if self._at not in _OPEN or self._line:
                    self._after_return = False
                    self._end_line(b"")
            case Column.LOST if self._at is _At.THINKING:
                # A program that addresses the screen may print no line ends at all.
                if self._thinking.end_line():
                    self._at = _At.PLAIN
            case Column.LOST:
                if self._at not in _OPEN:
                    self._pass_through()
                    self._at = _At.PLAIN
            case Column.KEPT:
                if effect.spaces:
                    self._receive_spaces(min(effect.spaces, _SPACES_MAX))

    def _receive_spaces(self, count: int) -> None:
        """Treat a cursor move to the right as `count` spaces of text, because some programs print spaces this way."""
        self._after_return = False
        if self._at is _At.BEGIN:
            self._indented = True
        elif self._at is _At.MARK:
            self._pass_through()
        elif self._at is _At.TAG:
            self._at = _At.PLAIN
        elif self._at not in (_At.PLAIN, _At.THINKING):
            self._line += b" " * count
            if self._at in _UNDECIDED:
                self._grow(count)
            if self._at is _At.HEADER:
                self._read_header(b"")
