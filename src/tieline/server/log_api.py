"""The logs over HTTP: `GET /api/log/{log}?from=&to=`, as lines of JSON, for the pipeline on other machines.

`GET /api/log` lists the logs and their readers. `PUT /api/log/readers/{name}` sets the position of a reader, and
`DELETE` removes the reader.

Used by: the HTTP port. Uses: the databases. This module has its own connections to them, and its own threads, so that
the broker's thread is not used. An answer is sent in pages. A page is read from the database only when the page before
it was sent. So a slow reader needs the memory of one page, but no thread and no transaction. An answer ends after
`_ROWS_MAX` rows. A reader that wants more rows sends a new request from the next offset. A request needs a token with
the permission `log.read`.
"""

import asyncio
import contextlib
import re
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope

from tieline.contract import reply as r
from tieline.contract.command import AdvanceReader, ForgetReader, ListReaders, ReadLog
from tieline.contract.hub import Hub
from tieline.contract.identifiers import SessionId
from tieline.contract.reader import LogState, Reader
from tieline.contract.refusal import Code
from tieline.core.store import MAIN, DeliveryRoute, StoreError
from tieline.stores.pages import LOGS, Pages, read_said
from tieline.wire.http import Bodies, bearer, foreign, header
from tieline.wire.log_lines import (
    CUT,
    END_HEADER,
    EPOCH_HEADER,
    KEPT_HEADER,
    NEXT_HEADER,
    ActivityLine,
    MainLine,
    MessageLine,
    ObjectiveLine,
)
from tieline.wire.route import NO_CONTENT, Call, Download, Errors, Query, Refused, Route, no, only_get, refused_by
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

PROTOCOL = "tieline"

_LINES = "application/x-ndjson"
_OFFSET_SCHEMA = {"type": "integer", "minimum": 0}
_PAGE_ROWS = 1000
"""Number of rows that are read and encoded at once. This takes a few milliseconds. In this time, the thread may hold
the interpreter lock."""
_ROWS_MAX = 200_000
"""Most rows of one answer, so that a reader that hangs does not hold a connection for hours."""
_THREADS = 4
"""Number of threads that read from the databases, so at most this many pages are read at the same time. Other requests
wait for a free thread."""
_OFFSET_MAX = 2**62  # after the end of any log, but still a valid number for the database
_OFFSET = re.compile(r"[0-9]{1,19}")
_FIELDS_MAX = 16  # more than the route has
_FORM_BYTES_MAX = 4096  # a position takes far less
_STATUSES = {
    Code.UNAUTHORIZED: 401,
    Code.UNKNOWN_SESSION: 401,
    Code.FORBIDDEN: 403,
    Code.UNKNOWN_LOG: 404,
    Code.UNKNOWN_READER: 404,
    Code.TOO_MANY_READERS: 409,
    Code.WRONG_EPOCH: 409,
    Code.STORE_FAILED: 503,
}

_encoder = msgspec.json.Encoder()


class LogsView(Struct, frozen=True):
    """Answer to `GET /api/log`: the logs, and the readers for which the hub does not delete unread rows."""

    logs: tuple[LogState, ...]
    readers: tuple[Reader, ...]


class ReaderView(Struct, frozen=True):
    """Answer to `PUT /api/log/readers/{name}`: the changed reader, and its log.

    Rows of the log before `kept_from` may already be deleted.
    """

    reader: Reader
    log: LogState


class PositionForm(Struct, frozen=True, forbid_unknown_fields=True):
    """JSON input of `PUT /api/log/readers/{name}`: the new position of a reader."""

    position: int
    log: str = MAIN
    epoch: str = ""
    """The epoch (random id) of the log, as the reader knows it. If it is given and the log has another epoch, the
    request is refused."""
    rewind: bool = False
    """True to allow a position before the reader's current position."""


class _Range(Struct, frozen=True):
    log: str
    state: r.LogRows
    """The hub's description of the log: its epoch (random id), and the offset after all deleted rows."""
    start: int
    end: int
    packed: bool
    """True if the reader accepts an answer that is compressed with gzip."""
    only_head: bool


