"""Tests that the hub itself checks permissions.

Each request that the console's page can make is made here without the page, by a member without permission.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from msgspec import Struct
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.hubs import HubHarness, running_hub
from tests.wire.reports import report
from tieline.console.login import PATH
from tieline.console.report_page import STATIC
from tieline.console.site import POLICY
from tieline.contract.member import MemberKind
from tieline.contract.objective import Block
from tieline.contract.permission import LOG_READ, TEAM_PERMISSIONS
from tieline.wire.http import SESSION_COOKIE
from tieline.wire.insights import StoredReport

WEB = Path(__file__).resolve().parents[2] / "web" / "src"
SECRET = "elephant"
"""Word that is in all data that carol may not see."""


class Known(Struct, frozen=True):
    """Ids and names for requests in these tests."""

    message: str = ""
    objective: str = ""
    token: str = ""
    """Id of a token of alice."""
    file: str = ""
    device: str = ""


class Scene(Known, frozen=True, kw_only=True):
    """Test data: a hub with messages and objectives of alice, bob and chief that carol may not see, and their ids."""

    there: HubHarness


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="memory") as built:
        await built.add("chief", permissions=(*TEAM_PERMISSIONS, LOG_READ), kind=MemberKind.HUMAN)
        await built.add("alice", "bob", "carol")
        await built.add("dora", kind=MemberKind.HUMAN)
        yield built


@pytest.fixture
async def scene(there: HubHarness) -> Scene:
    return await _furnish(there)


async def _furnish(there: HubHarness) -> Scene:
    chief, alice, bob = await there.join("chief"), await there.join("alice"), await there.join("bob")
    await chief.update_member("alice", instructions=f"the {SECRET} is yours")
    sent = await alice.send("@bob", f"the {SECRET} is between two", title=SECRET, data={SECRET: 1})
    await bob.subscribe("dev")
    await alice.subscribe("dev")
    await alice.send("#dev", f"the {SECRET} is in the channel")
    await alice.send("@carol", "this is for carol")
    given = await chief.create_objective(f"Find the {SECRET}", SECRET, "alice", body=SECRET)
    await alice.change_objective(given.id, Block(SECRET))
    await alice.record_activity({"kind": "llm_exchange", "entry": {"request": {"model": SECRET}}})
    await chief.pause_thread("@alice+@bob")
    assert (await alice.send("@bob", f"held {SECRET}")).held
    headers = {"authorization": f"Bearer {there.tokens['alice']}"}
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        path = f"/alice/{SECRET}.txt"
        kept = await client.post("/fs/write", params={"path": path}, content=SECRET.encode(), headers=headers)
        assert kept.status_code == 200, kept.text
        said = {"to": "chief", "body": f"the {SECRET} is attached", "attachments": [kept.json()["entry"]]}
        pushed = await client.post("/push", json=said, headers=headers)
        assert pushed.status_code == 200, pushed.text
        device = (await client.post("/enroll", json={"labelHint": SECRET})).json()["userCode"]
    stored = StoredReport(there.home / "forgotten").put(report(edges=[{"from": SECRET, "to": "bob", "messages": 1}]))
    assert stored is None, "the hub would store it too"
    (token, *_) = await alice.tokens("alice")
    return Scene(sent.id, given.id, token.id, path, device, there=there)


async def _cookie(there: HubHarness, name: str) -> dict[str, str]:
    """Log a member in. Return the cookie as an HTTP header."""
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        entered = await client.post(PATH, json={"token": there.tokens[name]})
        assert entered.status_code == 200, entered.text
        return {"cookie": f"{SESSION_COOKIE}={client.cookies[SESSION_COOKIE]}"}


async def _revoked(there: HubHarness, name: str) -> dict[str, str]:
    """Log a member in and out again. Return the cookie, which is not valid any more, as an HTTP header."""
    cookie = await _cookie(there, name)
    async with httpx.AsyncClient(base_url=there.running.http, headers=cookie) as client:
        assert (await client.delete(PATH)).status_code == 204
    return cookie


class Page:
    """Test client of `/api/stream` that connects as the console's page does.

    It has a cookie, and sends a `hello` without a token.
    """

    def __init__(self, stream: ClientConnection) -> None:
        self._stream = stream
        self._n = 0

    async def hello(self) -> dict[str, Any]:
        """Send `hello`. Return the answer."""
        await self._stream.send(json.dumps([{"t": "hello", "v": 1}]))
        return (await self.frames())[0]

    async def ask(self, t: str, **fields: Any) -> dict[str, Any]:
        """Send the request `t` and return its answer. Skip the JSON objects that come before the answer."""
        self._n += 1
        await self._stream.send(json.dumps([{"t": t, "n": self._n, **fields}]))
        while True:
            for frame in await self.frames():
                if frame.get("n") == self._n:
                    return frame

    async def frames(self) -> list[dict[str, Any]]:
        """Return the JSON objects in the next WebSocket message."""
        async with asyncio.timeout(10):
            frames: list[dict[str, Any]] = json.loads(await self._stream.recv())
            return frames


def _stream(there: HubHarness, headers: dict[str, str]) -> Any:
    return dial(there.running.http.replace("http", "ws") + "/api/stream", additional_headers=headers)


# Everything that the page asks.

ALLOWED = {
    "send",
    "members",
    "channels",
    "fetch",
    "create_channel",
    "change_channel",
    "sub",
    "unsub",
    "read_history",
    "search",
    "tail",
    "objectives",
    "discard",
    "read_stuck",
}
"""Requests on the stream that every member may make. They show and change only the member's own data."""

