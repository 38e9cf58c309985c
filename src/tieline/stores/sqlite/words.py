"""Packed events: the form in which the rows of the main log store events, because many events repeat the same text.

An event is JSON. Without its ids, hash and keys of deliveries, it is a template, for example
`{"event":"ack","member":"bob","number":2,"keys":[[…]],"protocol":"tieline"}`. The comma before each field splits a
template into texts, and most texts are in many events. The table `word` has such a text once. A packed event is:

    size of the head | head: a number for each text | texts that are no words | ids, hash and keys as bytes

`unpack` returns exactly the bytes that `pack` got, and these are the bytes that the audit chain covers. So a change of
a packed event breaks the chain at its row, and a change of a word breaks it at every row with this word. If packing
saves nothing, the event is stored as JSON, and all rows of older programs are JSON. The first byte shows the
difference: JSON begins with a brace, and no head has this size.
"""

import re
from binascii import Error, hexlify, unhexlify
from collections.abc import Iterator
from itertools import islice
from typing import Any

import apsw

from tieline.core.store import StoreError
from tieline.stores.sqlite.statements import QUERIES

SENT = b'{"event":"send"'
"""First bytes of the event of a message."""

_UUID, _HASH, _KEYS = 1, 2, 3
"""Bytes that mark the place of a value in a template. The value is 16 bytes for a UUID and 32 for a hash. For keys, it
is one byte with the size of their text, and this text."""
_MARKS = re.compile(rb"([\x01-\x03])")
_CONTROL = re.compile(rb"[\x00-\x1f]")
"""JSON has none of these bytes, so text is never mistaken for the place of a value."""
_KEYS_BYTES_MAX = 255
_TEXT, _SESSION = b"\0", b"\1"
"""In a head, these take the place of a word's number. `_TEXT` is a text that is no word: its size and itself follow
after the head. `_SESSION` is the field with the session id: the 16 bytes of the id follow after the head."""
_FIRST_WORD = 2
_LOW_BITS = 0x7F
_HEAD_BYTES_MAX = ord("{") - 1
_HALF_BYTES_MAX = _HEAD_BYTES_MAX // 2
_WORD_USES, _SESSION_WORD_USES = 2, 4
"""A text becomes a word when it is used for the second time, so a text that is used once is stored once. A session id
needs more uses, because its 16 bytes are shorter than a word of it."""
_WORD_BYTES_MAX = 200
"""Size of the longest word. It limits the memory for words."""
KNOWN_MAX = 8192
"""Maximum number of words in memory, and also of templates: a few megabytes. A word that was dropped from memory gets
another number when its text is used again."""

_SEND = SENT + b',"id":"'
_ID, _ID_END = len(_SEND), len(_SEND) + 36
_HASHED = b'digest":"\2'
_COMMA, _DIGEST, _REPLY_TO, _MOVED, _MOVED_END = b',"', b',"digest":"', b',"reply_to":"', b',"keys":[[', b"]]"
_SESSION_ID = re.compile(rb'session":"([0-9a-f]{32})"')

_Parts = tuple[tuple[bytes, int], ...]
"""A template in parts: each part with the mark after it, which is 0 at the end."""