class LogApi(RouteApp):
    """HTTP application with the routes below `/api/log`, by which other programs read the hub's logs."""

    def __init__(self, hub: Hub, open_pages: Callable[[], Pages], unfinished: Unfinished) -> None:
        self._open_pages = open_pages
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tieline-log")
        self._closing = False
        query = (
            Query("from", "The offset of the first row.", _OFFSET_SCHEMA),
            Query("to", "The offset before which it ends.", _OFFSET_SCHEMA),
        )
        table = (
            Route("GET", "/api/log/{log}", self.read, head=True, query=query, gives=(_LINES,)),
            Route("GET", "/api/log", self.readers),
            Route("PUT", "/api/log/readers/{name}", self.advance, body_bytes_max=_FORM_BYTES_MAX, errors=(404, 409)),
            Route("DELETE", "/api/log/readers/{name}", self.forget, status=NO_CONTENT, errors=(404,)),
        )
        sessions = Sessions(hub, PROTOCOL, acknowledges=False)
        super().__init__(hub, sessions, table, Bodies(unfinished), check=_check, token=bearer, errors=_ERRORS)

    def close(self) -> None:
        """End the answers that are still being sent, because the hub stops."""
        self._closing = True
        super().close()
        self._threads.shutdown(wait=False)

    async def read(self, call: Call, _: None) -> Download:
        """Read rows of a log as lines of JSON. Needs log.read."""
        asked = await _asked(call)
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as opened:
            pages = opened.enter_context(contextlib.closing(self._open_pages()))
            try:
                log_end = await loop.run_in_executor(self._threads, pages.end, asked.log)
                names = await loop.run_in_executor(self._threads, pages.names)
            except StoreError as error:
                raise Refused(no(503, str(error))) from None
            # The answer reads on and closes `pages`.
            opened.pop_all()
        end = max(asked.start, min(asked.end, log_end, asked.start + _ROWS_MAX))
        headers = {
            "content-type": _LINES,
            "vary": "accept-encoding",
            END_HEADER: str(log_end),
            NEXT_HEADER: str(end),
            EPOCH_HEADER: asked.state.epoch,
            KEPT_HEADER: str(asked.state.kept_from),
            **({"content-encoding": "gzip"} if asked.packed else {}),
        }
        return Download(headers, self._pieces(pages, asked, end, names, call.receive))

    async def readers(self, call: Call, _: None) -> LogsView:
        """List the logs with their epochs and offsets, and their readers with their positions. Needs log.read."""
        found = await call.get(ListReaders, r.Readers)
        return LogsView(found.logs, found.readers)

    async def advance(self, call: Call, form: PositionForm) -> ReaderView:
        """Set the position of a reader in a log; a new name makes a reader. Needs log.read."""
        name = call.params["name"]

        def make(session: SessionId) -> AdvanceReader:
            return AdvanceReader(
                session, name=name, position=form.position, log=form.log, epoch=form.epoch, rewind=form.rewind
            )

        found = await call.get(make, r.ReaderState)
        return ReaderView(found.reader, found.log)

    async def forget(self, call: Call, _: None) -> None:
        """Forget a reader in both logs, so that nothing is kept for it. Needs log.read."""
        name = call.params["name"]
        await call.get(lambda session: ForgetReader(session, name=name), r.Done)

    async def _pieces(
        self, pages: Pages, asked: _Range, end: int, names: dict[int, str], receive: Receive
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        packer = zlib.compressobj(1, wbits=31) if asked.packed else None
        gone = asyncio.create_task(_hung_up(receive))
        try:
            for first in range(asked.start, asked.start if asked.only_head else end, _PAGE_ROWS):
                last = min(first + _PAGE_ROWS, end)
                packed = None
                # It is too late for an error status. The answer breaks off, and the reader can tell that it is
                # incomplete.
                with contextlib.suppress(StoreError):
                    if not (self._closing or gone.done()):
                        reading = (pages, asked.log, first, last, names, packer)
                        packed = await loop.run_in_executor(self._threads, _page, *reading)
                if packed is None:
                    yield packer.flush(zlib.Z_SYNC_FLUSH) if packer else CUT
                    return
                if packed:
                    # Continues when the socket has room again, or is closed.
                    yield packed
            if packer:
                yield packer.flush()
        finally:
            pages.close()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone


async def _asked(call: Call) -> _Range:
    """Check the permission of the caller, and return the range of rows that the request asks for.

    Raises `Refused` if the caller has no permission or the range is not valid.
    """
    log, query = call.params["log"], call.query
    # The hub checks the permission. The offset is after the end of any log, so the reply has no rows.
    state = await call.get(lambda session: ReadLog(session, log=log, start=_OFFSET_MAX, limit=1), r.LogRows)
    if log not in LOGS:
        text = f"there is no log {log!r}; there are {' and '.join(LOGS)}"
        raise Refused(no(404, text, Code.UNKNOWN_LOG.value))
    if len(call.pairs) > _FIELDS_MAX:
        raise Refused(no(400, "only from and to can be asked for", Code.INVALID_REQUEST.value))
    start, end = query.get("from", "0"), query.get("to", str(_OFFSET_MAX))
    offsets = _OFFSET.fullmatch(start) and _OFFSET.fullmatch(end)
    if not offsets or int(start) > _OFFSET_MAX or int(end) > _OFFSET_MAX:
        raise Refused(no(400, "from and to are offsets: numbers from 0 on", Code.INVALID_REQUEST.value))
    return _Range(log, state, int(start), int(end), _takes_gzip(call.scope), call.scope["method"] == "HEAD")


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _takes_gzip(scope: Scope) -> bool:
    for one in (header(scope, b"accept-encoding") or "").lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";q=")
        if name in ("gzip", "x-gzip", "*"):
            return weight.strip("0.") != "" or not weight
    return False