ROUTES = {
    "/api/devices",
    "/api/devices/approve",
    "/api/devices/poll",
    "/api/devices/reject",
    "/api/files",
    "/api/insights",
    "/api/members",
    "/api/messages",
    "/api/objectives",
    "/api/search",
    "/api/session",
    "/api/session/code",
    "/api/spend",
    "/api/stream",
    "/api/tokens/{id}",
}
"""Paths and beginnings of paths that the console's page requests."""


def _refused(scene: Known) -> list[tuple[str, dict[str, Any], str]]:
    """Return the stream requests that the hub must refuse to carol: type, fields, and the code of the refusal."""
    alice, objective = {"name": "alice"}, {"id": scene.objective}
    return [
        ("send", {"target": f"obj:{scene.objective}", "body": "hello"}, "unknown_objective"),
        ("read_history", {"everything": True}, "forbidden"),
        ("read_history", {"everything": True, "peer": "#dev"}, "forbidden"),
        ("tail", {"everything": True}, "forbidden"),
        ("change_channel", {"channel": "dev", "change": {"do": "archive"}}, "forbidden"),
        ("change_channel", {"channel": "dev", "change": {"do": "rename", "name": "mine"}}, "forbidden"),
        ("change_channel", {"channel": "dev", "change": {"do": "admit", "name": "carol"}}, "forbidden"),
        ("read_receipts", {"id": scene.message}, "unknown_message"),
        ("follow", {"id": scene.message}, "unknown_message"),
        ("view_objective", objective, "unknown_objective"),
        ("create_objective", {"title": "x", "outcome": "x", "assignee": "alice"}, "forbidden"),
        *(
            ("change_objective", {**objective, "change": change}, "unknown_objective")
            for change in (
                {"do": "block", "reason": "x"},
                {"do": "unblock"},
                {"do": "complete", "result": "x"},
                {"do": "cancel"},
                {"do": "reassign", "to": "carol"},
                {"do": "watch", "add": ["carol"]},
            )
        ),
        ("tokens", alice, "forbidden"),
        ("issue_token", alice, "forbidden"),
        ("revoke_token", {**alice, "id": scene.token}, "forbidden"),
        ("rotate_token", alice, "forbidden"),
        ("add_member", {"name": "eve"}, "forbidden"),
        ("remove_member", alice, "forbidden"),
        ("update_member", {"name": "carol", "permissions": [LOG_READ]}, "forbidden"),
        ("reach", alice, "forbidden"),
        ("pause_thread", {"thread": "@alice+@chief"}, "forbidden"),
        ("allow_thread", {"thread": "@alice+@chief"}, "forbidden"),
        ("resume_thread", {"thread": "@alice+@bob"}, "forbidden"),
        ("pauses", {}, "forbidden"),
        ("read_activity", {"member": "alice"}, "forbidden"),
        ("follow_activity", {"member": "alice"}, "forbidden"),
        ("view_channel", {"channel": "nowhere"}, "unknown_channel"),
    ]


