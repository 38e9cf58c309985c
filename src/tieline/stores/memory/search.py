"""Search over the memory store: every message is looked at, which is quick enough for what fits into memory."""

import re
import unicodedata
from collections.abc import Sequence

from tieline.contract.message import Message
from tieline.core.inquiry import Inquiry, Term
from tieline.stores.memory.store import MemoryStore

_WORD = re.compile(r"[^\W_]+")


class MemorySearch:
    """See `SearchIndex`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def find(self, inquiry: Inquiry) -> Sequence[Message]:
        """See `SearchIndex.find`."""
        found: list[Message] = []
        total = 0
        seen = inquiry.chronicle
        threads = self._store.threads_of(seen.threads)
        for message in self._store.committed_messages()[::-1]:
            target = str(message.content.target)
            if not (
                (seen.before is None or message.offset < seen.before)
                and inquiry.sender in (None, message.sender)
                and (inquiry.from_ms is None or message.sent_at_ms >= inquiry.from_ms)
                and (inquiry.to_ms is None or message.sent_at_ms <= inquiry.to_ms)
                and inquiry.sees(message.offset, message.sender, target, threads)
                and inquiry.shows(message)
                and _says(message, inquiry.terms)
            ):
                continue
            total += len(message.content.body)
            if found and total > seen.bytes_max:
                break
            found.append(message)
            if len(found) == seen.limit:
                break
        return found

    def work(self) -> bool:
        """See `SearchIndex.work`. There is nothing to follow."""
        return False

    def close(self) -> None:
        """See `SearchIndex.close`."""


def _says(message: Message, terms: Sequence[Term]) -> bool:
    texts = [_words(message.content.body), _words(message.content.title or "")]
    return all(any(_has(words, term) for words in texts) for term in terms)


def _words(text: str) -> list[str]:
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return _WORD.findall(plain.casefold())


def _has(words: list[str], term: Term) -> bool:
    wanted = _words(term.text)
    for start in range(len(words) - len(wanted) + 1):
        *whole, last = words[start : start + len(wanted)]
        if whole == wanted[:-1] and (last.startswith(wanted[-1]) if term.prefix else last == wanted[-1]):
            return True
    return False
