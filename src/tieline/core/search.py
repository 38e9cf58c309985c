"""Search: full-text search over the messages that a member may see.

The broker only checks the request, which is fast. The search index makes the reply later, on its own thread and from
its own storage. The index reads new messages after they are stored, so indexing does not slow down sending.
"""

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply
from tieline.core.directory import Session
from tieline.core.outcome import Deferred
from tieline.core.reading import ReadingRules
from tieline.core.rules import Rules, decides
from tieline.core.search_query import SearchQuery, parse

_PLACE = ("@", "#", "chan:", "obj:")


class SearchRules(Rules):
    """Rule for the command `Search`. It says who may search, and in which messages."""

    def __init__(self, reading: ReadingRules) -> None:
        self._reading = reading

    @decides(c.Search)
    def search(self, session: Session, command: c.Search) -> Reply | Deferred:
        """Check a search request. If it is valid, the search index replies later."""
        account = session.account
        if account is None and not session.operator:
            return Refusal(Code.FORBIDDEN, "searching is for members")
        terms = parse(command.query)
        if isinstance(terms, Refusal):
            return terms
        place = command.place
        named = place is not None and place.startswith(_PLACE)
        history_query = self._reading.view_of(account, place if named else None, command.limit)
        query = SearchQuery(
            history_query=replace(history_query, before=command.before),
            terms=terms,
            sender=command.sender,
            thread=None if named else place,
            from_ms=command.from_ms,
            to_ms=command.to_ms,
            protocol=session.protocol,
        )
        return Deferred(query)
