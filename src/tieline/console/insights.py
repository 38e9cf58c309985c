"""The pipeline's report for the console: `/api/insights`.

Used by: the console's web page, which reads it, and the pipeline (the analysis of the hub's logs) on another machine,
which stores it. Uses: the stored report. The hub never runs the pipeline in its process and never reads its tables.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus

from starlette.types import Scope

from tieline.contract.hub import Hub
from tieline.contract.permission import INSIGHTS_WRITE, LOG_READ
from tieline.contract.refusal import Refusal
from tieline.wire.http import Answer, Bodies, failure, foreign
from tieline.wire.insights import BYTES_MAX, PATH, StoredReport
from tieline.wire.report_parts import Report
from tieline.wire.route import NO_CONTENT, Call, Errors, Refused, Route, no, require
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished


class Insights(RouteApp):
    """HTTP application that stores the pipeline's last report (an analysis of the hub's logs), and sends it."""

    def __init__(self, hub: Hub, stored: StoredReport, unfinished: Unfinished) -> None:
        self._stored = stored
        table = (
            Route("GET", PATH, self.report, gives=("application/json",), errors=(404,)),
            Route("PUT", PATH, self.put, body_bytes_max=BYTES_MAX, undecoded=Report, status=NO_CONTENT, errors=(409,)),
        )
        super().__init__(hub, Sessions(hub, "console"), table, Bodies(unfinished), check=_check, errors=_ERRORS)

    async def report(self, call: Call, _: None) -> Answer:
        """Read the pipeline's last report. Needs log.read."""
        await require(call, LOG_READ)
        return await asyncio.to_thread(self._read, call.header(b"if-none-match"))

    async def put(self, call: Call, body: bytes) -> None:
        """Store the pipeline's report, in place of the last one. Needs log.read and insights.write."""
        await require(call, LOG_READ)
        await require(call, INSIGHTS_WRITE)
        rejected = await asyncio.to_thread(self._stored.put, body)
        if rejected is not None:
            raise Refused(no(rejected.status, rejected.text, rejected.code))

    def _read(self, known: str | None) -> Answer:
        body = self._stored.read()
        if body is None:
            return failure(HTTPStatus.NOT_FOUND, "the pipeline has not run for this hub yet")
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        headers = ((b"etag", tag.encode()), (b"cache-control", b"no-cache"))
        if known == tag:
            return Answer(HTTPStatus.NOT_MODIFIED, b"", headers=headers)
        return Answer(HTTPStatus.OK, body, headers=headers)


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(_ERRORS.no_token)


def _refused(refusal: Refusal) -> Answer:
    return failure(HTTPStatus.UNAUTHORIZED, refusal.message)


def _not_allowed(_scope: Scope, methods: Sequence[str]) -> Answer:
    return no(HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(methods)} are answered here")


_ERRORS = Errors(refused=_refused, not_allowed=_not_allowed)
