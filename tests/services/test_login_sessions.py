"""Tests of login sessions of a hub: authenticator apps are tokens, and the token of a session ends with the session."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.core.doubles import HOME_KEY, FakeClockAndIds
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import ByHomeKey, ByToken, Credential, TokenView
from tieline.contract.refusal import Code, Refusal
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.server.local_hub import LocalHub
from tieline.services.document import DocumentFile
from tieline.services.login_sessions import LINK_LABEL, LOGINS_FILE, LoginSessions, Opened
from tieline.services.logins import SESSION_MS, Denied
from tieline.services.operator import Operator
from tieline.services.totp import STEP_SECONDS, code_at
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.database import IN_MEMORY
from tieline.wire.sessions import Make, ask_all

ALICE, BOB = MemberName("alice"), MemberName("bob")
STEP_MS = STEP_SECONDS * 1000


class Interrupted(Operator):
    """Test double: an operator that runs the callback `before` before its next request."""

    before: Callable[[], Awaitable[object]] | None = None

    async def ask(self, make: Make) -> Sequence[r.Reply]:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().ask(make)


class LoginsHarness:
    """Test helper: login sessions of a hub with two members, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClockAndIds()
        store = SqliteStore(folder, synchronous="OFF")
        broker = Broker(store, self.clock, DEFAULT_LIMITS, home_key=token_digest(HOME_KEY))
        self.hub = LocalHub(broker, SqliteActivity(IN_MEMORY))
        self.file = folder / LOGINS_FILE
        self.interrupted = Interrupted(self.hub, ByHomeKey(HOME_KEY))
        self.restart_logins()

    def restart_logins(self) -> None:
        document = DocumentFile(self.file)
        self.logins = LoginSessions(self.hub, self.interrupted, document, self.clock.now_ms, os.urandom)

    async def open(self) -> None:
        self.hub.start()
        self.operator = await self.attach(ByHomeKey(HOME_KEY))
        await self.add(ALICE)
        self.bob = await self.attach(ByToken(await self.add(BOB)))

    async def add(self, name: MemberName) -> str:
        issued = await self.hub.ask(c.AddMember(self.operator, name=name))
        assert isinstance(issued, r.Issued), issued
        return issued.token

    async def attach(self, credential: Credential) -> SessionId:
        reply = await self.hub.ask(c.Attach(protocol="test", credential=credential))
        assert isinstance(reply, r.Attached), reply
        return reply.session

    async def enrol(self, name: MemberName = BOB, session: SessionId | None = None) -> str:
        secret = await self.logins.enrol(name, lambda make: ask_all(self.hub, make(session or self.operator)))
        assert isinstance(secret, str), secret
        return secret

    async def sign_in(self, secret: str, name: MemberName = BOB) -> Opened:
        self.clock.time_ms += STEP_MS
        opened = await self.logins.sign_in(code_at(secret, self.clock.time_ms), name)
        assert isinstance(opened, Opened), opened
        return opened

    async def refused(self, secret: str, name: MemberName = BOB) -> bool:
        """Try to log in with a new code. Return true if the login is refused."""
        self.clock.time_ms += STEP_MS
        return await self.logins.sign_in(code_at(secret, self.clock.time_ms), name) == Denied(401, "invalid code")

    async def tokens(self, name: MemberName = BOB) -> tuple[TokenView, ...]:
        listed = await self.hub.ask(c.ListTokens(self.operator, name=name))
        assert isinstance(listed, r.Tokens), listed
        return listed.tokens

    async def labels(self, name: MemberName = BOB) -> list[str]:
        return [token.label for token in await self.tokens(name)]

    async def revoke(self, label: str) -> None:
        (token,) = [token for token in await self.tokens() if token.label == label]
        assert isinstance(await self.hub.ask(c.RevokeToken(self.bob, name=BOB, token_id=token.id)), r.Done)

    async def opens(self, session_id: str) -> bool:
        """Return true if the hub accepts a session's secret as a token."""
        reply = await self.hub.ask(c.Attach(protocol="test", credential=ByToken(session_id)))
        assert isinstance(reply, r.Attached) or reply.code is Code.UNAUTHORIZED, reply
        return isinstance(reply, r.Attached)

    async def audited(self) -> list[tuple[str, str]]:
        """Return the log entries about registrations of bob, each as (actor, change)."""
        log = await self.hub.ask(c.ReadLog(self.operator))
        assert isinstance(log, r.LogRows), log
        events = [json.loads(row.event) for row in log.rows]
        return [(one["by"], one["what"]) for one in events if one["event"] == "register" and one["member"] == BOB]

    def apps(self) -> set[str]:
        """Return the members with an authenticator app, as stored in the file."""
        return set(json.loads(self.file.read_bytes())["credentials"])


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[LoginsHarness]:
    made = LoginsHarness(tmp_path)
    await made.open()
    yield made
    await made.hub.stop()


# Authenticator apps


async def test_replacing_the_tokens_of_a_member_removes_its_authenticator_app(harness: LoginsHarness) -> None:
    secret = await harness.enrol()
    opened = await harness.sign_in(secret)
    assert isinstance(await harness.hub.ask(c.RotateToken(harness.operator, name=BOB)), r.Issued)
    assert await harness.refused(secret)
    assert not await harness.opens(opened.id)
    await harness.logins.check()
    assert harness.apps() == set()
    again = await harness.enrol()
    await harness.sign_in(again)


