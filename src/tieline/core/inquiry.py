"""An inquiry: words that somebody looks for, among the messages that it may see; and the index that finds them.

Above: `core.search`, which makes inquiries, and the thread that has the index carry them out. Below: one index for each
kind of store.
"""

import re
from collections.abc import Container, Sequence
from typing import Protocol

from msgspec import Struct

from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.core.store import HistoryQuery

_QUERY_CHARACTERS_MAX = 1000  # people type less
_TERMS_MAX = 32  # each term costs a look into the index
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_WORD = re.compile(r"[^\W_]")


class Term(Struct, frozen=True):
    """Words that stand next to each other; the last may go on."""

    text: str
    prefix: bool = False


class Inquiry(Struct, frozen=True, kw_only=True):
    """What somebody looks for, among what it may see."""

    history_query: HistoryQuery
    terms: tuple[Term, ...]
    """All of them must be there."""
    sender: str | None
    thread: str | None
    from_ms: int | None
    to_ms: int | None
    """Both ends count."""
    protocol: str
    """Of the session that asks: what is signed badly is shown to sessions of its own protocol alone."""

    def sees(self, offset: int, sender: str, target: str, threads: Container[str]) -> bool:
        """Whether a message is among those that may be shown; `threads` are those that the reader has a part in."""
        seen = self.history_query
        reader, peer = seen.reader, seen.peer
        if offset < seen.since:
            return False
        if seen.places is not None:
            return any(span.target == target and span.holds(offset) for span in seen.places)
        if peer is not None:
            forth = target == f"@{peer}" and reader in (None, sender)
            return forth or (sender == peer and reader is not None and target == f"@{reader}")
        if reader is None or sender == reader:
            return True
        if target.startswith("obj:"):
            return seen.all_threads or target in threads
        return any(span.target == target and span.holds(offset) for span in seen.spans)

    def shows(self, message: Message) -> bool:
        """Whether a message that may be seen is one that was asked for."""
        if self.thread is not None and self.thread not in (message.content.thread, message.content.reply_to):
            return False
        reader = self.history_query.reader
        return reader is None or message.sender == reader or message.reaches(self.protocol)


class SearchIndex(Protocol):
    """Full text over the messages of one store. Its caller is one thread, of its own."""

    def find(self, inquiry: Inquiry) -> Sequence[Message]:
        """What was asked for, newest first. Everything that was committed before is in it."""

    def work(self) -> bool:
        """Take in a little of what is new, or forget a little of what retention forgot; says whether there is more."""

    def close(self) -> None:
        """Release everything."""


def parse(query: str) -> tuple[Term, ...] | Refusal:
    """The terms of a query: words, "phrases in quotes", and beginnings of words with a star."""
    if len(query) > _QUERY_CHARACTERS_MAX:
        return Refusal(Code.INVALID_REQUEST, f"a query has at most {_QUERY_CHARACTERS_MAX} characters")
    if "\0" in query:
        # SQLite's full text search would end its expression there.
        return Refusal(Code.INVALID_REQUEST, "a query holds no NUL character")
    terms = []
    for phrase, word in _TERM.findall(query):
        text = phrase or word.rstrip("*")
        if _WORD.search(text):
            terms.append(Term(text, word.endswith("*")))
    if not terms:
        return Refusal(Code.INVALID_REQUEST, "say at least one word to look for")
    return tuple(terms[:_TERMS_MAX])