def _sources() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(WEB.glob("*.ts*")) if not path.name.endswith(".d.ts")}


def test_everything_that_the_page_can_ask_is_asked_here() -> None:
    # The compiler lets the page ask only for what this interface names.
    answers = re.search(r"interface Answers \{(.*?)\}", _sources()["hub.ts"], re.DOTALL)
    assert answers is not None
    asked = set(re.findall(r"^\s+(\w+):", answers[1], re.MULTILINE))
    # These have no answer, and are about the session's own deliveries.
    asked |= set(re.findall(r'"(\w+)"', " ".join(re.findall(r"tell<T extends ([^>]*)>", _sources()["hub.ts"])))) - {
        "ack"
    }
    unknown = asked - ALLOWED - {t for t, _, _ in _refused(Known())}
    assert unknown == set(), "the page asks for more: say here who may not"
    paths = {
        path
        for text in _sources().values()
        for path in re.findall(r"""["`](/[a-z][^"`$?]*)""", re.sub(r"(?m)^\s*//.*", "", text))
        if not path.startswith("/docs/")  # links to pages that everybody may read
    }
    assert {path for path in paths if not path.startswith(tuple(ROUTES))} == set(), "the page asks for more"
    reaching = re.compile(r"\b(XMLHttpRequest|EventSource|sendBeacon|importScripts|import\()")
    assert [name for name, text in _sources().items() if reaching.search(text)] == []


# Members without permission.


async def test_a_member_without_permissions_is_refused_by_the_hub_itself(scene: Scene) -> None:
    there = scene.there
    async with _stream(there, await _cookie(there, "carol")) as stream:
        page = Page(stream)
        assert (await page.hello())["member"] == "carol"
        asked = _refused(scene)
        got = [(t, fields, (await page.ask(t, **fields)).get("code")) for t, fields, _ in asked]
    assert got == asked
    chief = await there.join("chief")
    names = {member.name for member in await chief.members()}
    assert names == {"chief", "alice", "bob", "carol", "dora"}
    assert len(await chief.pauses()) == 1


async def test_a_member_without_permissions_finds_only_what_is_its_own(scene: Scene) -> None:
    there = scene.there
    async with _stream(there, await _cookie(there, "carol")) as stream:
        page = Page(stream)
        await page.hello()
        history = await page.ask("read_history", limit=1000)
        assert [one["body"] for one in history["messages"]] == ["this is for carol"]
        for peer in ("alice", "bob", "chief", "#dev", f"obj:{scene.objective}", "#general"):
            seen = await page.ask("read_history", peer=peer, limit=1000)
            assert SECRET not in json.dumps(seen), peer
        for query in (SECRET, f"{SECRET[:4]}*", "ping", f'"the {SECRET}"'):
            assert (await page.ask("search", query=query))["messages"] == [], query
        for place in ("@alice", "#dev", f"obj:{scene.objective}", "@alice+@bob"):
            assert (await page.ask("search", query=SECRET, place=place)).get("messages", []) == [], place
        assert (await page.ask("objectives"))["objectives"] == []
        for t in ("members", "channels", "fetch"):
            assert SECRET not in json.dumps(await page.ask(t)), t
        stuck = await page.ask("read_stuck", older_ms=0)
        assert (stuck["unseen"], stuck["dead"]) == ([], [])
        backlog = {one["name"]: one["backlog"] for one in (await page.ask("members"))["members"]}
        assert (await page.ask("discard", keys=[[1, 1000]], reason="done"))["t"] == "done"
        left = {one["name"]: one["backlog"] for one in (await page.ask("members"))["members"]}
        assert left == {**backlog, "carol": 0}
        assert {one["label"] for one in (await page.ask("tokens", name="carol"))["tokens"]} == {"", "console"}
        assert (await page.ask("tail", after=-1))["t"] == "done"
        (told,) = await page.frames()
        assert [one["body"] for one in told["messages"]] == ["this is for carol"]
        alice = await there.join("alice")
        await alice.send("@chief", f"another {SECRET}")
        await alice.send("@carol", "and this")
        (told,) = await page.frames()
        assert [one["body"] for one in told["messages"]] == ["and this"]


