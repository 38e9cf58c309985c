"""The logs over HTTP: `GET /api/log/{log}?from=&to=`, as lines of JSON, for the pipeline on other machines.

Above: the HTTP port. Below: connections of its own to the databases, read on threads of its own, so that the broker's
thread has no part in it. An answer is streamed in pages, each read when the one before it is on its way: a slow reader
costs one page of memory and holds neither a thread nor a transaction, one that is gone costs nothing. It ends after
`_ROWS_MAX` rows: whoever wants more asks again from the next offset. It takes a token with the permission `log.read`.
"""

import asyncio
import contextlib
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.contract.command import ReadLog
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.core.store import MAIN, Route, StoreError
from tieline.stores.sqlite.pages import LOGS, LogPages, read_said
from tieline.wire.http import Answer, answer, bearer, foreign, header, respond
from tieline.wire.log_lines import CUT, END_HEADER, NEXT_HEADER, ActivityLine, MainLine, MessageLine, ObjectiveLine
from tieline.wire.sessions import Sessions

PROTOCOL = "tieline"

_PATH = re.compile(r"/api/log/([^/]{1,64})\Z")
_PAGE_ROWS = 1000
"""Rows that are read and encoded at a time: a few milliseconds of a thread that shares the interpreter."""
_ROWS_MAX = 200_000
"""Rows of one answer: a reader that hangs does not hold a connection for hours."""
_THREADS = 4
"""Pages that are read at the same time; others wait for their turn."""
_OFFSET_MAX = 2**62  # behind the end of any log, and still a number to the database
_OFFSET = re.compile(r"[0-9]{1,19}")
_FIELDS_MAX = 16  # more than the route has
_STATUSES = {Code.UNAUTHORIZED: 401, Code.UNKNOWN_SESSION: 401, Code.FORBIDDEN: 403, Code.UNKNOWN_LOG: 404}

_encoder = msgspec.json.Encoder()


class _Range(Struct, frozen=True):
    log: str
    start: int
    end: int
    packed: bool
    """Whether the reader takes gzip."""
    only_head: bool


class LogApi:
    """The route. An HTTP application for the hub's port."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self._home = home
        self._sessions = Sessions(hub, PROTOCOL, acknowledges=False)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tieline-log")
        self._closing = False

    def serves(self, scope: Scope) -> bool:
        """See `HttpApp.serves`."""
        return scope["type"] == "http" and _PATH.match(scope["path"]) is not None

    def close(self) -> None:
        """See `HttpApp.close`."""
        self._closing = True
        self._sessions.close()
        self._threads.shutdown(wait=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `HttpApp.__call__`."""
        asked = await self._asked(scope)
        if isinstance(asked, Answer):
            await respond(send, asked)
            return
        gone = asyncio.create_task(_hung_up(receive))
        try:
            with closing(LogPages(self._home)) as pages:
                await self._stream(pages, asked, gone, send)
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _asked(self, scope: Scope) -> "_Range | Answer":
        """What is asked for, if it may be."""
        found = _PATH.match(scope["path"])
        assert found is not None, "served only then"
        if scope["method"] not in ("GET", "HEAD"):
            return _no(405, "only GET is answered here")
        token = bearer(scope)
        if token is None or foreign(scope):
            return _no(401, "show a token with the permission log.read as a bearer", Code.UNAUTHORIZED)
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            return _refused(held)
        # The hub decides who may read its logs; asked for rows that no log has, it gives none.
        (reply,) = await self._sessions.ask(
            token, held, lambda session: (ReadLog(session, log=found[1], start=_OFFSET_MAX, limit=1),)
        )
        if isinstance(reply, Refusal):
            return _refused(reply)
        if found[1] not in LOGS:
            return _no(404, f"there is no log {found[1]!r}; there are {' and '.join(LOGS)}", Code.UNKNOWN_LOG)
        try:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), True, max_num_fields=_FIELDS_MAX))
        except ValueError:
            return _no(400, "only from and to can be asked for", Code.INVALID_REQUEST)
        start, end = query.get("from", "0"), query.get("to", str(_OFFSET_MAX))
        offsets = _OFFSET.fullmatch(start) and _OFFSET.fullmatch(end)
        if not offsets or int(start) > _OFFSET_MAX or int(end) > _OFFSET_MAX:
            return _no(400, "from and to are offsets: numbers from 0 on", Code.INVALID_REQUEST)
        return _Range(found[1], int(start), int(end), _takes_gzip(scope), scope["method"] == "HEAD")

    async def _stream(self, pages: LogPages, asked: _Range, gone: "asyncio.Task[None]", send: Send) -> None:
        loop = asyncio.get_running_loop()
        try:
            log_end = await loop.run_in_executor(self._threads, pages.end, asked.log)
            names = await loop.run_in_executor(self._threads, pages.names)
        except StoreError as error:
            await respond(send, _no(503, str(error)))
            return
        end = max(asked.start, min(asked.end, log_end, asked.start + _ROWS_MAX))
        headers = [
            (b"content-type", b"application/x-ndjson"),
            (b"vary", b"accept-encoding"),
            (END_HEADER.encode(), b"%d" % log_end),
            (NEXT_HEADER.encode(), b"%d" % end),
            *([(b"content-encoding", b"gzip")] if asked.packed else []),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        packer = zlib.compressobj(1, wbits=31) if asked.packed else None
        for first in range(asked.start, asked.start if asked.only_head else end, _PAGE_ROWS):
            last = min(first + _PAGE_ROWS, end)
            packed = None
            # Too late for a status: an answer that breaks off is one that the reader can tell from a whole one.
            with contextlib.suppress(StoreError):
                if not (self._closing or gone.done()):
                    reading = (pages, asked.log, first, last, names, packer)
                    packed = await loop.run_in_executor(self._threads, _page, *reading)
            if packed is None:
                rest = packer.flush(zlib.Z_SYNC_FLUSH) if packer else CUT
                await send({"type": "http.response.body", "body": rest})
                return
            if packed:
                # Returns once the socket has room again, or is gone.
                await send({"type": "http.response.body", "body": packed, "more_body": True})
        await send({"type": "http.response.body", "body": packer.flush() if packer else b""})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _takes_gzip(scope: Scope) -> bool:
    for one in (header(scope, b"accept-encoding") or "").lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";q=")
        if name in ("gzip", "x-gzip", "*"):
            return weight.strip("0.") != "" or not weight
    return False


def _page(pages: LogPages, log: str, first: int, last: int, names: dict[int, str], packer: Any) -> bytes:
    lines = _main_lines(pages, first, last, names) if log == MAIN else _activity_lines(pages, first, last, names)
    encoded = b"".join(_encoder.encode(line) + b"\n" for line in lines)
    return packer.compress(encoded) if packer else encoded


def _main_lines(pages: LogPages, first: int, last: int, names: dict[int, str]) -> Iterable[MainLine]:
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
    said, route = read_said(content), Route.unpack(packed)
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
        thread=said.thread,
        reply_to=said.reply_to,
    )


def _activity_lines(pages: LogPages, first: int, last: int, names: dict[int, str]) -> Iterable[ActivityLine]:
    for offset, at_ms, number, kind, ts_ms, event in pages.activity(first, last):
        yield ActivityLine(offset, at_ms, number, kind, ts_ms, event.decode(errors="replace"), names.get(number))


def _no(status: int, text: str, code: Code | None = None) -> Answer:
    return answer({"error": text, **({"code": code.value} if code else {})}, status)


def _refused(refusal: Refusal) -> Answer:
    return _no(_STATUSES.get(refusal.code, 400), refusal.message, refusal.code)
