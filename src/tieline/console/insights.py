"""The pipeline's report for the console: `/api/insights`.

Used by: the console's web page. Uses: the file `report.json`, which the pipeline (the analysis of the hub's logs)
writes into its folder `lake` after each run. The hub never runs the pipeline and never reads its tables. The hub only
sends this file to members who may read the log.
"""

import asyncio
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

from starlette.types import Scope

from tieline.contract.hub import Hub
from tieline.contract.permission import LOG_READ
from tieline.contract.refusal import Refusal
from tieline.wire.http import Answer, Bodies, failure, foreign
from tieline.wire.route import Call, Errors, Refused, Route, only_get, require
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

PATH = "/api/insights"
REPORT = Path("lake", "report.json")
"""Path of the pipeline's report, relative to the hub's home folder."""
_BYTES_MAX = 32 * 1024 * 1024  # a report is some megabytes at most, and a browser has to hold it


class Insights(RouteApp):
    """HTTP application that sends the pipeline's last report (an analysis of the hub's logs) to the console."""

    def __init__(self, hub: Hub, home: Path, unfinished: Unfinished) -> None:
        self._report = home / REPORT
        table = (Route("GET", PATH, self.report, gives=("application/json",), errors=(404,)),)
        super().__init__(hub, Sessions(hub, "console"), table, Bodies(unfinished), check=_check, errors=_ERRORS)

    async def report(self, call: Call, _: None) -> Answer:
        """Read the pipeline's last report. Needs log.read."""
        await require(call, LOG_READ)
        return await asyncio.to_thread(self._read, call.header(b"if-none-match"))

    def _read(self, known: str | None) -> Answer:
        try:
            with self._report.open("rb") as file:
                body = file.read(_BYTES_MAX + 1)
        except FileNotFoundError:
            return failure(HTTPStatus.NOT_FOUND, "the pipeline has not run for this hub yet")
        if len(body) > _BYTES_MAX:
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, f"the report is larger than {_BYTES_MAX} bytes")
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


_ERRORS = Errors(refused=_refused, not_allowed=only_get)