async def test_a_channel_that_one_joins_shows_what_was_said_there_and_one_that_one_left_shows_no_more(
    scene: Scene,
) -> None:
    alice = await scene.there.join("alice")
    async with _stream(scene.there, await _cookie(scene.there, "carol")) as stream:
        page = Page(stream)
        await page.hello()
        await page.ask("sub", channel="dev")
        await page.ask("unsub", channel="dev")
        await alice.send("#dev", f"no {SECRET} for who left")
        seen = await page.ask("read_history", peer="#dev", limit=1000)
        assert "for who left" not in json.dumps(seen)
        assert "for who left" not in json.dumps(await page.ask("read_history", limit=1000))
        assert "for who left" not in json.dumps(await page.ask("search", query="left"))


async def test_a_person_without_permissions_lets_loops_go_on_and_nothing_else(scene: Scene) -> None:
    async with _stream(scene.there, await _cookie(scene.there, "dora")) as stream:
        page = Page(stream)
        await page.hello()
        stewards = {"pauses", "pause_thread", "resume_thread", "allow_thread"}
        asked = [row for row in _refused(scene) if row[0] not in stewards]
        assert [(t, fields, (await page.ask(t, **fields)).get("code")) for t, fields, _ in asked] == asked
        (pause,) = (await page.ask("pauses"))["pauses"]
        assert pause["thread"] == "@alice+@bob"
        assert (await page.ask("resume_thread", thread=pause["thread"]))["t"] == "done"
        assert (await page.ask("pauses"))["pauses"] == []


async def test_a_permission_that_is_taken_away_ends_what_it_showed(scene: Scene) -> None:
    there = scene.there
    chief = await there.join("chief")
    await chief.update_member("carol", permissions=(LOG_READ,))
    async with _stream(there, await _cookie(there, "carol")) as stream:
        page = Page(stream)
        await page.hello()
        newest = (await page.ask("read_history", everything=True, limit=1))["messages"][0]["offset"]
        await page.ask("tail", everything=True, after=newest)
        await chief.send("@bob", "while carol may")
        (told,) = await page.frames()
        assert [one["body"] for one in told["messages"]] == ["while carol may"]
        await chief.update_member("carol", permissions=())
        await chief.send("@bob", "no more")
        # The page is told why it sees no more, and is hung up on, so that it asks anew for what it may still see.
        (ended,) = await page.frames()
        assert (ended["t"], ended["code"]) == ("refused", "forbidden")
        with pytest.raises(ConnectionClosed):
            await page.frames()
    async with _stream(there, await _cookie(there, "carol")) as stream:
        page = Page(stream)
        await page.hello()
        refused = await page.ask("read_history", everything=True)
        assert refused["code"] == "forbidden"
        answered = await page.ask("read_history")
        assert "no more" not in json.dumps(answered)


# The routes that a page asks by its cookie.


def _routes(scene: Known) -> list[tuple[str, str, dict[str, Any]]]:
    """Return every HTTP request that the console's page makes to a route: method, path and options."""
    discuss = f"/objectives/{scene.objective}/discuss"
    work = {"title": "x", "outcome": "x", "assignee": "alice"}
    bind = {"mode": "bind", "userCode": scene.device, "memberName": "carol"}
    attached = {"to": "carol", "body": "look", "attachments": [{"path": scene.file, "name": "x", "size": 1}]}
    return [
        ("GET", "/api/insights", {}),
        ("GET", "/api/messages?everything=true", {}),
        ("GET", "/api/spend?from_ms=0", {}),
        ("GET", "/api/devices", {}),
        ("POST", "/api/devices/approve", {"json": {"user_code": scene.device, "member": "carol"}}),
        ("POST", "/api/devices/reject", {"json": {"user_code": scene.device}}),
        ("GET", f"/api/files{scene.file}", {}),
        ("POST", "/api/files?path=/alice/console/mine.txt", {"content": b"x"}),
        ("POST", "/api/members/alice/authenticator", {}),
        ("POST", "/api/messages", {"json": {"target": "@carol", "body": "look", "files": [scene.file]}}),
        ("POST", "/api/objectives", {"json": {**work, "files": [scene.file]}}),
        ("GET", "/enroll/pending", {}),
        ("POST", "/enroll/approve", {"json": {**bind, "mimeType": "x"}}),
        ("POST", "/enroll/reject", {"json": {"userCode": scene.device}}),
        ("DELETE", f"/members/alice/tokens/{scene.token}", {}),
        ("GET", f"/fs/read{scene.file}", {}),
        ("POST", "/fs/write?path=/alice/console/mine.txt", {"content": b"x"}),
        ("POST", discuss, {"json": {"body": "x"}}),
        ("POST", "/objectives", {"json": work}),
        ("POST", "/push", {"json": attached}),
    ]