def _page(pages: Pages, log: str, first: int, last: int, names: dict[int, str], packer: Any) -> bytes:
    lines = _main_lines(pages, first, last, names) if log == MAIN else _activity_lines(pages, first, last, names)
    encoded = b"".join(_encoder.encode(line) + b"\n" for line in lines)
    return packer.compress(encoded) if packer else encoded


def _main_lines(pages: Pages, first: int, last: int, names: dict[int, str]) -> Iterable[MainLine]:
    page = pages.main(first, last)
    messages = {row[0]: row for row in page.messages}
    happenings = {row[0]: row for row in page.happenings}
    for offset, at_ms, event, digest in page.rows:
        kept, happened = messages.get(offset), happenings.get(offset)
        yield MainLine(
            offset,
            at_ms,
            event.decode(errors="replace"),
            digest.hex(),
            _message(kept, names) if kept else None,
            ObjectiveLine(happened[1], happened[2], happened[3].decode(errors="replace")) if happened else None,
        )


def _message(row: tuple[Any, ...], names: dict[int, str]) -> MessageLine:
    (
        _,
        message_id,
        sender,
        protocol,
        wire_id,
        target,
        sent,
        expires,
        verified,
        hops,
        cause,
        signature,
        content,
        packed,
    ) = row
    said, route = read_said(content), DeliveryRoute.unpack(packed)
    return MessageLine(
        id=message_id,
        sender=sender,
        protocol=protocol,
        target=target,
        sent_at_ms=sent,
        verified=bool(verified),
        numbers=list(route.numbers),
        keys=list(route.keys),
        recipients=[names.get(number) for number in route.numbers],
        body_bytes=said.body_bytes,
        wire_id=wire_id,
        expires_at_ms=expires,
        hops=hops,
        cause=cause,
        signature=signature,
        level=said.level,
        priority=said.priority,
        kind=said.kind,
        scope=said.scope,
        thread=said.thread,
        reply_to=said.reply_to,
    )


def _activity_lines(pages: Pages, first: int, last: int, names: dict[int, str]) -> Iterable[ActivityLine]:
    for offset, at_ms, number, kind, ts_ms, event in pages.activity(first, last):
        yield ActivityLine(offset, at_ms, number, kind, ts_ms, event.decode(errors="replace"), names.get(number))


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(_ERRORS.no_token)


_ERRORS = Errors(
    refused=refused_by(_STATUSES),
    no_token=no(401, "show a token with the permission log.read as a bearer", Code.UNAUTHORIZED.value),
    not_allowed=only_get,
)
