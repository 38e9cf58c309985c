"""Tests of permissions: each kind of actor requests every route of the OpenAPI document, with and without a right."""

import asyncio
import contextlib
from http.client import HTTPConnection
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.protocols.ac7.conformance import strict
from tests.protocols.ac7.teams import Json, Seat, Team
from tests.protocols.ac7.test_login_routes import logged_in, now_ms
from tests.server.hubs import WAIT_SECONDS
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.protocols.ac7.server import DOCUMENT_PATH

# Actors.
UNKNOWN = ("no token", "wrong token", "expired token")
PARTIES = ("owner", "joined", "originator", "watcher")
"""Actors that have a part in the resource of the path. `owner` is the member itself, the channel's admin or the
objective's assignee. `joined` is in the channel. `originator` made the objective, and `watcher` watches it."""
STAFF = (*TEAM_PERMISSIONS, "admin")
"""Actors with permissions: one for each permission, and `admin` with all of them."""
BROWSERS = {"cookie of other": "other", "cookie of admin": "admin"}
"""Actors that logged in with a browser, each with the member that they are."""
ALL = frozenset((*PARTIES, "other", *STAFF))

MANAGERS = frozenset({"members.manage", "admin"})
TEAM_MANAGERS = frozenset({"team.manage", "admin"})
SELF_OR_MANAGER = MANAGERS | {"owner"}
ACTIVITY_READERS = frozenset({"owner", "activity.read", "admin"})
THREAD = MANAGERS | {"owner", "originator", "watcher"}
OVERSIGHT = frozenset(word for word in TEAM_PERMISSIONS if word.startswith("objectives."))
SEE = THREAD | OVERSIGHT
BLIND = ALL - SEE
"""Actors that may not see an objective; for them it seems not to exist."""

OPENED = {"kind": "objective_open", "ts": 1, "objectiveId": "obj-1-1"}


class Row(Struct, frozen=True):
    """Record: the expected results of a route. Actors in `may` get the status `ok`.

    All others get 403, or 404 if they are in `hidden`.
    """

    ok: int = 200
    may: frozenset[str] = ALL
    body: Any = None
    query: str = ""
    hidden: frozenset[str] = frozenset()
    open: bool = False
    """True if the route needs no token. Then all actors get the same answer."""
    cookie: bool = True
    """True if the route also accepts the cookie of a login."""


