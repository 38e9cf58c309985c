"""Thinking blocks: the text from `<thinking>` to `</thinking>`, in which nothing is a message to send.

Used by: the extractor. Uses: nothing. A program may forget to close a block, and must still be able to send messages
later. So the block also ends with the line of the next prompt, or with the line in which it exceeds `BYTES_MAX`.
"""

import re

START = b"<thinking>"
_END = b"</thinking>"

BYTES_MAX = 64 * 1024
"""Most bytes of one thinking block. A model prints less than this when it thinks in one turn."""

# The signs > and U+203A and U+276F, followed by a space or alone, maybe in a box.
_PROMPT = re.compile(rb"[ \t]*+(?:\xe2\x94\x82[ \t]*+)?(?:>|\xe2\x80\xba|\xe2\x9d\xaf)(?:[ \t]|\Z)")
_PROMPT_BYTES_MAX = 64  # a prompt stands at the start of its line


class Thinking:
    """One open thinking block (after `<thinking>`) in a program's output. Text in it sends no messages."""

    __slots__ = ("_head", "_tail", "size")

    def __init__(self) -> None:
        # Bytes of the block so far. The extractor counts them.
        self.size = 0
        # The start of the current line, and its last bytes, because `</thinking>` may come in several chunks.
        self._head = bytearray()
        self._tail = b""

    def receive_text(self, text: bytes) -> bool:
        """Read the next text of the output. Return true if the block ends in this text."""
        self._head += text[: _PROMPT_BYTES_MAX - len(self._head)]
        seen = self._tail + text
        self._tail = seen[-(len(_END) - 1) :]
        return _END in seen

    def end_line(self) -> bool:
        """Handle the end of a line. Return true if the block ends with the line.

        The block ends if the line is a prompt or the block is too long, because the program may have forgotten to close
        it.
        """
        prompt = _PROMPT.match(self._head)
        self._head.clear()
        self._tail = b""
        return prompt is not None or self.size > BYTES_MAX
