"""The canonical bytes of an envelope, which are signed: the same on every machine and in every language.

Used by: `codec`. Uses: `wire.json_text`. This module knows nothing about sockets, and it never decodes a body.

The first implementation of peerbus signs the output of Go's `encoding/json` for a struct with seven strings and a raw
message. So this module makes the same bytes, and escapes every string as Go does. Only two things in a body are
changed: white space between tokens is removed, and the five characters that Go escapes inside strings are replaced by
escapes. Keys keep their order, numbers keep their digits, and existing escapes stay as they are. If the result is
processed again, nothing changes.

Escapes and white space are handled by calls into C that work on whole strings. So the time grows only linearly with the
length.
"""

import hashlib
import hmac
import re
from array import array
from functools import lru_cache
from itertools import accumulate
from typing import Final

from tieline.wire.json_text import masked, without_strings

SECRET_BYTES_MIN: Final = 32
"""Least number of bytes of the shared secret, with which envelopes are signed.

Both the server and the client refuse a shorter secret.
"""

NESTING_MAX: Final = 512
"""Most nesting levels of objects and lists in an envelope. The envelope itself counts as one level.

All decoders here can decode this number of levels at any depth of the call stack. So the call stack never decides if an
envelope is valid.
"""

FIELDS: Final = ("protocol_version", "id", "from", "to", "ts", "source", "kind")
"""Names of the signed fields of an envelope, in the order of the signed bytes. The field `body` comes after them."""

_UNSAFE = re.compile('[\x00-\x1f"&<>\\\\\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SURROGATES = re.compile("[\ud800-\udfff]")

_WHITE_SPACE = b" \t\r\n"
_HAS_WHITE_SPACE = re.compile(rb"[ \t\r\n]")
# Maps an opening bracket to +1 and a closing bracket to -1, as signed bytes. All other bytes are removed.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEPS = bytes(set(range(256)) - set(b"[{]}"))
_ESCAPED = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
_BLOCK_BYTES = 64
_PADS = tuple(bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}\Z")


def quote(text: str) -> str:
    """Return a string as JSON, with the same escapes as Go makes.

    Half a surrogate pair is not valid in UTF-8. It is replaced by `\\ufffd`.
    """
    return f'"{_UNSAFE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        return "\\ufffd"
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def sound(text: str) -> str:
    """Return the text as a recipient will decode it.

    Half a surrogate pair is not valid in UTF-8, so it is replaced by the replacement character.
    """
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def compact(body: bytes) -> bytes:
    """Return the canonical bytes of a body, which are signed. The body is valid JSON; an empty body means `null`."""
    # spec 4: a body that is absent is signed as null; white space between tokens does not count.
    if not body:
        return b"null"
    if _HAS_WHITE_SPACE.search(body):
        body = _without_white_space(body)
    for character, escape in _ESCAPED:
        # In valid JSON these characters occur in strings only.
        body = body.replace(character, escape)
    return body or b"null"


def nested_deeper(text: bytes, levels: int) -> bool:
    """True if the objects and lists in a JSON text have more nesting levels than `levels`."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    steps = array("b", without_strings(text).translate(_STEPS, _NO_STEPS))
    return max(accumulate(steps), default=0) > levels


def _without_white_space(body: bytes) -> bytes:
    """Return a JSON text without the white space between its tokens. White space inside strings stays.

    The parts between the strings are cleaned in one call, and then joined with the strings again.
    """
    parts = masked(body).split(b'"')
    if b"\\" in body:
        ends = list(accumulate(len(part) + 1 for part in parts))
        parts[1::2] = [body[start : end - 1] for start, end in zip(ends[::2], ends[1::2], strict=False)]
    between = b'"'.join(parts[::2]).translate(None, _WHITE_SPACE)
    parts[::2] = between.split(b'"')
    return b'"'.join(parts)


def canonical(fields: tuple[str, str, str, str, str, str, str], body: bytes) -> bytes:
    """Return the bytes of an envelope that are signed: its fields in the order of `FIELDS`, then the body."""
    # spec 4: eight fields in this order, none omitted, and the body as it came.
    if _UNSAFE.search("".join(fields)) is None:
        version, ident, sender, to, ts, source, kind = fields
        head = (
            f'{{"protocol_version":"{version}","id":"{ident}","from":"{sender}","to":"{to}",'
            f'"ts":"{ts}","source":"{source}","kind":"{kind}","body":'
        )
    else:
        head = "{" + "".join(f'"{name}":{quote(text)},' for name, text in zip(FIELDS, fields, strict=True)) + '"body":'
    return b"".join((head.encode(), compact(body), b"}"))


def sign(secret: bytes, fields: tuple[str, str, str, str, str, str, str], body: bytes) -> str:
    """Return the signature of an envelope as hex digits, for the envelope's field `hmac`."""
    return _digest(secret, canonical(fields, body)).hex()


def verify(secret: bytes, fields: tuple[str, str, str, str, str, str, str], body: bytes, signature: str) -> bool:
    """True if the signature of an envelope is 64 hex digits and correct.

    The check takes the same time for every wrong signature, so that the time reveals nothing.
    """
    # spec 4: a signature that is short or wrong is rejected, and the comparison takes constant time.
    if not _HEX_DIGEST.match(signature):
        return False
    return hmac.compare_digest(_digest(secret, canonical(fields, body)), bytes.fromhex(signature))


def _digest(secret: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA256 of `data`, with `secret` as the key. The hash state with the key is cached.

    `hmac.digest` is as fast, but it releases the interpreter lock on each call, even for short data. In a busy hub,
    each call would then wait long to get the lock again.
    """
    inner, outer = (begun.copy() for begun in _begun(secret))
    inner.update(data)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=8)
def _begun(secret: bytes) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    key = hashlib.sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret
    key = key.ljust(_BLOCK_BYTES, b"\0")
    return tuple(hashlib.sha256(key.translate(pad)) for pad in _PADS)  # type: ignore[return-value]