TABLE: dict[tuple[str, str], Row] = {
    ("POST", "/push"): Row(body={"body": "x"}),
    ("GET", "/history"): Row(),
    ("GET", "/subscribe"): Row(may=frozenset({"owner"}), query="?name=owner"),
    ("GET", "/roster"): Row(),
    ("GET", "/briefing"): Row(),
    ("GET", "/instructions"): Row(),
    ("POST", "/presence/busy"): Row(204, body={"busy": False}, cookie=False),
    ("POST", "/presence/activity"): Row(204, body={"state": "idle"}, cookie=False),
    ("GET", "/members"): Row(),
    ("POST", "/members"): Row(200, MANAGERS, {"name": "{new}", "role": {"title": "t"}}),
    ("PATCH", "/members/{name}"): Row(200, MANAGERS, {"instructions": "i"}),
    ("DELETE", "/members/{name}"): Row(204, MANAGERS),
    ("POST", "/members/{name}/rotate-token"): Row(200, SELF_OR_MANAGER),
    ("GET", "/members/{name}/tokens"): Row(200, SELF_OR_MANAGER),
    ("POST", "/members/{name}/tokens"): Row(201, SELF_OR_MANAGER, {"label": "l"}),
    ("DELETE", "/members/{name}/tokens/{id}"): Row(204, SELF_OR_MANAGER),
    ("POST", "/members/{name}/activity"): Row(201, frozenset({"owner"}), {"events": [OPENED]}),
    ("GET", "/members/{name}/activity"): Row(200, ACTIVITY_READERS),
    ("GET", "/members/{name}/activity/stream"): Row(200, ACTIVITY_READERS),
    ("POST", "/otlp/v1/logs"): Row(body={}),
    ("POST", "/otlp/v1/traces"): Row(body={}),
    ("POST", "/members/{name}/enroll-totp"): Row(200, SELF_OR_MANAGER),
    ("GET", "/fs/ls"): Row(200, SELF_OR_MANAGER, query="?path=/owner"),
    ("GET", "/fs/stat"): Row(200, SELF_OR_MANAGER, query="?path=/owner/{new}"),
    ("GET", "/fs/read/{path}"): Row(200, SELF_OR_MANAGER),
    ("POST", "/fs/write"): Row(200, SELF_OR_MANAGER, {}, "?path=/owner/{new}-more"),
    ("POST", "/fs/mkdir"): Row(200, SELF_OR_MANAGER, {"path": "/owner/{new}-folder"}),
    ("DELETE", "/fs/rm"): Row(204, SELF_OR_MANAGER, query="?path=/owner/{new}"),
    ("POST", "/fs/mv"): Row(200, SELF_OR_MANAGER, {"from": "/owner/{new}", "to": "/owner/{new}-moved"}),
    ("GET", "/fs/shared"): Row(),
    ("GET", "/fs/all"): Row(200, MANAGERS),
    ("POST", "/enroll"): Row(body={}, open=True),
    ("GET", "/enroll"): Row(303, open=True),
    ("POST", "/enroll/poll"): Row(400, body={"deviceCode": "none"}, open=True),
    ("GET", "/enroll/pending"): Row(200, MANAGERS),
    # A permitted actor learns that there is no such device.
    ("POST", "/enroll/approve"): Row(404, MANAGERS, {"mode": "bind", "userCode": "0000-0000", "memberName": "other"}),
    ("POST", "/enroll/reject"): Row(404, MANAGERS, {"userCode": "0000-0000"}),
    ("POST", "/session/totp"): Row(401, body={"code": "000000", "member": "{new}"}, open=True),
    ("GET", "/session"): Row(),
    ("POST", "/session/logout"): Row(204),
    ("GET", "/team"): Row(),
    ("PATCH", "/team"): Row(200, TEAM_MANAGERS, {"context": "c"}),
    ("GET", "/team/presets"): Row(),
    ("PUT", "/team/presets/{name}"): Row(200, TEAM_MANAGERS, {"permissions": []}),
    ("DELETE", "/team/presets/{name}"): Row(200, TEAM_MANAGERS),
    ("GET", "/channels"): Row(),
    ("POST", "/channels"): Row(201, body={"slug": "{new}"}),
    ("GET", "/channels/{slug}"): Row(),
    ("PATCH", "/channels/{slug}"): Row(200, frozenset({"owner"}), {"slug": "{new}"}),
    ("DELETE", "/channels/{slug}"): Row(200, frozenset({"owner"})),
    ("POST", "/channels/{slug}/members"): Row(200, frozenset({"owner"}), {"member": "other", "role": "admin"}),
    ("DELETE", "/channels/{slug}/members/{name}"): Row(200, frozenset({"owner", "joined"})),
    ("GET", "/objectives"): Row(),
    ("POST", "/objectives"): Row(
        200, frozenset({"objectives.create", "admin"}), {"title": "t", "outcome": "o", "assignee": "other"}
    ),
    ("GET", "/objectives/{id}"): Row(200, SEE, hidden=BLIND),
    ("PATCH", "/objectives/{id}"): Row(
        200, frozenset({"owner", "objectives.cancel", "admin"}), {"status": "blocked", "blockReason": "b"}, hidden=BLIND
    ),
    ("POST", "/objectives/{id}/complete"): Row(200, frozenset({"owner"}), {"result": "r"}, hidden=BLIND),
    ("POST", "/objectives/{id}/cancel"): Row(
        200, frozenset({"originator", "objectives.cancel", "admin"}), {}, hidden=BLIND
    ),
    ("POST", "/objectives/{id}/reassign"): Row(
        200, frozenset({"objectives.reassign", "admin"}), {"to": "other"}, hidden=BLIND
    ),
    ("POST", "/objectives/{id}/watchers"): Row(
        200, frozenset({"originator", "objectives.watch", "admin"}), {"add": ["joined"]}, hidden=BLIND
    ),
    ("POST", "/objectives/{id}/discuss"): Row(200, THREAD, {"body": "x"}, hidden=BLIND),
}


LARGE = ("members", "channels", "objectives", "fs")
"""First parts of paths with so many routes that each of these routes is a test of its own."""
LIFE_MS = 1000
"""Life time of a token that must have expired before the first request."""


