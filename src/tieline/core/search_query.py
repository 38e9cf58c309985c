"""A search query over the messages that its reader may see, and the interface of the index that carries it out.

`core.search` creates queries, and a separate thread runs them on the index. Each kind of store has its own index.
"""

import re
from collections.abc import Container, Sequence
from typing import Protocol

from msgspec import Struct

from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.core.store import HistoryQuery

_QUERY_CHARACTERS_MAX = 1000  # people type less
_TERMS_MAX = 32  # each term costs one lookup in the index
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_WORD = re.compile(r"[^\W_]")


class Term(Struct, frozen=True):
    """A word, or a phrase of adjacent words, in a search query.

    With `prefix`, the last word is only the beginning of a word.
    """

    text: str
    prefix: bool = False


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A full-text search, limited to the messages that its reader may see."""

    history_query: HistoryQuery
    """The messages that the reader may see, and the limits of the answer."""
    terms: tuple[Term, ...]
    """A message matches only if it contains all of these terms."""
    sender: str | None
    thread: str | None
    from_ms: int | None
    to_ms: int | None
    """The time range includes both `from_ms` and `to_ms`."""
    protocol: str
    """Protocol of the session that asks. It matters for messages with a bad signature; see `shows`."""

    def sees(self, offset: int, sender: str, target: str, threads: Container[str]) -> bool:
        """True if the query's reader may see the message with this log offset, sender and target.

        `threads` are the threads that the reader takes part in.
        """
        seen = self.history_query
        reader, peer = seen.reader, seen.peer
        if offset < seen.since:
            return False
        if seen.places is not None:
            return any(span.target == target and span.contains(offset) for span in seen.places)
        if peer is not None:
            forth = target == f"@{peer}" and reader in (None, sender)
            return forth or (sender == peer and reader is not None and target == f"@{reader}")
        if reader is None or sender == reader:
            return True
        if target.startswith("obj:"):
            return seen.all_threads or target in threads
        return any(span.target == target and span.contains(offset) for span in seen.spans)

    def shows(self, message: Message) -> bool:
        """True if the message is in the requested thread, and the session's protocol may show it.

        If the query has a reader, a message with a bad signature is shown only to its sender, and to sessions of the
        protocol that it was sent through.
        """
        if self.thread is not None and self.thread not in (message.content.thread, message.content.reply_to):
            return False
        reader = self.history_query.reader
        return reader is None or message.sender == reader or message.reaches(self.protocol)


class SearchIndex(Protocol):
    """Interface of the full-text index over the messages of one store. One dedicated thread calls it."""

    def find(self, query: SearchQuery) -> Sequence[Message]:
        """Return matching messages, newest first. The search covers every message that was committed before."""

    def work(self) -> bool:
        """Add some new messages to the index, or remove some that were deleted from the store.

        Return true if work is left.
        """

    def start_over(self) -> None:
        """Delete the whole index. `work` and `find` make it anew from the messages that are stored now."""

    def close(self) -> None:
        """Close the index."""


def parse(query: str) -> tuple[Term, ...] | Refusal:
    """Return the terms of a query, or a refusal if the query is invalid.

    Terms are words, "phrases in quotes", and prefixes that end with a star.
    """
    if len(query) > _QUERY_CHARACTERS_MAX:
        return Refusal(Code.INVALID_REQUEST, f"a query has at most {_QUERY_CHARACTERS_MAX} characters")
    if "\0" in query:
        # A NUL character would end the search expression of SQLite.
        return Refusal(Code.INVALID_REQUEST, "a query holds no NUL character")
    terms = []
    for phrase, word in _TERM.findall(query):
        text = phrase or word.rstrip("*")
        if _WORD.search(text):
            terms.append(Term(text, word.endswith("*")))
    if not terms:
        return Refusal(Code.INVALID_REQUEST, "say at least one word to look for")
    return tuple(terms[:_TERMS_MAX])