class Words:
    """Packs and unpacks the events of one main log. A *word* is a text in many events that is stored only once.

    Only the store packs events.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        # Number of each word as it is in a head, by its text. The newest words are read before the first use.
        self._numbers: dict[bytes, bytes] = {}
        self._is_read = False
        self._next = _FIRST_WORD
        # Number of uses of texts that are no words yet.
        self._uses: dict[bytes, int] = {}
        # Heads by template or half of one, if all its texts are words.
        self._heads: dict[bytes, bytes] = {}
        # For reading: words by number, and templates in parts by head.
        self._words: dict[int, bytes] = {}
        self._parts: dict[bytes, _Parts] = {}
        # New words, as number and text. The store writes them together with the rows that use them.
        self.fresh: list[tuple[int, bytes]] = []

    def forget(self) -> None:
        """Forget everything in memory, because a transaction with new words may have been abandoned."""
        for known in (self._numbers, self._uses, self._heads, self._words, self._parts):
            known.clear()
        self._is_read = False
        self.fresh = []

    def pack(self, event: bytes) -> bytes:
        """Return an event as it is stored. New words are added to `fresh`."""
        taken = _take_sent(event) if event.startswith(_SEND) else _take_moved(event)
        if taken is None:
            return event
        front, tail, values = taken
        heads = self._heads
        head, tail_head = heads.get(front), heads.get(tail) if tail else b""
        if head is None or tail_head is None:
            return self._pack_new(event, front, tail, values)
        head += tail_head
        return b"%c%b%b" % (len(head), head, values)

    def _pack_new(self, event: bytes, front: bytes, tail: bytes, values: bytes) -> bytes:
        """Return an event as it is stored. `pack` calls this if the head of the event is not in memory.

        `front` and `tail` are the halves of the event's template (`tail` may be empty), and `values` are the event's
        values.
        """
        if _CONTROL.search(event):
            return event
        if not self._is_read:
            self._read_newest()
        head, rest = self._make_head(front)
        if tail:
            tail_head, tail_rest = self._make_head(tail)
            head, rest = head + tail_head, rest + tail_rest
        size = 1 + len(head) + len(rest) + len(values)
        if len(head) > _HEAD_BYTES_MAX or size >= len(event):
            return event
        return b"%c%b%b%b" % (len(head), head, rest, values)

    def _read_newest(self) -> None:
        self._next = _FIRST_WORD
        for number, text in self._connection.execute(QUERIES["newest_words"], (KNOWN_MAX,)):
            self._numbers[text] = _varint(number)
            self._next = number + 1
        self._is_read = True

    def _make_head(self, template: bytes) -> tuple[bytes, bytes]:
        """Return the head of a template (or of half a template), and the texts of the template that are no words."""
        numbers, rest = [], []
        for text in template.split(_COMMA):
            session = None
            own = self._numbers.get(text)
            if own is None:
                session = _SESSION_ID.fullmatch(text)
                own = self._add(text, _SESSION_WORD_USES if session else _WORD_USES)
            if own is None:
                own = _SESSION if session else _TEXT
                rest.append(unhexlify(session[1]) if session else _varint(len(text)) + text)
            numbers.append(own)
        head = b"".join(numbers)
        if not rest and len(head) <= _HALF_BYTES_MAX:
            _keep(self._heads, template, head)
        return head, b"".join(rest)

    def _add(self, text: bytes, uses_min: int) -> bytes | None:
        """Make a text a word if it was used at least `uses_min` times. Return the number of the word, or `None`."""
        if len(text) > _WORD_BYTES_MAX:
            return None
        uses = self._uses.pop(text, 0) + 1
        if uses < uses_min:
            _keep(self._uses, text, uses)
            return None
        number = _varint(self._next)
        self.fresh.append((self._next, text))
        _keep(self._words, self._next, text)
        _keep(self._numbers, text, number)
        self._next += 1
        return number

    def unpack(self, event: bytes) -> bytes:
        """Return an event as `pack` got it.

        If somebody changed an event so that it cannot be unpacked, return it unchanged. Then it does not match its
        hash.
        """
        if not event or event[0] > _HEAD_BYTES_MAX:
            return event
        at = event[0] + 1
        parts = self._parts.get(event[1:at])
        if parts is None:
            try:
                parts, at = self._read_template(event, at)
            except LookupError:
                return event
        made: list[bytes] = []
        for text, mark in parts:
            made.append(text)
            if mark == _UUID:
                digits = hexlify(event[at : at + 16])
                made.append(b"%b-%b-%b-%b-%b" % (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
                at += 16
            elif mark == _HASH:
                made.append(hexlify(event[at : at + 32]))
                at += 32
            elif mark == _KEYS:
                keys = event[at + 1 : at + 1 + int.from_bytes(event[at : at + 1], "big")]
                made.append(keys if b"," in keys else b"%b,%b" % (keys, keys))
                at += 1 + len(keys)
        # A packed event ends with its last value. Otherwise bytes after it could be changed, and nobody would find it.
        return b"".join(made) if at == len(event) else event

    def _read_template(self, event: bytes, rest: int) -> tuple[_Parts, int]:
        """Return the template of a packed event in parts, and the place of its first value.

        `rest` is the place after the head. Raise `LookupError` if `pack` did not make this event.
        """
        texts: list[bytes] = []
        at, end = 1, rest
        while at < end:
            number, at = _read_varint(event, at)
            if number >= _FIRST_WORD:
                texts.append(self._words.get(number) or self._read_word(number))
            elif number:
                texts.append(b'session":"%b"' % hexlify(event[rest : rest + 16]))
                rest += 16
            else:
                size, start = _read_varint(event, rest)
                rest = start + size
                texts.append(event[start:rest])
        pieces = _MARKS.split(_COMMA.join(texts))
        found = tuple(zip(pieces[::2], (*b"".join(pieces[1::2]), 0), strict=True))
        if rest == end:
            _keep(self._parts, event[1:end], found)
        return found, rest

    def _read_word(self, number: int) -> bytes:
        try:
            found = self._connection.execute(QUERIES["word"], (number,)).fetchone()
        except (apsw.SQLError, OverflowError):
            # Somebody changed the event: no word has so large a number, or an older program made this database.
            found = None
        except apsw.Error as error:
            raise StoreError(f"word {number} of the log cannot be read: {error}") from error
        if found is None:
            raise LookupError(number)
        text: bytes = found[0]
        _keep(self._words, number, text)
        return text


def words_of(event: bytes) -> Iterator[int]:
    """Yield the numbers of the words of an event as it is stored. An event that is JSON has none."""
    at, end = 1, event[0] + 1 if event[0] <= _HEAD_BYTES_MAX else 0
    while at < end:
        number, at = _read_varint(event, at)
        if number >= _FIRST_WORD:
            yield number


def _take_sent(event: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the template of a message's event in two halves, and its values.

    The second half begins with the hash. So the first depends on sender and target, the second on the thread, and both
    are often in memory. Return `None` if the event does not have the form in which the hub writes it.
    """
    start = event.find(_DIGEST, _ID_END)
    end = start + len(_DIGEST) + 64
    tail, digits, size = event[end:], event[_ID:_ID_END] + event[end - 64 : end], 48
    at = tail.find(_REPLY_TO) + len(_REPLY_TO)
    dashes = b"----"
    if at >= len(_REPLY_TO):
        answered = tail[at : at + 36]
        tail, digits, size = b"%b\1%b" % (tail[:at], tail[at + 36 :]), digits + answered, 64
        dashes = answered[8:24:5]
    digits = digits.replace(b"-", b"")
    try:
        values = unhexlify(digits)
    except Error:
        return None
    if event[_ID + 8 : _ID + 24 : 5] != b"----" or dashes != b"----" or len(values) != size or not digits.islower():
        return None
    return b"%b\1%b" % (_SEND, event[_ID_END:start]), _HASHED + tail, values


