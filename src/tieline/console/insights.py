"""The pipeline's findings for the console: `/api/insights`.

Above: the page. Below: a file that the pipeline leaves in its lake after each run. The hub never runs the pipeline and
reads none of its tables; it only hands that file on, to those who may read the log that it was made of.
"""

import asyncio
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.permission import LOG_READ
from tieline.contract.refusal import Refusal
from tieline.wire.http import Answer, failure, foreign, header, respond, session_token
from tieline.wire.sessions import Held, Sessions, ask_all

PATH = "/api/insights"
REPORT = Path("lake", "report.json")
"""The file that the pipeline writes, in a hub's home."""
_BYTES_MAX = 32 * 1024 * 1024  # a report is some megabytes at most, and a browser has to hold it


class Insights:
    """The pipeline's last report, on the hub's port."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self._hub = hub
        self._report = home / REPORT
        self._sessions = Sessions(hub, "console")

    def serves(self, scope: Scope) -> bool:
        """True if this request is for it."""
        return bool(scope["type"] == "http" and scope["path"] == PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await respond(send, await self._answer(scope))

    def close(self) -> None:
        """The hub stops."""
        self._sessions.close()

    async def _answer(self, scope: Scope) -> Answer:
        if scope["method"] != "GET":
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
        token = session_token(scope)
        if foreign(scope) or token is None:
            return failure(HTTPStatus.UNAUTHORIZED, "show a member's token: Authorization: Bearer …")
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            return failure(HTTPStatus.UNAUTHORIZED, held.message)
        if not await self._may(held):
            return failure(HTTPStatus.FORBIDDEN, f"{held.member} lacks the permission {LOG_READ}")
        return await asyncio.to_thread(self._read, header(scope, b"if-none-match"))

    async def _may(self, held: Held) -> bool:
        (roster,) = await ask_all(self._hub, [c.ListMembers(held.session, name=held.member)])
        return isinstance(roster, r.Roster) and LOG_READ in roster.members[0].member.permissions

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
