"""Tests of sessions for HTTP requests: they are shared, ended when idle, and opened again if the hub ended them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub
from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.member import Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Fetched, Roster
from tieline.wire import sessions as kept
from tieline.wire.sessions import CachedSession, Sessions, ask_all


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="memory", **ALONE) as built:
        await built.add("alice", "bob")
        yield built


def hub_of(there: HubHarness) -> Hub:
    assert there.hub.local_hub is not None
    return there.hub.local_hub


async def presences(hub: Hub, cached: CachedSession) -> dict[str, Presence]:
    (roster,) = await ask_all(hub, (c.ListMembers(cached.session),))
    assert isinstance(roster, Roster), roster
    return {presence.member.name: presence for presence in roster.members}


async def cached_for(sessions: Sessions, token: str) -> CachedSession:
    cached = await sessions.of(token)
    assert isinstance(cached, CachedSession), cached
    return cached


async def test_requests_that_come_together_share_one_session(there: HubHarness) -> None:
    hub = hub_of(there)
    sessions = Sessions(hub, "backchannel")
    found = await asyncio.gather(*(sessions.of(there.tokens["alice"]) for _ in range(20)))
    assert len({id(cached) for cached in found}) == 1
    alice, bob = await cached_for(sessions, there.tokens["alice"]), await cached_for(sessions, there.tokens["bob"])
    assert (alice.member, bob.member) == ("alice", "bob")
    assert (await presences(hub, bob))["alice"].sessions == ("backchannel",)
    sessions.close()


async def test_a_token_that_opens_nothing_is_refused_each_time(there: HubHarness) -> None:
    sessions = Sessions(hub_of(there), "backchannel")
    for reply in await asyncio.gather(*(sessions.of("wrong") for _ in range(3)), sessions.of("\xff")):
        assert isinstance(reply, Refusal)
        assert reply.code is Code.UNAUTHORIZED


async def test_one_who_stops_waiting_does_not_keep_the_others_from_their_session(there: HubHarness) -> None:
    sessions = Sessions(hub_of(there), "backchannel")
    first = asyncio.create_task(sessions.of(there.tokens["alice"]))
    second = asyncio.create_task(sessions.of(there.tokens["alice"]))
    await asyncio.sleep(0)
    first.cancel()
    assert isinstance(await second, CachedSession)
    sessions.close()


async def test_a_session_ends_a_while_after_its_last_request_and_not_before(there: HubHarness) -> None:
    hub = hub_of(there)
    watching = await cached_for(Sessions(hub, "watching"), there.tokens["bob"])
    sessions = Sessions(hub, "backchannel", idle_seconds=0.3)
    loop = asyncio.get_running_loop()
    started = loop.time()
    while loop.time() < started + 0.6:
        await cached_for(sessions, there.tokens["alice"])
        assert (await presences(hub, watching))["alice"].sessions == ("backchannel",)
    async with asyncio.timeout(10):
        while (await presences(hub, watching))["alice"].sessions:
            pass
    assert loop.time() - started > 0.6 + 0.2
    assert (await cached_for(sessions, there.tokens["alice"])).member == "alice"
    sessions.close()


async def test_a_session_that_has_ended_is_opened_again_for_the_command_that_finds_it_so(there: HubHarness) -> None:
    hub = hub_of(there)
    sessions = Sessions(hub, "backchannel")
    cached = await cached_for(sessions, there.tokens["alice"])
    await hub.ask(c.Detach(cached.session))
    (reply,) = await sessions.ask(there.tokens["alice"], cached, lambda session: (c.Fetch(session),))
    assert isinstance(reply, Fetched)
    assert (await cached_for(sessions, there.tokens["alice"])).session != cached.session
    sessions.close()


async def test_a_replaced_token_opens_nothing_even_for_a_request_that_has_begun(there: HubHarness) -> None:
    sessions = Sessions(hub_of(there), "backchannel")
    token = there.tokens["alice"]
    cached = await cached_for(sessions, token)
    await (await there.operator()).rotate_token("alice")
    (reply,) = await sessions.ask(token, cached, lambda session: (c.Fetch(session),))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.UNAUTHORIZED
    assert isinstance(await sessions.of(token), Refusal)


async def test_a_busy_session_is_opened_anew_now_and_then_so_that_an_expired_token_is_noticed(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_AGE_SECONDS", 0.05)
    hub = hub_of(there)
    sessions = Sessions(hub, "backchannel")
    seen: set[str] = set()
    async with asyncio.timeout(10):
        while len(seen) < 3:
            cached = await cached_for(sessions, there.tokens["alice"])
            seen.add(cached.session)
            assert (await presences(hub, cached))["alice"].sessions == ("backchannel",)
    sessions.close()


async def test_past_the_limit_the_session_that_was_not_used_for_longest_ends(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_SESSIONS_MAX", 2)
    hub = hub_of(there)
    await there.add("carol")
    sessions = Sessions(hub, "backchannel")
    for name in ("alice", "bob"):
        await cached_for(sessions, there.tokens[name])
    # Times of use are compared, and a clock may stand still for some milliseconds.
    await asyncio.sleep(0.01)
    await cached_for(sessions, there.tokens["alice"])
    carol = await cached_for(sessions, there.tokens["carol"])
    found = await presences(hub, carol)
    assert [name for name, presence in found.items() if presence.sessions] == ["alice", "carol"]
    sessions.close()


async def test_closing_ends_all_of_them(there: HubHarness) -> None:
    hub = hub_of(there)
    watching = await cached_for(Sessions(hub, "watching"), there.tokens["bob"])
    sessions = Sessions(hub, "backchannel")
    for name in ("alice", "bob"):
        await cached_for(sessions, there.tokens[name])
    sessions.close()
    found = await presences(hub, watching)
    assert [presence.sessions for presence in found.values()] == [(), ("watching",)]
