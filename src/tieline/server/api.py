"""The hub's own queries over plain HTTP: receipts and search, under `/api/`.

Used by: the HTTP port. Uses: the interface `contract.hub`. A request carries a member's token, as a bearer token or in
the console's cookie. The answer has only data that this member may see. Receipts and messages have the same JSON form
as in the hub's own protocol, in `tieline --json` and in the SDK. A refusal is `{"error", "code"}`, with the code of the
refusal.
"""

from collections.abc import Sequence

from msgspec import Struct
from starlette.types import Scope

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.refusal import Code
from tieline.wire.http import Answer, Bodies, foreign
from tieline.wire.native import derived
from tieline.wire.native import frames as f
from tieline.wire.native.frame import Number
from tieline.wire.route import Call, Errors, Query, Refused, Route, no, refused_by
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

PROTOCOL = "tieline"

_STATUSES: dict[Code, int] = {
    Code.UNAUTHORIZED: 401,
    Code.UNKNOWN_SESSION: 401,
    Code.FORBIDDEN: 403,
    Code.UNKNOWN_MESSAGE: 404,
    Code.ACTIVITY_FULL: 429,
    Code.STORE_FAILED: 500,
    Code.INTERNAL_ERROR: 500,
    Code.SHUTTING_DOWN: 503,
}
"""The HTTP status for each refusal code. A code that is not in this table has the status 400."""


class ReceiptsView(Struct, frozen=True):
    """Answer to `GET /api/messages/{id}/receipts`: for each recipient, the state of the message."""

    id: str
    receipts: tuple[f.ReceiptView, ...]
    more: bool
    """True if there are more recipients. To get their receipts, send another request. Its parameter `after` is the name
    of the last recipient in this answer."""


class SearchView(Struct, frozen=True):
    """Answer to `GET /api/search`: the messages that were found, newest first."""

    messages: tuple[f.Message, ...]


class Question(Struct, frozen=True, forbid_unknown_fields=True, rename={"place": "in", "sender": "from"}):
    """Query parameters of `GET /api/search`."""

    q: str
    sender: str | None = None
    place: str | None = None
    since: Number | None = None
    until: Number | None = None
    """`since` and `until` are milliseconds since 1970. Messages of both of these times are included."""
    before: Number | None = None
    """Find only messages with a lower log offset. For the next page of results, give the offset of the last message
    found."""
    limit: Number = 50

    def command(self, session: SessionId) -> c.Search:
        """Return this search as a command to the hub."""
        place, sender = self.place, self.sender
        return c.Search(
            session,
            query=self.q,
            sender=sender,
            place=place,
            from_ms=self.since,
            to_ms=self.until,
            before=self.before,
            limit=self.limit,
        )


class Api(RouteApp):
    """HTTP application with the routes for receipts and search."""

    def __init__(self, hub: Hub, unfinished: Unfinished) -> None:
        after = Query("after", "The name behind which receipts go on.")
        table = (
            Route("GET", "/api/messages/{id}/receipts", self.receipts, head=True, query=(after,)),
            Route("GET", "/api/search", self.search, head=True, errors=(429,)),
        )
        sessions = Sessions(hub, PROTOCOL, acknowledges=False)
        super().__init__(hub, sessions, table, Bodies(unfinished), check=_check, errors=_ERRORS)

    async def receipts(self, call: Call, _: None) -> ReceiptsView:
        """Read the receipts of a message, by recipient."""
        message_id, after = MessageId(call.params["id"]), call.query.get("after", "")
        found = await call.get(lambda session: c.ReadReceipts(session, message_id=message_id, after=after), r.Receipts)
        return ReceiptsView(found.message_id, tuple(map(derived.view_receipt, found.receipts)), found.more)

    async def search(self, call: Call, question: Question) -> SearchView:
        """Find messages that contain all words of a query, newest first."""
        found = await call.get(question.command, r.History)
        return SearchView(tuple(map(derived.view_message, found.messages)))


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(no(403, "a page from elsewhere may not ask this", Code.FORBIDDEN.value))


def _not_allowed(_scope: Scope, _methods: Sequence[str]) -> Answer:
    return no(405, "only GET is answered here", Code.INVALID_REQUEST.value)


_ERRORS = Errors(
    refused=refused_by(_STATUSES),
    no_token=no(401, "show a member's token: Authorization: Bearer …", Code.UNAUTHORIZED.value),
    not_allowed=_not_allowed,
)
