"""Held output: bytes of a terminal program that are not shown yet, because they may be part of an instruction."""


class Hold:
    """Bytes of a program's output that are not shown yet, because they may be part of an instruction.

    An instruction is a message that the program sends by printing it (`->relay:…`). Escape sequences are marked: they
    are shown even if the instruction is not.
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
        """Keep bytes back; `escape` says that they are part of an escape sequence."""
        self._raw += raw
        if escape:
            self._escapes += raw

    def mark(self) -> None:
        """Note that the next byte is the first of a line, so that `take_lines` knows where the current line begins."""
        self._raw_mark = len(self._raw)
        self._escapes_mark = len(self._escapes)

    def take_lines(self) -> bytes:
        """Return the held bytes before the current line, to be shown, and keep the line."""
        taken = bytes(self._raw[: self._raw_mark])
        del self._raw[: self._raw_mark]
        del self._escapes[: self._escapes_mark]
        self._raw_mark = self._escapes_mark = 0
        return taken

    def take(self) -> bytes:
        """Return all held bytes, to be shown, and keep none."""
        self.mark()
        return self.take_lines()

    def take_escapes(self) -> bytes:
        """Return the held escape sequences, to be shown, and drop the rest: it was an instruction."""
        taken = bytes(self._escapes)
        self.take()
        return taken
