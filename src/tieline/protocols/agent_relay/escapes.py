"""Escape sequences of terminals: finds the end of each one in a stream of bytes, and its effect on the cursor's line.

Used by: the extractor. Uses: nothing. This module ignores colours, titles and keyboards. A sequence matters only if it
moves the cursor to another line, to the left edge, or to the alternate screen and back.

A sequence may be cut off before its end. It then ends where a terminal would end it. A CSI ends at the first byte that
a CSI cannot contain. A string (a title, an image) ends at BEL, CAN, SUB or the next ESC.
"""

import re
from enum import Enum, auto

import msgspec

ESC = 0x1B

# A sequence with longer parameters is skipped and has no effect.
_PARAMETER_BYTES_MAX = 64

_PARAMETERS = re.compile(rb"[\x20-\x3f]*+")
_INTERMEDIATES = re.compile(rb"[\x20-\x2f]*+")
_STRING_STOP = re.compile(rb"[\x07\x18\x1a\x1b]")
_NUMBERS = re.compile(rb"[0-9]{0,6}(?:;[0-9]{0,6})*")
_INTERMEDIATE = range(0x20, 0x30)
_SHORT_FINAL = range(0x30, 0x7F)
_CSI_FINAL = range(0x40, 0x7F)

# Up, to a position, to a row; insert, delete and scroll lines; set the scroll region; back to a saved position.
_DRAWING = b"AFHfdLMSTru"
_ALTERNATE_SCREENS = frozenset({b"47", b"1047", b"1049"})


class Column(Enum):
    """Column of the cursor after an escape sequence: unchanged, at the left edge, or unknown."""

    KEPT = auto()  # unchanged
    LEFT = auto()  # at the left edge
    LOST = auto()  # at another column, or unknown


class Effect(msgspec.Struct, frozen=True):
    """Effect of an escape sequence on the cursor and the lines of the screen."""

    draws: bool = False
    """True if the sequence lets the program draw over earlier output.

    It moves the cursor up or to a position, changes lines, or switches the screen.
    """

    column: Column = Column.KEPT
    """Column of the cursor after the sequence."""

    spaces: int = 0
    """Number of columns by which the sequence moves the cursor to the right. Some programs print spaces this way."""

    alternate: bool | None = None
    """True if the sequence switches to the alternate screen, false if it switches back, `None` if it does neither."""


NO_EFFECT = Effect()


class _In(Enum):
    """State of `EscapeReader`: the part of an escape sequence to which the next byte belongs."""

    BEGUN = auto()  # after ESC
    SHORT = auto()  # ESC and intermediate bytes, as in the choice of a character set
    CSI = auto()  # ESC [ and parameters
    STRING = auto()  # an OSC, DCS, SOS, PM or APC string
    STRING_END = auto()  # after ESC in a string


class EscapeReader:
    """Reads one escape sequence at a time and finds its end and its effect. A sequence may come in several chunks."""

    __slots__ = ("_in", "_parameters")

    def __init__(self) -> None:
        self._in: _In | None = None
        self._parameters = bytearray()

    @property
    def under_way(self) -> bool:
        """True if a sequence has begun and has not ended yet."""
        return self._in is not None

    def begin(self) -> None:
        """Begin a new sequence. The caller has read its first byte, ESC."""
        self._in = _In.BEGUN
        self._parameters.clear()

    def receive_data(self, data: bytes, start: int) -> tuple[int, Effect]:
        """Read bytes of the sequence from `data`, beginning at `start`.

        Return the position in `data` after these bytes, and the effect of the sequence. The effect is `NO_EFFECT` until
        the sequence has ended.
        """
        match self._in:
            case _In.BEGUN:
                return self._receive_kind(data[start], start)
            case _In.SHORT:
                return self._receive_parameters(_INTERMEDIATES, data, start)
            case _In.CSI:
                return self._receive_parameters(_PARAMETERS, data, start)
            case _In.STRING:
                found = _STRING_STOP.search(data, start)
                if not found:
                    return len(data), NO_EFFECT
                self._in = _In.STRING_END if data[found.start()] == ESC else None
                return found.end(), NO_EFFECT
            case _In.STRING_END:
                if data[start] == ord("\\"):
                    self._in = None
                    return start + 1, NO_EFFECT
                # Another sequence cuts the string off; the ESC of that sequence has been taken.
                self.begin()
                return start, NO_EFFECT
            case None:
                return start, NO_EFFECT

    def _receive_kind(self, byte: int, start: int) -> tuple[int, Effect]:
        self._in = None
        if byte == ESC:
            self._in = _In.BEGUN
        elif byte == ord("["):
            self._in = _In.CSI
        elif byte in b"]PX^_":
            self._in = _In.STRING
        elif byte in _INTERMEDIATE:
            self._in = _In.SHORT
        elif byte in _SHORT_FINAL:
            return start + 1, _short_effect(byte)
        else:
            return start, NO_EFFECT
        return start + 1, NO_EFFECT

    def _receive_parameters(self, body: re.Pattern[bytes], data: bytes, start: int) -> tuple[int, Effect]:
        found = body.match(data, start)
        assert found is not None
        stop = found.end()
        room = _PARAMETER_BYTES_MAX + 1 - len(self._parameters)
        self._parameters += data[start : min(stop, start + room)]
        if stop == len(data):
            return stop, NO_EFFECT
        csi = self._in is _In.CSI
        self._in = None
        final = data[stop]
        if final not in (_CSI_FINAL if csi else _SHORT_FINAL):
            return stop, NO_EFFECT
        understood = csi and len(self._parameters) <= _PARAMETER_BYTES_MAX
        return stop + 1, _csi_effect(bytes(self._parameters), final) if understood else NO_EFFECT


def _short_effect(final: int) -> Effect:
    match chr(final):
        case "M":  # up a line
            return Effect(draws=True)
        case "8":  # back to a saved place
            return Effect(draws=True, column=Column.LOST)
        case "c":  # reset
            return Effect(draws=True, column=Column.LEFT, alternate=False)
        case "E":  # next line
            return Effect(column=Column.LEFT)
        case _:
            return NO_EFFECT


def _csi_effect(parameters: bytes, final: int) -> Effect:
    if parameters.startswith(b"?"):
        if final in b"hl" and not _ALTERNATE_SCREENS.isdisjoint(parameters[1:].split(b";")):
            return Effect(draws=True, column=Column.LOST, alternate=final in b"h")
        return NO_EFFECT
    if not _NUMBERS.fullmatch(parameters):
        return NO_EFFECT
    # An absent number and 0 both mean 1.
    numbers = [int(number or b"0") or 1 for number in parameters.split(b";")]
    draws = final in _DRAWING
    match chr(final):
        case "C":
            return Effect(spaces=numbers[0])
        case "E" | "F" | "r":
            return Effect(draws, Column.LEFT)
        case "G" | "`":
            return Effect(draws, Column.LEFT if numbers[0] == 1 else Column.LOST)
        case "H" | "f":
            return Effect(draws, Column.LEFT if numbers[1:2] in ([], [1]) else Column.LOST)
        case "u":
            return Effect(draws, Column.LOST)
        case _:
            return Effect(draws) if draws else NO_EFFECT