def _take_moved(event: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the template of an event of any other kind, an empty second half, and its values.

    The values are keys of deliveries, if the event has some. Return `None` if they are too long, or do not have the
    form in which the hub writes them.
    """
    start = event.find(_MOVED) + len(_MOVED)
    if start < len(_MOVED):
        return event, b"", b""
    end = event.find(_MOVED_END, start)
    keys = event[start:end]
    first, comma, last = keys.partition(b",")
    if first == last:
        keys = first
    if end < 0 or not comma or len(keys) > _KEYS_BYTES_MAX:
        return None
    return b"%b\3%b" % (event[:start], event[end:]), b"", b"%c%b" % (len(keys), keys)


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= KNOWN_MAX:
        # The older half goes at once: to find the oldest key takes time, because a dictionary keeps empty places.
        for old in list(islice(known, KNOWN_MAX // 2)):
            del known[old]
    known[key] = value


def _varint(number: int) -> bytes:
    """Return a number as bytes with 7 bits each, the lowest first. The high bit of all but the last byte is set."""
    made = bytearray()
    while number > _LOW_BITS:
        made.append(number & _LOW_BITS | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place of `data`, and the place after it. Raise `IndexError` at the end of `data`."""
    number = shift = 0
    while data[at] > _LOW_BITS:
        number |= (data[at] & _LOW_BITS) << shift
        shift += 7
        at += 1
    return number | data[at] << shift, at + 1
