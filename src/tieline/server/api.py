"""The hub's own questions over plain HTTP: receipts and search, under `/api/`.

Above: the HTTP port. Below: the Hub port. A request shows a member's token as a bearer, or the cookie of a console, and
sees what that member may see. The shapes are those of the hub's own protocol, so `tieline --json`, the SDK and this say
the same; a "no" is `{"error", "code"}` with the refusal's code.
"""

import contextlib
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.refusal import Code, Refusal
from tieline.wire.http import Answer, answer, foreign, respond, session_token
from tieline.wire.native import frames as f
from tieline.wire.native import views
from tieline.wire.native.frame import Number
from tieline.wire.sessions import Sessions

PROTOCOL = "tieline"
_RECEIPTS = re.compile(r"/api/messages/([^/]{1,200})/receipts\Z")
_SEARCH = "/api/search"
_PARAMETERS_MAX = 16  # more than any route has

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
"""The status of each refusal; any other is 400."""


class ReceiptsView(Struct, frozen=True):
    """What became of a message."""

    id: str
    receipts: tuple[f.ReceiptView, ...]
    more: bool
    """Whether there are more recipients: ask again with `after`, the name of the last."""


class SearchView(Struct, frozen=True):
    """What was found, newest first."""

    messages: tuple[f.Message, ...]


class Question(Struct, frozen=True, forbid_unknown_fields=True, rename={"place": "in", "sender": "from"}):
    """The query of a search."""

    q: str
    sender: str | None = None
    place: str | None = None
    since: Number | None = None
    until: Number | None = None
    """Milliseconds of the epoch; both ends count."""
    before: Number | None = None
    """Only messages whose log offset is lower: the last one's, for the next page."""
    limit: Number = 50

    def command(self, session: SessionId) -> c.Search:
        """The question in the hub's words."""
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


class Api:
    """The routes. An HTTP application for the hub's port."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._sessions = Sessions(hub, PROTOCOL, acknowledges=False)

    def serves(self, scope: Scope) -> bool:
        """Whether the path is one of its own."""
        return scope["type"] == "http" and (scope["path"] == _SEARCH or bool(_RECEIPTS.match(scope["path"])))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await respond(send, await self._answer(scope))

    def close(self) -> None:
        """The hub stops."""
        self._sessions.close()

    async def _answer(self, scope: Scope) -> Answer:
        if scope["method"] not in ("GET", "HEAD"):
            return _no(405, Code.INVALID_REQUEST, "only GET is answered here")
        if foreign(scope):
            return _no(403, Code.FORBIDDEN, "a page from elsewhere may not ask this")
        asked = _RECEIPTS.match(scope["path"])
        question = None if asked else _question(scope["query_string"])
        after = _after(scope["query_string"]) if asked else ""
        if isinstance(question, Answer):
            return question
        token = session_token(scope)
        if token is None:
            return _no(401, Code.UNAUTHORIZED, "show a member's token: Authorization: Bearer …")
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            return _refused(held)

        def make(session: SessionId) -> Sequence[c.Command]:
            if question is not None:
                return (question.command(session),)
            assert asked is not None, "one of the two routes"
            return (c.ReadReceipts(session, message_id=MessageId(asked[1]), after=after),)

        match await self._sessions.ask(token, held, make):
            case (r.Receipts(message_id, receipts, more),):
                return answer(ReceiptsView(message_id, tuple(map(views.view_receipt, receipts)), more))
            case (r.History(messages),):
                return answer(SearchView(tuple(map(views.view_message, messages))))
            case (Refusal() as refusal, *_):
                return _refused(refusal)
            case replies:
                raise AssertionError(f"answered by {replies}")


def _question(query: bytes) -> Question | Answer:
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX
        )
        return msgspec.convert(dict(pairs), Question, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        return _no(400, Code.INVALID_REQUEST, f"invalid query: {error}")


def _after(query: bytes) -> str:
    """The name behind which receipts go on. What is no query asks for the first page."""
    with contextlib.suppress(ValueError):
        return dict(parse_qsl(query.decode("ascii"), max_num_fields=_PARAMETERS_MAX)).get("after", "")
    return ""


def _refused(refusal: Refusal) -> Answer:
    return _no(_STATUSES.get(refusal.code, 400), refusal.code, refusal.message)


def _no(status: int, code: Code, text: str) -> Answer:
    return answer({"error": text, "code": code.value}, status)
