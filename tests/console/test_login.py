"""Tests of the login to the console, and of the logout."""

import asyncio
import getpass
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest
from websockets.asyncio.client import connect as dial

from tests.server.hubs import HubHarness, running_hub
from tieline.console.login import PATH
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByShared
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7.cookies import COOKIE as LOGIN_COOKIE
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.protocols.peerbus.settings import PeerbusSettings
from tieline.server.config import load_config
from tieline.services import totp
from tieline.services.login_sessions import LINK_LABEL
from tieline.wire.http import SESSION_COOKIE as COOKIE
from tieline.wire.native import frames as f


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe") as built:
        await built.add("alice", "bob")
        yield built


@pytest.fixture
async def browser(there: HubHarness) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        yield client


async def test_nobody_is_in_without_a_cookie(browser: httpx.AsyncClient) -> None:
    answer = await browser.get(PATH)
    assert (answer.status_code, answer.json()) == (401, {"error": "nobody is logged in"})


async def test_a_token_opens_the_door_and_the_cookie_keeps_it_open(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    answer = await browser.post(PATH, json={"token": there.tokens["alice"]})
    assert answer.status_code == 200
    assert answer.json()["member"] == "alice"
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"))
    assert there.tokens["alice"] not in cookie
    assert (await browser.get(PATH)).json()["member"] == "alice"


async def test_the_cookie_is_a_token_of_its_own_that_is_listed_and_revoked(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    await browser.post(PATH, json={"token": there.tokens["alice"]})
    alice = await there.join("alice")
    (session,) = [view for view in await alice.tokens("alice") if view.label == "console"]
    assert session.expires_at_ms is not None
    await alice.revoke_token("alice", session.id)
    assert (await browser.get(PATH)).status_code == 401


async def test_leaving_voids_the_session_and_the_token_that_opened_it_stays(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    await browser.post(PATH, json={"token": there.tokens["alice"]})
    kept = browser.cookies[COOKIE]
    assert (await browser.delete(PATH)).status_code == 204
    assert (await browser.get(PATH)).status_code == 401
    stolen = await browser.get(PATH, headers={"cookie": f"{COOKIE}={kept}"})
    assert stolen.status_code == 401
    assert (await browser.post(PATH, json={"token": there.tokens["alice"]})).status_code == 200


async def test_a_wrong_token_opens_nothing(browser: httpx.AsyncClient) -> None:
    answer = await browser.post(PATH, json={"token": "tie_wrong"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 5}', b"{}"])
async def test_what_is_no_entry_is_said_to_be_none(browser: httpx.AsyncClient, body: bytes) -> None:
    answer = await browser.post(PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


async def test_a_page_of_another_site_cannot_log_in_or_out(there: HubHarness, browser: httpx.AsyncClient) -> None:
    token = {"token": there.tokens["alice"]}
    evil = {"origin": "http://evil.example"}
    assert (await browser.post(PATH, json=token, headers=evil)).status_code == 403
    assert (await browser.delete(PATH, headers=evil)).status_code == 403
    # A form cannot send JSON, and what it can send is not read.
    form = await browser.post(PATH, data=token)
    assert form.status_code == 415


async def test_a_login_link_is_good_for_one_entry(there: HubHarness, browser: httpx.AsyncClient) -> None:
    alice = await there.join("alice")
    link = (await alice.issue_token("alice", label=LINK_LABEL)).token
    answers = await asyncio.gather(*(browser.post(PATH, json={"token": link}) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401]
    assert (await browser.post(PATH, json={"token": link})).status_code == 401


async def test_the_code_of_a_first_start_makes_a_person_who_may_do_everything_once(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    assert there.hub.services is not None
    code = there.hub.services.logins.first_code(MemberName("root"))
    answer = await browser.post(PATH, json={"token": code})
    assert answer.json()["member"] == "root"
    assert answer.json()["kind"] == "human"
    assert {"members.manage", "log.read", "activity.read"} <= set(answer.json()["permissions"])
    assert (await browser.post(PATH, json={"token": code})).status_code == 401


async def test_the_owners_name_waits_for_the_link_of_the_first_start_whoever_asks_for_it(folder: Path) -> None:
    async with running_hub(folder) as there, httpx.AsyncClient(base_url=there.running.http) as browser:
        owner, local_hub = getpass.getuser(), there.hub.local_hub
        assert there.hub.services is not None
        assert local_hub is not None
        config = load_config(folder)
        code = there.hub.services.logins.first_code(MemberName(owner))
        for name in (owner, owner.upper()):
            room = {"authorization": f"Bearer {config.of(BackchannelSettings).room_token}"}
            registered = await browser.post("/v1/register", json={"name": name}, headers=room)
            assert (registered.status_code, "kept for" in registered.json()["error"]) == (409, True)
            token = ByShared(config.of(PeerbusSettings).tokens[0])
            peer = c.Attach(protocol="peerbus", credential=token, member=MemberName(name))
            refused = await local_hub.ask(peer)
            assert isinstance(refused, Refusal)
            assert refused.code is Code.NAME_TAKEN
        answer = await browser.post(PATH, json={"token": code})
        assert (answer.status_code, answer.json().get("member")) == (200, owner)


async def test_a_first_link_whose_name_was_made_a_member_meanwhile_says_so_and_names_the_way(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    assert there.hub.services is not None
    code = there.hub.services.logins.first_code(MemberName("alice"))
    answer = await browser.post(PATH, json={"token": code})
    assert answer.status_code == 409
    assert "alice became a member before" in answer.json()["error"]
    assert "`tieline login alice`" in answer.json()["error"]


async def test_a_first_link_that_is_too_old_names_the_one_command_that_makes_another(
    there: HubHarness, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.hub.services is not None
    logins = there.hub.services.logins
    code = logins.first_code(MemberName("root"))
    later = logins._now_ms() + 15 * 60 * 1000 + 1
    monkeypatch.setattr(logins, "_now_ms", lambda: later)
    answer = await browser.post(PATH, json={"token": code})
    assert answer.status_code == 401
    assert "`tieline login root`" in answer.json()["error"]
    assert "member add" not in answer.json()["error"]


async def test_no_other_method_is_answered(browser: httpx.AsyncClient) -> None:
    answer = await browser.put(PATH, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST, DELETE")


async def test_the_hubs_own_protocol_knows_who_is_in_by_the_cookie(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    await browser.post(PATH, json={"token": there.tokens["alice"]})
    address = there.running.http.replace("http", "ws") + "/api/stream"
    headers = {"cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    async with dial(address, additional_headers=headers) as stream:
        await stream.send(f.encode_batch([f.Hello()]).decode())
        (welcome,) = f.decode_hub_batch(await stream.recv())
    assert isinstance(welcome, f.Welcome)
    assert welcome.member == "alice"


async def test_the_cookie_is_good_for_ac7s_routes_too(there: HubHarness, browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/roster")).status_code == 401
    await browser.post(PATH, json={"token": there.tokens["alice"]})
    assert (await browser.get("/roster")).status_code == 200
    assert (await browser.get("/roster", headers={"origin": "http://evil.example"})).status_code == 403
    await browser.delete(PATH)
    assert (await browser.get("/roster")).status_code == 401


async def _log_in_by_code(there: HubHarness, browser: httpx.AsyncClient) -> None:
    headers = {"authorization": f"Bearer {there.tokens['alice']}"}
    secret = (await browser.post("/members/alice/enroll-totp", headers=headers)).json()["totpSecret"]
    code = totp.code_at(secret, int(time.time() * 1000))
    assert (await browser.post("/session/totp", json={"code": code, "member": "alice"})).status_code == 200


async def test_a_login_with_a_code_opens_the_console_too(there: HubHarness, browser: httpx.AsyncClient) -> None:
    await _log_in_by_code(there, browser)
    assert (await browser.get(PATH)).json()["member"] == "alice"


async def test_who_comes_in_with_a_token_is_not_somebody_else_by_an_older_code(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    await _log_in_by_code(there, browser)
    older = browser.cookies[LOGIN_COOKIE]
    await browser.post(PATH, json={"token": there.tokens["bob"]})
    assert LOGIN_COOKIE not in browser.cookies
    # Were there both, they would be one person everywhere, and a login that is over would not be in the way.
    for login in (older, "over"):
        headers = {"cookie": f"{LOGIN_COOKIE}={login}; {COOKIE}={browser.cookies[COOKIE]}"}
        async with httpx.AsyncClient(base_url=there.running.http, headers=headers) as both:
            assert (await both.get(PATH)).json()["member"] == "bob"
            assert (await both.get("/session")).json()["member"] == "bob"


async def test_a_session_that_is_revoked_while_it_is_asked_for_is_over(
    there: HubHarness, browser: httpx.AsyncClient
) -> None:
    alice = await there.join("alice")
    await browser.post(PATH, json={"token": there.tokens["alice"]})
    (session,) = [view for view in await alice.tokens("alice") if view.label == "console"]
    revoking = asyncio.create_task(alice.revoke_token("alice", session.id))
    answers = await asyncio.gather(*(browser.get(PATH) for _ in range(20)))
    await revoking
    assert {answer.status_code for answer in answers} <= {200, 401}
    assert (await browser.get(PATH)).status_code == 401
