"""JSON as text: where its strings stand, and half surrogate pairs, both without decoding it.

Above: the codecs of protocols. Below: nothing. It refuses to know what the JSON says.

Each function reads its text a fixed number of times, whatever the text is, and copies it at most as often: frames of
16 MiB come from whoever may connect. A pattern with a repeated group would either keep a record of every repetition or
need a possessive repeat, and Python 3.11.2 treats a possessive repeat of a group wrongly.
"""

import re

# In a masked text: a first half without its second, or a second half without its first.
_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_REPLACEMENT = rb"\ufffd"


def masked(text: bytes) -> bytes:
    """The text with its escaped backslashes and quotation marks overwritten by as many bytes.

    Each quotation mark that is left begins or ends a string, and each backslash begins another escape.
    """
    # From the left, so that of three backslashes in a row the third is the one that escapes what follows.
    return text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in text else text


def without_strings(text: bytes) -> bytes:
    """The text without its strings: brackets, colons, commas, numbers, white space."""
    return b"".join(masked(text).split(b'"')[::2])


def mend_pairs(text: bytes) -> bytes:
    """The text, as long as it was, with U+FFFD for each half of a surrogate pair that is escaped alone."""
    if rb"\ud" not in text and rb"\uD" not in text:
        # Nearly always; and what is no JSON at all is not worth a copy.
        return text
    mended = bytearray(text)
    for half in _HALF_PAIR.finditer(masked(text)):
        mended[half.start() : half.end()] = _REPLACEMENT
    return bytes(mended)
