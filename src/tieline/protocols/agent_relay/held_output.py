"""Held output: bytes of a terminal program that are not shown yet, because they may be part of an instruction."""


class HeldOutput:
    """Buffer for bytes of a program's output that are not shown yet, because they may be part of an instruction.

    An instruction is a message that the program sends by printing it (`->relay:…`). The buffer also stores the escape
    sequences separately, because they are shown even if the text of the instruction is not.
    """

    __slots__ = ("_escapes", "_escapes_mark", "_raw", "_raw_mark")

    def __init__(self) -> None:
        self._raw = bytearray()
        # The escape sequences of `_raw`, which are passed on even when the rest is consumed.
        self._escapes = bytearray()
        # Length of `_raw` and of `_escapes` before the current line.
        self._raw_mark = 0
        self._escapes_mark = 0

    def __bool__(self) -> bool:
        return bool(self._raw)

    def add(self, raw: bytes, *, escape: bool) -> None:
        """Add bytes to the buffer. `escape` is true if they are part of an escape sequence."""
        self._raw += raw
        if escape:
            self._escapes += raw

    def mark(self) -> None:
        """Note that the next byte begins a new line. `take_lines` uses this position."""
        self._raw_mark = len(self._raw)
        self._escapes_mark = len(self._escapes)

    def take_lines(self) -> bytes:
        """Return the bytes before the current line, so that they can be shown. The current line stays in the buffer."""
        taken = bytes(self._raw[: self._raw_mark])
        del self._raw[: self._raw_mark]
        del self._escapes[: self._escapes_mark]
        self._raw_mark = self._escapes_mark = 0
        return taken

    def take(self) -> bytes:
        """Return all bytes, so that they can be shown, and empty the buffer."""
        self.mark()
        return self.take_lines()

    def take_escapes(self) -> bytes:
        """Return only the escape sequences, so that they can be shown, and empty the buffer.

        All other bytes were the text of an instruction, which is not shown.
        """
        taken = bytes(self._escapes)
        self.take()
        return taken
