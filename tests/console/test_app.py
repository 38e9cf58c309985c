"""Tests of the console's HTTP routes, on a hub that does not speak ac7.

The console's page works with the hub's own routes alone.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub, take
from tieline.console.app import DOCUMENT_PATH
from tieline.console.login import CODE_PATH, PATH
from tieline.contract.member import MemberKind
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.protocols.ac7.cookies import COOKIE as LOGIN_COOKIE
from tieline.services import upkeep
from tieline.services.login_sessions import APP_LABEL, LINK_LABEL
from tieline.services.totp import code_at
from tieline.wire.http import SESSION_COOKIE


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe", **ALONE) as built:
        await built.add("chief", permissions=TEAM_PERMISSIONS, kind=MemberKind.HUMAN)
        await built.add("alice", "bob", "carol")
        yield built


@pytest.fixture
async def browser(there: HubHarness) -> AsyncIterator[httpx.AsyncClient]:
    """Fixture: an HTTP client that stands for a browser in which no member is logged in."""
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        yield client


@asynccontextmanager
async def enter(there: HubHarness, name: str) -> AsyncIterator[httpx.AsyncClient]:
    """Log a member in with a new HTTP client that stands for a browser. Yield the client."""
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        assert (await client.post(PATH, json={"token": there.tokens[name]})).status_code == 200
        yield client


async def code_of(there: HubHarness, name: str) -> str:
    """Make an authenticator app (a secret) for a member. Return its current code."""
    async with enter(there, name) as own:
        made = await own.post(f"/api/members/{name}/authenticator")
    assert made.json()["uri"].startswith("otpauth://totp/tieline")
    return code_at(made.json()["secret"], time.time_ns() // 1_000_000)


async def test_no_route_of_ac7_is_there(browser: httpx.AsyncClient) -> None:
    for path in ("/roster", "/fs/shared", "/session", "/enroll/pending"):
        assert (await browser.get(path)).status_code == 404


async def test_a_login_link_lets_one_in_and_out(there: HubHarness, browser: httpx.AsyncClient) -> None:
    chief = await there.join("chief")
    link = (await chief.issue_token("chief", label=LINK_LABEL)).token
    assert (await browser.post(PATH, json={"token": link})).json()["member"] == "chief"
    assert (await browser.delete(PATH)).status_code == 204
    assert (await browser.get(PATH)).status_code == 401


async def test_a_code_lets_one_in_and_out_once(there: HubHarness, browser: httpx.AsyncClient) -> None:
    code = await code_of(there, "alice")
    entered = await browser.post(CODE_PATH, json={"code": code, "member": "alice"})
    assert (entered.status_code, entered.json()["member"]) == (200, "alice")
    assert (await browser.get(PATH)).json()["member"] == "alice"
    stolen = browser.cookies[SESSION_COOKIE]
    assert (await browser.delete(PATH)).status_code == 204
    again = await browser.get(PATH, headers={"cookie": f"{SESSION_COOKIE}={stolen}"})
    assert again.status_code == 401
    assert (await browser.post(CODE_PATH, json={"code": code, "member": "alice"})).status_code == 401


async def test_wrong_codes_make_a_login_suspected(there: HubHarness, browser: httpx.AsyncClient) -> None:
    right = await code_of(there, "alice")
    wrong = f"{(int(right) + 500_000) % 1_000_000:06}"
    answers = [await browser.post(CODE_PATH, json={"code": wrong, "member": "alice"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert 0 < answers[-1].json()["retry_after"] <= 30
    assert answers[-1].headers["set-cookie"].startswith("tieline_attempt=")
    for body in ({}, {"code": "12345"}, {"code": 123456}):
        assert (await browser.post(CODE_PATH, json=body)).status_code == 400
    assert (await browser.get(CODE_PATH)).status_code == 405


async def test_a_secret_is_made_for_oneself_or_by_who_manages_members(there: HubHarness) -> None:
    async with enter(there, "alice") as alice, enter(there, "chief") as chief:
        assert (await alice.post("/api/members/bob/authenticator")).status_code == 403
        assert (await chief.post("/api/members/nobody/authenticator")).status_code == 404
        assert (await chief.post("/api/members/bob/authenticator")).status_code == 200


async def test_an_authenticator_app_that_is_revoked_among_the_tokens_ends_what_its_codes_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_CHECK_SECONDS", 0.05)
    async with running_hub(folder, store="sqlite:unsafe", ac7=False) as there:
        await there.add("alice")
        code = await code_of(there, "alice")
        async with httpx.AsyncClient(base_url=there.running.http) as browser:
            assert (await browser.post(CODE_PATH, json={"code": code})).status_code == 200
            alice = await there.join("alice")
            (app,) = [token for token in await alice.tokens("alice") if token.label == APP_LABEL]
            await alice.revoke_token("alice", app.id)
            assert (await browser.post(CODE_PATH, json={"code": code})).status_code == 401
            while any(token.label.startswith("login ") for token in await alice.tokens("alice")):
                pass
            assert (await browser.get(PATH)).status_code == 401


async def test_a_file_is_kept_sent_and_read_by_who_receives_it(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)
    async with enter(there, "alice") as alice:
        kept = await alice.post("/api/files", params={"path": "/alice/plan.txt", "mime": "text/plain"}, content=b"plan")
        assert kept.json() == {"path": "/alice/plan.txt", "name": "plan.txt", "size": 4, "media_type": "text/plain"}
        assert (await alice.post("/api/files", params={"path": "/alice/plan.txt"}, content=b"")).status_code == 409
        said = {"target": "@bob", "body": "look", "files": ["/alice/plan.txt"], "urgent": True}
        sent = (await alice.post("/api/messages", json=said)).json()
        assert sent["recipients"] == 1
        assert (await alice.post("/api/messages", json={**said, "target": "@nobody"})).status_code == 404
        assert (await alice.post("/api/messages", json={**said, "files": ["/alice/none"]})).status_code == 400
    (delivery,) = await take(bob, 1)
    assert delivery.message.id == sent["id"]
    assert [one.name for one in delivery.message.attachments] == ["plan.txt"]
    async with enter(there, "bob") as reader:
        assert (await reader.get("/api/files/alice/plan.txt")).content == b"plan"
    async with enter(there, "carol") as stranger:
        assert (await stranger.get("/api/files/alice/plan.txt")).status_code == 403


async def test_past_messages_are_read_by_who_may_see_them(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = [await alice.send("@bob", f"number {number}") for number in range(3)]
    await bob.send("*", "to all")
    async with enter(there, "alice") as inside:
        found = (await inside.get("/api/messages", params={"with": "@bob", "limit": 2})).json()["messages"]
        assert [one["body"] for one in found] == ["number 2", "number 1"]
        page = {"with": "@bob", "before": found[-1]["offset"]}
        (first,) = (await inside.get("/api/messages", params=page)).json()["messages"]
        assert (first["id"], first["from"], first["target"]) == (sent[0].id, "alice", "@bob")
        assert len((await inside.get("/api/messages")).json()["messages"]) == 4
        assert (await inside.get("/api/messages", params={"everything": "true"})).status_code == 403
        assert (await inside.get("/api/messages", params={"else": "1"})).status_code == 400


async def test_members_and_objectives_are_read_by_who_may_see_them(there: HubHarness) -> None:
    chief = await there.join("chief")
    given = await chief.create_objective("Ship it", "it is shipped", "alice")
    other = await chief.create_objective("Plan it", "a plan is there", "bob")
    async with enter(there, "alice") as alice:
        listed = (await alice.get("/api/members")).json()["members"]
        assert [one["name"] for one in listed] == ["alice", "bob", "carol", "chief"]
        (one,) = (await alice.get("/api/members", params={"name": "chief"})).json()["members"]
        assert (one["kind"], one["sessions"]) == ("human", ["tieline"])
        assert [one["id"] for one in (await alice.get("/api/objectives")).json()["objectives"]] == [given.id]
        story = (await alice.get(f"/api/objectives/{given.id}")).json()
        assert (story["objective"]["title"], story["events"][0]["what"]["kind"]) == ("Ship it", "assigned")
        assert (await alice.get(f"/api/objectives/{other.id}")).status_code == 404
        assert (await alice.get("/api/objectives", params={"status": "lost"})).status_code == 400
    async with enter(there, "chief") as inside:
        found = (await inside.get("/api/objectives")).json()
        assert ([one["id"] for one in found["objectives"]], found["complete"]) == ([other.id, given.id], True)
        for asked in ({"assignee": "alice"}, {"status": "active", "before": other.id}):
            (one,) = (await inside.get("/api/objectives", params=asked)).json()["objectives"]
            assert one["id"] == given.id
        assert (await inside.get("/api/objectives", params={"status": "done"})).json()["objectives"] == []


async def test_a_file_in_a_channel_is_for_who_is_in_it(there: HubHarness) -> None:
    bob = await there.join("bob")
    await bob.subscribe("dev")
    async with enter(there, "alice") as alice:
        await alice.post("/api/files", params={"path": "/alice/plan.txt"}, content=b"plan")
        said = {"target": "#dev", "body": "look", "files": ["/alice/plan.txt"]}
        assert (await alice.post("/api/messages", json=said)).status_code == 200
        assert (await alice.post("/api/messages", json={**said, "target": "#nowhere"})).status_code == 404
    for name, status in (("bob", 200), ("carol", 403)):
        async with enter(there, name) as reader:
            assert (await reader.get("/api/files/alice/plan.txt")).status_code == status


async def test_work_is_given_with_files_which_are_copied_for_it(there: HubHarness) -> None:
    async with enter(there, "chief") as chief:
        await chief.post("/api/files", params={"path": "/chief/plan.txt"}, content=b"plan")
        work = {"title": "Build", "outcome": "built", "assignee": "alice", "files": ["/chief/plan.txt"]}
        given = await chief.post("/api/objectives", json=work)
        assert given.status_code == 200, given.text
        assert (await chief.post("/api/objectives", json={**work, "assignee": "nobody"})).status_code == 404
    alice = await there.join("alice")
    seen = await alice.objective(given.json()["id"])
    (copy,) = seen.objective.attachments
    assert copy.path.startswith("/objectives/")
    for name, status in (("alice", 200), ("bob", 403)):
        async with enter(there, name) as reader:
            assert (await reader.get(f"/api/files{copy.path}")).status_code == status


async def test_a_device_is_approved_and_its_token_opens_a_session(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    started = (await browser.post("/api/devices", json={"label": "laptop"})).json()
    waiting = {"device_code": started["device_code"]}
    pending = await browser.post("/api/devices/poll", json=waiting)
    assert (pending.status_code, pending.json()) == (400, {"error": "authorization_pending"})
    async with enter(there, "chief") as chief:
        (device,) = (await chief.get("/api/devices")).json()["devices"]
        assert (device["user_code"], device["label"]) == (started["user_code"], "laptop")
        form = {"user_code": device["user_code"], "member": "nobody"}
        assert (await chief.post("/api/devices/approve", json=form)).status_code == 404
        approved = await chief.post("/api/devices/approve", json={**form, "member": "bob"})
        assert approved.status_code == 204
    fetched = (await browser.post("/api/devices/poll", json=waiting)).json()
    assert fetched["member"] == "bob"
    assert (await browser.post(PATH, json={"token": fetched["token"]})).json()["member"] == "bob"
    assert (await browser.delete(f"/api/tokens/{fetched['token_id']}")).status_code == 204
    assert (await browser.get(PATH)).json()["member"] == "bob"
    bob = await there.join("bob")
    assert sorted(view.label for view in await bob.tokens("bob")) == ["", "console"]


async def test_a_device_is_refused_with_a_reason(there: HubHarness, browser: httpx.AsyncClient) -> None:
    started = (await browser.post("/api/devices", json={})).json()
    async with enter(there, "chief") as chief:
        form = {"user_code": started["user_code"], "reason": "not mine"}
        assert (await chief.post("/api/devices/reject", json=form)).status_code == 204
        assert (await chief.post("/api/devices/reject", json={"user_code": "0000-0000"})).status_code == 404
    told = await browser.post("/api/devices/poll", json={"device_code": started["device_code"]})
    assert told.json() == {"error": "access_denied", "error_description": "not mine"}


async def test_a_page_of_another_site_can_ask_nothing(there: HubHarness) -> None:
    async with enter(there, "chief") as chief:
        answer = await chief.get("/api/devices", headers={"origin": "http://evil.example"})
    assert answer.status_code == 403


async def test_the_routes_are_described(browser: httpx.AsyncClient) -> None:
    described = (await browser.get(DOCUMENT_PATH)).json()
    assert {"/api/files", "/api/devices", "/api/messages", "/api/objectives"} <= set(described["paths"])
    hubs = {"/api/search", "/api/messages/{id}/receipts", "/api/log/{log}", "/api/insights", PATH, CODE_PATH}
    assert hubs <= set(described["paths"])
    asked = {one["name"]: one for one in described["paths"]["/api/search"]["get"]["parameters"]}
    assert asked["q"] == {"name": "q", "in": "query", "required": True, "schema": {"type": "string"}}
    assert asked["from"] == {"name": "from", "in": "query", "required": False, "schema": {"type": "string"}}


async def test_a_session_of_the_console_and_one_of_ac7_are_in_one_table(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice")
        async with enter(there, "alice") as console:
            shown = (await console.get("/session")).json()
            assert shown["expiresAt"] < 2**53 - 1
            stolen = console.cookies[SESSION_COOKIE]
            left = await console.post("/session/logout")
            assert left.status_code == 204
            assert SESSION_COOKIE not in console.cookies
            again = await console.get(PATH, headers={"cookie": f"{SESSION_COOKIE}={stolen}"})
            assert again.status_code == 401
        code = await code_of(there, "alice")
        async with httpx.AsyncClient(base_url=there.running.http) as browser:
            await browser.post("/session/totp", json={"code": code, "member": "alice"})
            stolen = browser.cookies[LOGIN_COOKIE]
            assert (await browser.delete(PATH)).status_code == 204
            assert LOGIN_COOKIE not in browser.cookies
            again = await browser.get("/session", headers={"cookie": f"{LOGIN_COOKIE}={stolen}"})
            assert (again.status_code, again.json()) == (401, {"error": "session expired"})


async def test_sessions_are_there_after_a_restart(folder: Path) -> None:
    async with running_hub(folder, ac7=False) as there:
        await there.add("alice")
        async with enter(there, "alice") as browser:
            cookie = browser.cookies[SESSION_COOKIE]
        assert cookie.partition(".")[2] not in (folder / "logins.json").read_text()
    async with running_hub(folder) as there, httpx.AsyncClient(base_url=there.running.http) as browser:
        shown = await browser.get("/session", headers={"cookie": f"{SESSION_COOKIE}={cookie}"})
        assert (shown.status_code, shown.json()["member"]) == (200, "alice")
        assert shown.json()["expiresAt"] < 2**53 - 1
