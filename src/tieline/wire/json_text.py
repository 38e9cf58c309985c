"""Functions on JSON that is still text: they find strings and lone halves of surrogate pairs without decoding it.

Above: the codecs of protocols. Below: nothing. It refuses to know what the JSON says.

Each function reads its text a fixed number of times, whatever the text is, and copies the text at most as often: any
client that may connect can send frames of 16 MiB. A pattern with a repeated group would either keep a record of every
repetition or need a possessive repeat, and Python 3.11.2 has a bug in possessive repeats of groups.
"""

import re

# In a masked text: a high surrogate without a low one after it, or a low surrogate without a high one before it.
_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_REPLACEMENT = rb"\ufffd"


def masked(text: bytes) -> bytes:
    """Return the text with each escaped backslash and quotation mark overwritten by zero bytes. Its length is the same.

    Each quotation mark that is left begins or ends a string. Each backslash that is left begins another escape.
    """
    # From the left: of three backslashes in a row, the third one escapes the next character.
    return text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in text else text


def without_strings(text: bytes) -> bytes:
    """Return the JSON text with all its strings removed; brackets, colons, commas, numbers and white space stay."""
    return b"".join(masked(text).split(b'"')[::2])


def mend_pairs(text: bytes) -> bytes:
    """Return the text with U+FFFD in place of each escaped lone half of a surrogate pair. Its length is the same."""
    if rb"\ud" not in text and rb"\uD" not in text:
        # The usual case. It also saves a copy of a text that is not JSON.
        return text
    mended = bytearray(text)
    for half in _HALF_PAIR.finditer(masked(text)):
        mended[half.start() : half.end()] = _REPLACEMENT
    return bytes(mended)