async def test_the_routes_refuse_who_may_not(scene: Scene) -> None:
    there = scene.there
    async with httpx.AsyncClient(base_url=there.running.http, headers=await _cookie(there, "carol")) as client:
        for method, path, more in _routes(scene):
            answer = await client.request(method, path, **more)
            assert answer.status_code == (404 if "discuss" in path else 403), (path, answer.text)
            assert SECRET not in answer.text.replace(scene.file, ""), path
        for path in ("/api/messages", "/api/messages?with=@alice", "/api/members", "/api/objectives"):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert SECRET not in answer.text, path
        found = await client.get("/api/search", params={"q": SECRET})
        assert (found.status_code, found.json()["messages"]) == (200, [])
        own = await client.post("/fs/write", params={"path": "/carol/console/mine.txt"}, content=b"x")
        assert own.status_code == 200
        assert (await client.get("/fs/read/carol/console/mine.txt")).content == b"x"
    async with httpx.AsyncClient(base_url=there.running.http, headers=await _cookie(there, "chief")) as client:
        assert (await client.get(f"/fs/read{scene.file}")).text == SECRET
        assert (await client.get(f"/api/files{scene.file}")).text == SECRET
        (device,) = (await client.get("/enroll/pending")).json()["enrollments"]
        assert device["userCode"] == scene.device


async def test_nobody_and_who_is_out_again_get_nothing_at_all(scene: Scene) -> None:
    there = scene.there
    for headers in (
        {},
        await _revoked(there, "chief"),
        {"cookie": f"{SESSION_COOKIE}=x.y"},
        {"cookie": "ac7_session=x"},
    ):
        async with httpx.AsyncClient(base_url=there.running.http, headers=headers) as client:
            for method, path, more in [*_routes(scene), ("GET", PATH, {}), ("POST", "/session/logout", {})]:
                answer = await client.request(method, path, **more)
                assert answer.status_code == 401, (headers, path, answer.text)
                assert "set-cookie" not in answer.headers
        async with _stream(there, headers) as stream:
            said = await Page(stream).hello()
            assert (said["t"], said["code"]) == ("refused", "unauthorized")
            with pytest.raises(ConnectionClosed):
                await stream.recv()


async def test_a_page_that_is_open_hears_no_more_once_its_session_is_over(scene: Scene) -> None:
    there = scene.there
    alice, chief = await there.join("alice"), await there.join("chief")

    async def logs_out(cookie: dict[str, str]) -> None:
        async with httpx.AsyncClient(base_url=there.running.http, headers=cookie) as client:
            await client.delete(PATH)

    async def is_revoked(_: dict[str, str]) -> None:
        (session,) = [one for one in await chief.tokens("carol") if one.label == "console"]
        await chief.revoke_token("carol", session.id)

    async def is_removed(_: dict[str, str]) -> None:
        await chief.remove_member("carol")

    for end in (logs_out, is_revoked, is_removed):
        cookie = await _cookie(there, "carol")
        async with _stream(there, cookie) as stream:
            page = Page(stream)
            await page.hello()
            newest = (await page.ask("read_history", limit=1))["messages"][0]["offset"]
            await page.ask("tail", after=newest)
            await alice.send("@carol", "you still hear this")
            (told,) = await page.frames()
            assert [one["body"] for one in told["messages"]] == ["you still hear this"]
            await end(cookie)
            (said,) = await page.frames()
            assert (said["t"], said["code"]) == ("refused", "unauthorized"), end
            with pytest.raises(ConnectionClosed):
                await stream.recv()


# Pages of other sites.

FOREIGN = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    # Another port of the same machine is the same site, whose cookies a browser sends.
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


