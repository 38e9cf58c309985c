"""The search index in PostgreSQL: the words of each message as a `tsvector`, with an index of PostgreSQL.

The searcher uses this index, on one thread and on its own connection. Committed messages are indexed later, some at a
time, so a write never waits for the index. Messages are split into words here and not by PostgreSQL, whose parser
splits host names, numbers and words with hyphens in other ways than SQLite's index does. PostgreSQL finds the messages
that have all words. Words of a phrase must also stand side by side, which is checked here.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain

from tieline.contract.message import Content, Message
from tieline.core.search_query import SearchQuery, Term
from tieline.core.store import INTEGER_MAX, StoreError
from tieline.stores.postgres.columns import Bigints, Texts
from tieline.stores.postgres.connection import Guard, PostgresConnection, Row
from tieline.stores.postgres.stored_message import decode_said
from tieline.stores.rows import content_decoder

_PIECE = 1000
"""Number of log rows that are indexed in one step. One step takes some tens of milliseconds."""
_BEHIND_MAX = 50_000
"""Largest number of log rows that may be left to index while the log grows. Indexing pauses while the log grows,
because writers need the processor. Above this number, indexing continues."""
_CHARACTERS_MAX = 256 * 1024
"""Largest number of characters of a message's body that are indexed."""
_WORD_CHARACTERS_MAX = 200
"""Longer words are found by their beginning. The server takes words of up to 2046 bytes."""
_WORDS_BYTES_MAX = 700_000
"""Largest size of the words of one message. The server takes a megabyte with its own numbers."""
_PAGE_MIN, _PAGE_MAX = 100, 5000
"""Number of candidates that are read at once: first few, because most questions need one page."""
_MS_MIN = -(2**63)  # what the database keeps as a number

_MARKS = re.compile(r"[\u0300-\u036f]+")
_WORDS = re.compile(r"[^\W_]+")


class PostgresSearch:
    """Implementation of `SearchIndex`: finds messages by the words in their bodies and titles."""

    def __init__(self, url: str, schema: str, guard: Guard | None = None) -> None:
        self._connection = PostgresConnection(url, schema, "main", guard=guard)
        # End of the log at the last check, to see whether the log grows.
        self._looked = -1

    def find(self, query: SearchQuery) -> Sequence[Message]:
        """Index all new messages, then return the messages that match, newest first. See `SearchIndex.find`."""
        while self._take_in():
            pass
        return list(self._find(query))

    def _find(self, query: SearchQuery) -> Iterator[Message]:
        seen = query.history_query
        wanted = [words_of(term.text) for term in query.terms]
        phrases = [(words, term.prefix) for words, term in zip(wanted, query.terms, strict=True) if len(words) > 1]
        count = total = 0
        for message in self._candidates(query, _expression(wanted, query.terms)):
            if not query.shows(message) or not all(_has(message.content, *phrase) for phrase in phrases):
                continue
            count += 1
            total += len(message.content.body)
            if count > 1 and total > seen.bytes_max:
                return
            yield message
            if count == seen.limit:
                return

    def _candidates(self, query: SearchQuery, expression: str) -> Iterator[Message]:
        """Yield the messages that have all words and that the reader may see, newest first."""
        seen = query.history_query
        threads = {row[0] for row in self._connection.select("threads_of_member", (seen.threads,))}
        first = _MS_MIN if query.from_ms is None else max(query.from_ms, _MS_MIN)
        last = INTEGER_MAX if query.to_ms is None else min(query.to_ms, INTEGER_MAX)
        before, page = INTEGER_MAX if seen.before is None else seen.before, _PAGE_MIN
        while True:
            values = (expression, seen.since, before, first, last, query.sender, page)
            rows = self._connection.select("search", values)
            visible = [offset for offset, sender, target in rows if query.sees(offset, sender, target, threads)]
            for start in range(0, len(visible), _PAGE_MIN):
                some = Bigints(visible[start : start + _PAGE_MIN])
                yield from map(decode_said, self._connection.select("message_at", (some,)))
            if len(rows) < page:
                return
            before, page = rows[-1][0], min(page * 4, _PAGE_MAX)

    def work(self) -> bool:
        """Index some new messages. Return true if work is left.

        While the log grows, do nothing unless the index is far behind, because writers need the processor more. See
        `SearchIndex.work`. PostgreSQL itself removes the entries of deleted messages.
        """
        position, end, again = self._state()
        grows, self._looked = end != self._looked, end
        if position == end and not again:
            return False
        return self._take_in() if not grows or end - position > _BEHIND_MAX else False

    def start_over(self) -> None:
        """Do nothing. A redaction has already removed the old words from the index, and `work` adds the new words."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _state(self) -> tuple[int, int, bool]:
        """Return the end of the indexed log, the end of the log, and true if redacted messages wait for the index."""
        position, end, again = self._connection.one("search_state")
        return int(position), int(end), bool(again)

    def _take_in(self) -> bool:
        """Index the messages in the next `_PIECE` rows of the log. Return true if messages are left to index."""
        try:
            start, end, again = self._state()
            if again:
                rows = self._connection.select("messages_to_index_again", (_PIECE,))
                self._index(rows)
                self._connection.write("indexed_again", (Bigints([row[0] for row in rows]),))
                self._connection.commit()
                return True
            if start >= end:
                return False
            until = min(start + _PIECE, end)
            self._index(self._connection.select("messages_to_index", (start, until)))
            self._connection.write("set_search_progress", (until,))
            self._connection.commit()
        except StoreError:
            self._connection.roll_back()
            raise
        return until < end

    def _index(self, rows: Sequence[Row]) -> None:
        for offset, content in rows:
            if content is None:
                continue
            said = content_decoder.decode(content)
            self._connection.write("index_message", (offset, Texts(_limited(said))))


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order, in lower case and without accents."""
    if not text.isascii():
        text = _MARKS.sub("", unicodedata.normalize("NFD", text))
    return [word[:_WORD_CHARACTERS_MAX] for word in _WORDS.findall(text.casefold())]


def _limited(said: Content) -> list[str]:
    """Return the words of a message, each once, up to PostgreSQL's limit for a message."""
    found: dict[str, None] = {}
    size = 0
    for word in chain(words_of(said.title or ""), words_of(said.body[:_CHARACTERS_MAX])):
        if word not in found:
            size += len(word.encode()) + 4
            if size > _WORDS_BYTES_MAX:
                break
            found[word] = None
    return list(found)


def _expression(wanted: Sequence[Sequence[str]], terms: Sequence[Term]) -> str:
    """Return PostgreSQL's search expression for these terms. `wanted` has the words of each term, in the same order.

    A word has only letters and digits, so no character needs an escape.
    """
    parts = []
    for words, term in zip(wanted, terms, strict=True):
        for place, word in enumerate(words, 1):
            parts.append(f"'{word}':*" if term.prefix and place == len(words) else f"'{word}'")
    return " & ".join(parts)


def _has(said: Content, phrase: Sequence[str], prefix: bool) -> bool:
    """True if the words of the phrase stand side by side in the body or the title.

    With `prefix`, the last word of the phrase may be only the beginning of a word.
    """
    *whole, last = phrase
    for text in (said.body[:_CHARACTERS_MAX], said.title or ""):
        words = words_of(text)
        for start in range(len(words) - len(whole)):
            end = words[start + len(whole)]
            if words[start : start + len(whole)] == whole and (end.startswith(last) if prefix else end == last):
                return True
    return False