class Stage:
    """Test helper: a team with one member of each kind, and new objects for each request."""

    def __init__(self, crew: Team) -> None:
        self.crew = crew
        self.seats: dict[str, Seat] = {}
        self.numbers = count()

    async def set(self) -> None:
        """Make all members, tokens and logins."""
        self.seats["admin"] = await self.crew.seat("admin", *TEAM_PERMISSIONS)
        for name in (*PARTIES, "other"):
            permissions = ("objectives.create",) if name == "originator" else ()
            self.seats[name] = await self.crew.seat(name, *permissions)
        ends_at_ms = now_ms() + LIFE_MS
        self.seats["expired token"] = await self._expiring(ends_at_ms)
        for permission in TEAM_PERMISSIONS:
            self.seats[permission] = await self.crew.seat(permission, permission)
        for browser, name in BROWSERS.items():
            self.seats[browser] = await logged_in(self.crew, self.seats[name])
        self.seats["no token"] = Seat(self.crew.url)
        self.seats["wrong token"] = Seat(self.crew.url, "other", "wrong")
        # A token expires by the hub's clock and by nothing else.
        await asyncio.sleep(max(0, ends_at_ms - now_ms() + 1) / 1000)

    async def _expiring(self, ends_at_ms: int) -> Seat:
        made = await self.seats["admin"].do("POST", "/members/other/tokens", 201, expiresAt=ends_at_ms)
        return Seat(self.crew.url, "other", made["token"])

    async def scene(self, path: str) -> tuple[dict[str, str], Seat]:
        """Create objects for the parameters of a path. Return the parameters, and the owner of the objects."""
        new = f"n{next(self.numbers)}"
        names, owner = {"name": "joined", "new": new}, self.seats["owner"]
        if path.startswith("/members/{name}"):
            made = await self.seats["admin"].do("POST", "/members", name=new, role={"title": "t"})
            owner, names["name"] = Seat(self.crew.url, new, made["token"]), new
            if "{id}" in path:
                names["id"] = (await owner.do("POST", f"/members/{new}/tokens", 201))["info"]["id"]
        elif "{slug}" in path:
            names["slug"] = (await owner.do("POST", "/channels", 201, slug=new))["id"]
            await self.seats["joined"].do("POST", f"/channels/{names['slug']}/members")
        elif path.startswith("/objectives/{id}"):
            form: Json = {"title": "t", "outcome": "o", "assignee": "owner", "watchers": ["watcher"]}
            names["id"] = (await self.seats["originator"].do("POST", "/objectives", **form))["id"]
        elif path.startswith("/fs/"):
            names["path"] = f"owner/{new}"
            await owner.ask("POST", f"/fs/write?path=/owner/{new}", b"x")
        elif path == "/team/presets/{name}":
            names["name"] = new
            await self.seats["admin"].do("PUT", f"/team/presets/{new}", permissions=[])
        return names, owner

    async def status(self, method: str, path: str, actor: str, row: Row) -> int:
        """Request a route as an actor. Return the status of the answer."""
        names, owner = await self.scene(path)
        seat = owner if actor == "owner" else self.seats[actor]
        asked = (path + row.query).format_map(names)
        if path.endswith(("/subscribe", "/stream")):
            status = await asyncio.to_thread(head, seat, asked)
            assert await upgrade(seat, asked) == status, "a WebSocket is answered like any other request"
            return status
        body = {
            key: value.format(**names) if isinstance(value, str) else value for key, value in (row.body or {}).items()
        }
        return (await seat.ask(method, asked, body if row.body is not None else None)).status


def head(seat: Seat, path: str) -> int:
    """Request a stream. Return the status of the answer, which has no end."""
    connection = HTTPConnection(urlsplit(seat.url).netloc, timeout=WAIT_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=seat.headers)
        return connection.getresponse().status


async def upgrade(seat: Seat, path: str) -> int:
    """Open a WebSocket at a path. Return 200, or the status of the refusal."""
    try:
        socket = await connect(seat.url.replace("http", "ws", 1) + path, additional_headers=seat.headers, proxy=None)
    except InvalidStatus as refused:
        strict.read("GET", path, refused.response.status_code, (refused.response.body or b"").decode())
        return refused.response.status_code
    await socket.close()
    return 200


def right(row: Row, actor: str) -> int:
    """Return the status that a route must answer to an actor."""
    if row.open:
        return row.ok
    if actor in UNKNOWN or (actor in BROWSERS and not row.cookie):
        return 401
    actor = BROWSERS.get(actor, actor)
    # The originator of the objective has the permission to create objectives.
    if actor in row.may or (actor == "originator" and "objectives.create" in row.may):
        return row.ok
    return 404 if actor in row.hidden else 403


async def routes(crew: Team) -> list[tuple[str, str]]:
    """Return method and path of every route of the OpenAPI document."""
    paths = (await crew.stranger.get(DOCUMENT_PATH))["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


async def test_every_route_has_its_row_here_and_its_shape_in_the_strict_reader(crew: Team) -> None:
    known = set(await routes(crew))
    assert known == set(TABLE)
    streams = {(method, path) for method, path in known if path.endswith(("/subscribe", "/stream"))}
    assert known - streams <= set(strict.SHAPES)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", [*LARGE, "all others"])
async def test_every_route_gives_everybody_the_right_status(crew: Team, part: str) -> None:
    stage = Stage(crew)
    await stage.set()
    wrong = []
    for (method, path), row in TABLE.items():
        root = path.split("/")[1]
        if part != (root if root in LARGE else "all others"):
            continue
        # Requests to open routes are counted for all actors together, so only some actors make them.
        some = (*UNKNOWN, "other", "admin")
        for actor in some if row.open else (*UNKNOWN, *PARTIES, "other", *STAFF, *BROWSERS):
            if actor in BROWSERS and path == "/session/logout":
                # That would be its end.
                continue
            status = await stage.status(method, path, actor, row)
            if status != right(row, actor):
                wrong.append(f"{method} {path} by {actor}: {status}, not {right(row, actor)}")
    assert wrong == []


async def test_without_a_good_token_all_answers_are_the_same_words(crew: Team) -> None:
    for (method, path), row in TABLE.items():
        if row.open:
            continue
        assert await crew.stranger.refused(401, method, path, {}) == "missing credentials", path
        assert await Seat(crew.url, "x", "wrong").refused(401, method, path, {}) == "unknown token", path