async def test_an_app_is_listed_among_the_tokens_of_its_member_and_removed_there(harness: LoginsHarness) -> None:
    secret = await harness.enrol(session=harness.bob)
    opened = await harness.sign_in(secret)
    app = (await harness.tokens())[1]
    assert (app.label, app.created_by, app.last_used_ms) == ("authenticator app", "bob", harness.clock.time_ms)
    await harness.revoke("authenticator app")
    assert await harness.refused(secret)
    await harness.logins.check()
    assert not await harness.opens(opened.id), "what its codes opened ends with the app"
    assert await harness.labels() == [""]


async def test_that_an_app_was_enrolled_and_removed_is_audited(harness: LoginsHarness) -> None:
    await harness.enrol(session=harness.bob)
    await harness.revoke("authenticator app")
    added, removed = ("bob", "one more token: authenticator app"), ("bob", "one token less: authenticator app")
    assert (await harness.audited())[-2:] == [added, removed]


async def test_a_new_app_replaces_the_old_one_and_its_token(harness: LoginsHarness) -> None:
    old = await harness.enrol()
    new = await harness.enrol()
    assert await harness.labels() == ["", "authenticator app"]
    assert await harness.refused(old)
    await harness.sign_in(new)


async def test_an_app_is_refused_without_a_right_and_for_a_stranger(harness: LoginsHarness) -> None:
    bob, operator = harness.bob, harness.operator
    forbidden = await harness.logins.enrol(ALICE, lambda make: ask_all(harness.hub, make(bob)))
    assert isinstance(forbidden, Refusal)
    assert forbidden.code is Code.FORBIDDEN
    unknown = await harness.logins.enrol(MemberName("nobody"), lambda make: ask_all(harness.hub, make(operator)))
    assert unknown == Refusal(Code.UNKNOWN_MEMBER, "no such member: nobody")
    assert not harness.file.exists()


async def test_an_app_that_an_older_hub_enrolled_gets_its_token_at_the_start(harness: LoginsHarness) -> None:
    secret = await harness.enrol()
    await harness.revoke("authenticator app")
    kept = json.loads(harness.file.read_bytes())
    del kept["credentials"]["bob"]["token_id"]
    harness.file.write_text(json.dumps(kept))
    harness.restart_logins()
    await harness.logins.check()
    assert await harness.labels() == ["", "authenticator app"]
    await harness.sign_in(secret)
    await harness.logins.check()
    assert await harness.refused(await harness.enrol(ALICE)), "of another member"


# Sessions


async def test_a_session_that_is_idle_for_seven_days_opens_nothing_on_any_route(harness: LoginsHarness) -> None:
    opened = await harness.sign_in(await harness.enrol())
    harness.clock.time_ms += SESSION_MS - 1
    await harness.logins.check()
    assert [label[:6] for label in await harness.labels()] == ["", "authen", "login "]
    harness.clock.time_ms += 1
    await harness.logins.check()
    assert not await harness.opens(opened.id)
    assert await harness.labels() == ["", "authenticator app"]


async def test_a_session_that_is_used_on_any_route_lasts_seven_days_more(harness: LoginsHarness) -> None:
    opened = await harness.sign_in(await harness.enrol())
    harness.clock.time_ms += SESSION_MS - STEP_MS
    assert await harness.opens(opened.id)
    await harness.logins.check()
    harness.restart_logins()
    harness.clock.time_ms += SESSION_MS - STEP_MS
    await harness.logins.check()
    assert await harness.logins.find(opened.id) is not None


async def test_a_session_that_is_found_to_be_over_ends_its_token_at_once(harness: LoginsHarness) -> None:
    opened = await harness.sign_in(await harness.enrol())
    harness.clock.time_ms += SESSION_MS
    assert await harness.logins.find(opened.id) is None
    assert not await harness.opens(opened.id)


async def test_a_session_that_is_dropped_ends_its_token_at_once(harness: LoginsHarness) -> None:
    opened = await harness.sign_in(await harness.enrol())
    await harness.logins.drop(opened.id)
    assert not await harness.opens(opened.id)


async def test_forgetting_a_member_does_not_keep_the_ended_sessions_of_others(harness: LoginsHarness) -> None:
    opened = await harness.sign_in(await harness.enrol(ALICE), ALICE)
    await harness.enrol(BOB)
    harness.clock.time_ms += SESSION_MS
    await asyncio.gather(harness.logins.find(opened.id), harness.logins.forget(BOB))
    assert not await harness.opens(opened.id)


async def test_two_logins_at_once_both_stay(harness: LoginsHarness) -> None:
    secret = await harness.enrol()
    opened: list[Opened] = []

    async def other() -> None:
        opened.append(await harness.sign_in(secret))

    harness.interrupted.before = other
    opened.append(await harness.sign_in(secret))
    assert [await harness.opens(one.id) for one in opened] == [True, True]


async def test_a_login_revokes_no_token_whose_label_only_looks_like_that_of_a_login(harness: LoginsHarness) -> None:
    for label in (LINK_LABEL, "login server", "login 0123456789abcdef"):
        assert isinstance(await harness.hub.ask(c.IssueToken(harness.bob, name=BOB, label=label)), r.TokenIssued)
    before = await harness.labels()
    await harness.sign_in(await harness.enrol())
    assert (await harness.labels())[: len(before)] == before
