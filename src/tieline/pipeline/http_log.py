"""Reads the logs of a hub at a URL: gets `GET /api/log/{log}` line by line, and converts the lines to Arrow batches.

When an answer ends before the last row, the reader sends another request, which begins at the next offset. The hub ends
every answer after a while, so this is not always an error.
"""

import http.client
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from tieline.pipeline.row import MAIN, activity_batch, main_batch, message_columns
from tieline.wire.address import BadPin, split_pin
from tieline.wire.log_lines import END_HEADER, EPOCH_HEADER, NEXT_HEADER, ActivityLine, MainLine, MessageLine
from tieline.wire.tls import open_http

_SECONDS_MAX = 60.0  # the hub sends the first page long before
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.5  # grows with each attempt, so that a hub can restart meanwhile
_CHUNK_BYTES = 1 << 16  # as much as a socket usually holds
_BATCH_ROWS = 8192
_Line = TypeVar("_Line", MainLine, ActivityLine)


class LogUnreachable(Exception):
    """Raised if the URL from which to read the logs is wrong, or no hub answers there."""


class LogRefused(Exception):
    """Raised if the hub does not let this token read its logs."""


class HttpLog:
    """Reader of the logs of the hub at one URL."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LogUnreachable(f"{url!r} is no address of a hub: write http://HOST:PORT")
        try:
            split_pin(url)
        except BadPin as error:
            raise LogUnreachable(str(error)) from error
        self._url = url
        self._parts = parts
        self._token = token

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log will have. `log` is `main` or `activity`."""
        return self._state(log).end

    def epoch(self, log: str) -> str:
        """Return the epoch of a log (its random id). It is empty if the hub does not report an epoch."""
        return self._state(log).epoch

    def _state(self, log: str) -> "_Answer":
        try:
            with self._open(log, 0, 0) as answer:
                return answer
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def read(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a log with `start` <= offset < `end`, in batches."""
        if start >= end:
            return
        if log == MAIN:
            yield from self._read_main(start, end)
            return
        for rows in self._batches(log, start, end, ActivityLine):
            names = {row.number: row.member for row in rows if row.member is not None}
            told = [(row.offset, row.at_ms, row.number, row.kind, row.ts_ms, row.event.encode()) for row in rows]
            yield activity_batch(told, names)

    def _read_main(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        before: list[MainLine] = []
        # The two rows before the first are read too: they show how the first row must follow.
        for rows in self._batches(MAIN, max(0, start - 2), end, MainLine):
            new = [row for row in rows if row.offset >= start]
            earlier = before + rows[: len(rows) - len(new)]
            if new:
                yield _main_rows(earlier[-2:], new)
            before = (before + rows)[-2:]

    def _batches(self, log: str, start: int, end: int, kind: type[_Line]) -> Iterator[list[_Line]]:
        decode = msgspec.json.Decoder(kind).decode
        attempts, at = 0, start
        while at < end:
            progress = at
            try:
                with self._open(log, at, end) as answer:
                    for rows in answer.batches(decode):
                        yield rows
                        at = rows[-1].offset + 1
                    at = max(at, answer.next)
            except (OSError, http.client.HTTPException, zlib.error, msgspec.DecodeError) as error:
                if at == progress:
                    attempts += 1
                if attempts >= _ATTEMPTS:
                    raise self._unreachable(error) from error
                time.sleep(_PAUSE_SECONDS * attempts)
                continue
            if at == progress:
                # The rest of the range does not exist.
                return
            attempts = 0

    def put(self, path: str, body: bytes) -> None:
        """Send a document to the hub, to be stored under a path such as `/api/insights`.

        Raise `LogRefused` if the hub does not store it.
        """
        connection = open_http(self._url, _SECONDS_MAX)
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        try:
            connection.request("PUT", f"{self._parts.path.rstrip('/')}{path}", body, headers)
            response = connection.getresponse()
            told = response.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise self._refused(response.status, told)

    def _open(self, log: str, start: int, end: int) -> "_Answer":
        parts = self._parts
        connection = open_http(self._url, _SECONDS_MAX)
        headers = {"authorization": f"Bearer {self._token}", "accept-encoding": "gzip"}
        path = f"{parts.path.rstrip('/')}/api/log/{log}?from={start}&to={end}"
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status == http.client.OK:
                return _Answer(connection, response)
            told = response.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        connection.close()
        if response.status >= http.client.INTERNAL_SERVER_ERROR:
            raise http.client.HTTPException(_reason(told) or f"status {response.status}")
        raise self._refused(response.status, told)

    def _refused(self, status: int, told: bytes) -> LogRefused:
        return LogRefused(f"the hub at {self._parts.netloc} refused: {_reason(told) or f'status {status}'}")

    def _unreachable(self, error: Exception) -> LogUnreachable:
        reason = str(error) or type(error).__name__
        return LogUnreachable(f"the hub at {self._parts.netloc} does not answer: {reason}")


class _Answer:
    """Answer of the hub to one request for log rows, read line by line. Each line is one row."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._packed = response.headers.get("content-encoding") == "gzip"
        end, after = response.headers.get(END_HEADER, ""), response.headers.get(NEXT_HEADER, "")
        if not (end.isdecimal() and after.isdecimal()):
            raise http.client.HTTPException("what answers there is no hub")
        self.end = int(end)
        self.epoch = response.headers.get(EPOCH_HEADER, "")
        self.next = int(after)
        """Offset at which the next request begins, after the whole answer was read."""

    def __enter__(self) -> "_Answer":
        return self

    def __exit__(self, *_error: object) -> None:
        self._response.close()
        self._connection.close()

    def batches(self, decode: Callable[[bytes], _Line]) -> Iterator[list[_Line]]:
        """Yield the log rows in lists of thousands. `decode` converts a line to a row.

        Raise an error if the answer is incomplete.
        """
        unzip = zlib.decompressobj(wbits=31)
        rest = b""
        rows: list[_Line] = []
        while chunk := self._response.read(_CHUNK_BYTES):
            # A proxy in between may have decompressed the answer.
            *lines, rest = (rest + (unzip.decompress(chunk) if self._packed else chunk)).split(b"\n")
            rows += [decode(line) for line in lines]
            if len(rows) >= _BATCH_ROWS:
                yield rows
                rows = []
        if rows:
            yield rows
        if rest or (self._packed and not unzip.eof):
            # Without this check, missing rows would count as rows that the log does not have.
            raise http.client.HTTPException("the answer broke off")


def _log_rows(lines: list[MainLine]) -> list[tuple[int, int, bytes, bytes]]:
    return [(line.offset, line.at_ms, line.event.encode(), bytes.fromhex(line.hash)) for line in lines]


def _main_rows(before: list[MainLine], rows: list[MainLine]) -> pa.RecordBatch:
    kept = [(row.offset, row.message) for row in rows if row.message is not None]
    happened = [
        (row.offset, row.objective.id, row.objective.actor, row.objective.happening.encode())
        for row in rows
        if row.objective is not None
    ]
    columns = _columns([message for _, message in kept]) if kept else {}
    return main_batch(_log_rows(before), _log_rows(rows), [offset for offset, _ in kept], columns, happened)


def _columns(messages: list[MessageLine]) -> dict[str, pa.Array]:
    stamped: list[tuple[Any, ...]] = [
        (
            one.id, one.sender, one.protocol, one.wire_id, one.target, one.sent_at_ms, one.expires_at_ms, one.verified,
            one.hops, one.cause, one.signature,
        )
        for one in messages
    ]  # fmt: skip
    numbers = [number for one in messages for number in one.numbers]
    keys = [key for one in messages for key in one.keys]
    recipients = [name for one in messages for name in one.recipients]
    return message_columns(stamped, messages, [len(one.keys) for one in messages], (numbers, keys, recipients))


def _reason(body: bytes) -> str:
    try:
        told = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return ""
    return str(told.get("error", "")) if isinstance(told, dict) else ""
