"""Tests of logins over HTTP: a code opens a session, a strict cookie carries it, its token or member ends it."""

import json
import time
from pathlib import Path

import pytest

from tests.protocols.ac7.teams import EventReader, Reply, Seat, Team, team
from tests.stores.postgres_server import in_files
from tieline.protocols.ac7.cookies import COOKIE
from tieline.server.config import ConfigError
from tieline.services.logins import SESSION_MS
from tieline.services.totp import code_at


class Browser(Seat):
    """Test client: a browser, with or without the cookie of a login."""

    cookie = ""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        return {"content-type": "application/json", **({"cookie": self.cookie} if self.cookie else {})}

    async def sign_in(self, code: str, member: str | None = None) -> Reply:
        """Log in with a one-time code, and store the cookie. Return the answer."""
        form = {"code": code} if member is None else {"code": code, "member": member}
        reply = await self.ask("POST", "/session/totp", form)
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wrong(*secrets: str) -> str:
    """Return a code that is wrong for all these secrets during the test."""
    taken = {code_at(secret, now_ms() + step * 30_000) for secret in secrets for step in range(-3, 40)}
    return next(code for number in range(10_000) if (code := f"{number:06}") not in taken)


async def enrolled(seat: Seat) -> str:
    made = await seat.do("POST", f"/members/{seat.name}/enroll-totp")
    assert made["totpUri"].startswith("otpauth://totp/")
    secret: str = made["totpSecret"]
    return secret


async def logged_in(crew: Team, seat: Seat) -> Browser:
    browser = Browser(crew.url, seat.name)
    reply = await browser.sign_in(code_at(await enrolled(seat), now_ms()), seat.name)
    assert reply.status == 200, reply
    return browser


async def test_a_code_opens_a_session_which_a_strict_cookie_carries(crew: Team) -> None:
    ann = await crew.seat("ann", "activity.read")
    secret = await enrolled(ann)
    browser = Browser(crew.url, "ann")
    assert await browser.refused(401, "GET", "/session") == "missing credentials"
    code = code_at(secret, now_ms())
    reply = await browser.sign_in(code)
    assert reply.status == 200
    attributes = reply.headers["set-cookie"].split("; ")
    assert attributes[0].startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"} <= set(attributes)
    session = await browser.get("/session")
    assert (session["member"], session["permissions"]) == ("ann", ["activity.read"])
    assert abs(session["expiresAt"] - now_ms() - SESSION_MS) < 60_000
    assert (await ann.get("/session"))["expiresAt"] == 9007199254740991
    assert (await Browser(crew.url).sign_in(code, "ann")).status == 401, "a code is good once"