async def test_a_page_of_another_site_does_nothing_by_its_visitors_cookie(scene: Scene) -> None:
    there = scene.there
    cookie = await _cookie(there, "chief")
    requests = [*_routes(scene), ("GET", PATH, {}), ("DELETE", PATH, {}), ("POST", "/session/logout", {})]
    requests += [("POST", PATH, {"json": {"token": there.tokens["carol"]}})]
    requests += [("POST", "/session/totp", {"json": {"code": "123456", "member": "carol"}})]
    disguises: tuple[dict[str, str], ...] = (
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    )
    async with httpx.AsyncClient(base_url=there.running.http, headers=cookie) as client:
        for foreign, disguise, (method, path, more) in itertools.product(FOREIGN, disguises, requests):
            if disguise and "json" not in more:
                continue
            body = {"content": json.dumps(more["json"])} if disguise else more
            answer = await client.request(method, path, headers={**foreign, **disguise}, **body)
            assert answer.status_code in (401, 403), (foreign, path, answer.text)
            assert SECRET not in answer.text
            assert "set-cookie" not in answer.headers
            assert "access-control-allow-origin" not in answer.headers
    for foreign in FOREIGN:
        with pytest.raises(InvalidStatus):
            async with _stream(there, {**cookie, **foreign}):
                pass
    async with httpx.AsyncClient(base_url=there.running.http, headers=cookie) as client:
        assert (await client.get(PATH)).json()["member"] == "chief"
        assert len((await client.get("/enroll/pending")).json()["enrollments"]) == 1


# The cookie and the headers.


async def test_an_entry_gives_a_cookie_of_its_own_and_voids_the_one_that_the_browser_had(there: HubHarness) -> None:
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        planted = "abc.tie_planted"
        entered = await client.post(
            PATH, json={"token": there.tokens["carol"]}, headers={"cookie": f"{SESSION_COOKIE}={planted}"}
        )
        first = client.cookies[SESSION_COOKIE]
        assert planted not in entered.headers["set-cookie"]
        attributes = {part.strip().lower() for part in entered.headers["set-cookie"].split(";")[1:]}
        assert attributes == {"path=/", "max-age=604800", "httponly", "samesite=strict"}
        await client.post(PATH, json={"token": there.tokens["carol"]})
        assert client.cookies[SESSION_COOKIE] != first
        old = await client.get(PATH, headers={"cookie": f"{SESSION_COOKIE}={first}"})
        assert old.status_code == 401
        assert (await client.get(PATH)).status_code == 200
        for wrong in (planted, first):
            assert (await client.get(PATH, headers={"cookie": f"{SESSION_COOKIE}={wrong}"})).status_code == 401


async def test_over_https_the_cookie_is_sent_over_nothing_else(there: HubHarness) -> None:
    login_app = there.hub.login_app
    assert login_app is not None
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=login_app), base_url="https://hub") as client:
        entered = await client.post(PATH, json={"token": there.tokens["carol"]})
        left = await client.delete(PATH)
    for answer in (entered, left):
        attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert {"secure", "httponly", "samesite=strict", "path=/"} <= attributes


async def test_every_file_of_the_page_is_sent_under_the_same_policy(there: HubHarness) -> None:
    files = ["/", *(f"/assets/{path.name}" for path in (STATIC / "assets").iterdir())]
    assert len(files) == 3
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        for path in files:
            first = await client.get(path)
            again = await client.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (first.status_code, again.status_code) == (200, 304)
            for answer in (first, again, await client.head(path)):
                assert answer.headers["content-security-policy"] == POLICY
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["referrer-policy"] == "no-referrer"
    directives = dict(part.strip().partition(" ")[::2] for part in POLICY.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "manifest-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


async def test_a_file_of_a_member_is_never_a_page_of_the_hub(there: HubHarness) -> None:
    async with httpx.AsyncClient(base_url=there.running.http, headers=await _cookie(there, "carol")) as client:
        for number, mime in enumerate(("text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "")):
            path = f"/carol/console/{number}.html"
            await client.post("/fs/write", params={"path": path, "mime": mime}, content=b"<script>alert(1)</script>")
            read = await client.get(f"/fs/read{path}")
            assert read.status_code == 200
            assert read.headers["content-disposition"].startswith("attachment;"), mime
            assert read.headers["content-security-policy"] == "sandbox; default-src 'none'"
            assert read.headers["x-content-type-options"] == "nosniff"
        for mime in ("text/html\r\nx-evil: 1", "text/html, text/plain", "not a type"):
            refused = await client.post("/fs/write", params={"path": "/carol/x", "mime": mime}, content=b"")
            assert refused.status_code == 400, mime