async def test_a_session_may_what_its_member_may_and_speaks_as_it(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    browser = await logged_in(crew, ann)
    await browser.push("from a browser", to="bob")
    assert (await bob.history())[-1]["from"] == "ann"
    assert await browser.refused(403, "POST", "/members", {"name": "x", "role": {"title": "t"}})
    assert await browser.refused(401, "POST", "/presence/busy", {"busy": True}) == "missing bearer token"
    await ann.do("POST", "/presence/busy", 204, busy=True)


async def test_a_page_of_another_site_cannot_use_a_session(crew: Team) -> None:
    browser = await logged_in(crew, await crew.seat("ann"))
    reply = await browser.ask("GET", "/session", origin="https://evil.test")
    assert reply.status == 403


async def test_a_stream_of_a_session_is_not_announced(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    browser = await logged_in(crew, ann)
    stream = await crew.follow(browser, "/subscribe?name=ann")
    await bob.push("hello", to="ann")
    assert (await stream.next())["body"] == "hello"


async def test_logging_out_ends_the_session_and_takes_the_cookie_away(crew: Team) -> None:
    ann = await crew.seat("ann")
    browser = await logged_in(crew, ann)
    reply = await browser.ask("POST", "/session/logout")
    assert reply.status == 204
    assert "Max-Age=0" in reply.headers["set-cookie"]
    assert await browser.refused(401, "GET", "/session") == "session expired"
    token = browser.cookie.partition("=")[2]
    assert await Seat(crew.url, "ann", token).refused(401, "GET", "/session") == "unknown token"
    assert [one["label"] for one in (await ann.get("/members/ann/tokens"))["tokens"]] == ["", "authenticator app"]
    assert (await ann.ask("POST", "/session/logout")).status == 204
    assert await ann.get("/session"), "whoever shows a token of its own keeps that"


async def test_a_session_ends_with_its_token_and_with_its_member(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    boss = await crew.seat("boss", "members.manage")
    first, second = await logged_in(crew, ann), await logged_in(crew, bob)
    (shown,) = [one for one in (await ann.get("/members/ann/tokens"))["tokens"] if one["label"].startswith("login ")]
    await ann.ask("DELETE", f"/members/ann/tokens/{shown['id']}")
    assert await first.refused(401, "GET", "/session") == "session expired"
    stream = await crew.follow(second, "/subscribe?name=bob")
    assert (await boss.ask("DELETE", "/members/bob")).status == 204
    assert isinstance(stream, EventReader)
    assert (await stream.line()).startswith(": 1008")
    assert await second.refused(401, "GET", "/session") == "session expired"
    await crew.seat("bob")
    assert await second.refused(401, "GET", "/session") == "session expired"


async def test_a_new_secret_ends_the_old_one_and_its_sessions(crew: Team) -> None:
    ann = await crew.seat("ann")
    browser = await logged_in(crew, ann)
    await enrolled(ann)
    assert await browser.refused(401, "GET", "/session") == "session expired"


async def test_a_secret_is_made_for_oneself_or_by_who_manages_members(crew: Team) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "members.manage")
    await crew.seat("bob")
    assert await ann.refused(403, "POST", "/members/bob/enroll-totp")
    assert await ann.refused(403, "POST", "/members/nobody/enroll-totp")
    assert await boss.refused(404, "POST", "/members/nobody/enroll-totp")
    assert (await boss.do("POST", "/members/bob/enroll-totp"))["totpSecret"]


async def test_strangers_who_guess_from_the_members_own_address_do_not_keep_it_out(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    secrets = await enrolled(ann), await enrolled(bob)
    stranger, browser = Browser(crew.url), Browser(crew.url)
    bad = wrong(*secrets)
    for name in ("ann", "nobody"):
        assert [(await stranger.sign_in(bad, name)).status for _ in range(6)] == [401] * 5 + [429]
    # Clocks differ, so three codes are good at a time: what the app shows in three steps.
    codes = [code_at(secrets[0], now_ms() + step * 30_000) for step in range(-1, 2)]
    for code in codes[:2]:
        late = await browser.sign_in(code, "ann")
        assert late.status == 429
        assert 0 < late.value["retryAfter"] <= 30
        assert late.headers["retry-after"] == str(late.value["retryAfter"])
        assert {"HttpOnly", "SameSite=Strict"} <= set(late.headers["set-cookie"].split("; "))
        assert (await stranger.sign_in(bad, "ann")).status == 429
    assert (await browser.sign_in(codes[2], "ann")).status == 200
    assert (await browser.get("/session"))["member"] == "ann"
    assert (await Browser(crew.url).sign_in(code_at(secrets[1], now_ms()), "bob")).status == 200
    assert await browser.refused(400, "POST", "/session/totp", {"code": "12345"})


@in_files
async def test_a_damaged_file_of_logins_is_said_at_the_start(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    (home / "logins.json").write_text("{")
    with pytest.raises(ConfigError, match=r"logins\.json"):
        async with team(home):
            pass


@in_files
async def test_sessions_are_there_after_a_restart_and_secrets_are_private(folder: Path) -> None:
    home = folder / "home"
    async with team(home) as crew:
        browser = await logged_in(crew, await crew.seat("ann"))
    kept = home / "logins.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert browser.cookie.partition("=")[2] not in kept.read_text()
    async with team(home) as crew:
        browser.url = crew.url
        assert (await browser.get("/session"))["member"] == "ann"
    async with team(home, ac7=False) as crew:
        operator = await crew.there.operator()
        await operator.remove_member("ann")
        await crew.there.add("ann")
    async with team(home) as crew:
        browser.url = crew.url
        assert await browser.refused(401, "GET", "/session") == "session expired"
        assert json.loads(kept.read_text())["credentials"] == {}
