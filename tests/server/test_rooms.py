"""Tests of rooms besides the common one: they are made, found, kept over a restart, closed when idle, and removed.

Only an empty room is removed.
"""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.interop.rooms import Intruder
from tests.protocols.backchannel.relays import ROOM, Agent, Room, room
from tests.server.hubs import HubHarness, running_hub, until
from tests.stores.postgres_server import on_postgres
from tieline.cli.offline import OfflineHub
from tieline.client import HubRefused, connect
from tieline.core.store import StoreError
from tieline.server.config import ConfigError, load_config
from tieline.server.rooms import EMPTY_SECONDS, Rooms
from tieline.wire.room import ROOM_FILE, ROOMS_MAX

HEADER = "x-backchannel-room"


class Inside(Agent):
    """Test client that names a room in a header of each request, like `bch` (backchannel's first program)."""

    def __init__(self, url: str, room_id: str, token: str | None = None, name: str = "") -> None:
        super().__init__(url, token, name)
        self.room_id = room_id

    @property
    def headers(self) -> dict[str, str]:
        return {**super().headers, HEADER: self.room_id}


async def make(url: str) -> Inside:
    """Make a room. Return a client with its token."""
    made = await Agent(url).post("/v1/rooms")
    return Inside(url, made["roomId"], made["roomToken"])


async def member(lobby: Inside, name: str) -> Inside:
    """Register a name in a room. Return a client with its token."""
    return Inside(lobby.url, lobby.room_id, (await lobby.register(name))["token"], name)


def rooms_of(there: HubHarness) -> Rooms:
    """Return the rooms of a running hub."""
    assert there.hub.rooms is not None
    return there.hub.rooms


@pytest.fixture
async def common(folder: Path) -> AsyncIterator[Room]:
    async with room(folder / "h", store="sqlite:unsafe", ac7=True) as built:
        yield built


async def test_two_rooms_with_the_same_names_know_nothing_of_each_other(common: Room) -> None:
    lobbies = [await make(common.url), await make(common.url)]
    speakers = [await common.agent("alice"), *[await member(lobby, "alice") for lobby in lobbies]]
    readers = [await common.agent("bob"), *[await member(lobby, "bob") for lobby in lobbies]]
    for number, speaker in enumerate(speakers):
        await speaker.send("@bob", f"in {number}")
    assert [await reader.bodies() for reader in readers] == [["in 0"], ["in 1"], ["in 2"]]


async def test_an_unknown_room_is_404_to_who_registers_and_nobody_is_registered_anywhere(common: Room) -> None:
    agent = await common.agent("alice")
    for place in ("x", "default", "..", "../..", "%2e%2e", "a/b", "0" * 32, "x" * 5000):
        lost = Inside(common.url, place, ROOM)
        error = await lost.refused(404, "POST", "/v1/register", {"name": "newcomer"})
        assert error == f'unknown room "{place[:140]}" — create one with `bch room new`'
        assert await lost.refused(401, "GET", "/v1/agents")
        assert await Inside(common.url, place, agent.token).refused(401, "GET", "/v1/inbox/alice")
    assert [one["name"] for one in await agent.get("/v1/agents")] == ["alice"]
    assert not (common.there.home / "rooms").exists(), "no request named a path"


async def test_the_token_of_one_room_admits_nobody_to_another(common: Room) -> None:
    east, west = await make(common.url), await make(common.url)
    for lobby in (east, west):
        await member(lobby, "alice")
    for stranger in (Inside(common.url, east.room_id, token) for token in (ROOM, west.token)):
        assert "room token" in await stranger.refused(401, "POST", "/v1/register", {"name": "newcomer"})
    # Without the header, its own token leads to its own room.
    await Agent(common.url, west.token).register("newcomer")
    alice = await common.agent("alice")
    assert [one["name"] for one in await alice.get("/v1/agents")] == ["alice"]
    assert [one["name"] for one in await (await member(east, "bob")).get("/v1/agents")] == ["alice", "bob"]
    assert [one["name"] for one in await (await member(west, "bob")).get("/v1/agents")] == ["alice", "bob", "newcomer"]


async def test_an_empty_header_is_the_common_room(common: Room) -> None:
    assert (await Inside(common.url, " ", ROOM).register("alice"))["name"] == "alice"
    assert [one["name"] for one in await (await common.agent("bob")).get("/v1/agents")] == ["alice", "bob"]


async def test_the_token_of_a_room_leads_there_without_the_header(common: Room) -> None:
    lobby = await make(common.url)
    alice = await member(lobby, "alice")
    plain = Agent(common.url, alice.token, "alice")
    assert [one["name"] for one in await plain.get("/v1/agents")] == ["alice"]
    assert [one["name"] for one in (await plain.get("/roster"))["teammates"]] == ["alice"]
    assert (await plain.get("/api/search?q=x"))["messages"] == []
    async with await connect(url=common.url, token=alice.token) as client:
        assert [one.name for one in await client.members()] == ["alice"]
    registered = await Agent(common.url, lobby.token).register("bob")
    assert registered["token"].startswith(f"tie_room_{lobby.room_id}_")


async def test_the_token_of_a_room_that_is_gone_is_refused_everywhere(common: Room) -> None:
    token = f"tie_room_{'a' * 32}_{'b' * 43}"
    gone = Agent(common.url, token)
    assert "agent token required" in await gone.refused(401, "GET", "/v1/agents")
    assert "unknown room" in await gone.refused(404, "POST", "/v1/register", {"name": "alice"})
    assert await gone.refused(401, "GET", "/roster") == "unknown token"
    assert await gone.refused(401, "GET", "/api/session") == "unknown token"
    with pytest.raises(HubRefused) as caught:
        await connect(url=common.url, token=token)
    assert caught.value.code == "unauthorized"


async def test_a_login_of_the_console_leads_to_the_room_of_its_token(common: Room) -> None:
    alice = await member(await make(common.url), "alice")
    shown = {"authorization": f"Bearer {alice.token}"}
    entered = await Agent(common.url).ask("POST", "/api/session", {"token": alice.token}, **shown)
    assert entered.value["member"] == "alice"
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert (await Agent(common.url).ask("GET", "/api/session", cookie=cookie)).value["member"] == "alice"
    assert (await Agent(common.url).ask("GET", "/roster", cookie=cookie)).status == 200


async def test_a_browser_with_the_cookie_of_a_room_that_is_gone_gets_the_console_and_loses_the_cookie(
    common: Room,
) -> None:
    gone = f"tie_room_{'a' * 32}_{'b' * 43}"
    for cookie in (f"tieline_session=t1.{gone}", f"ac7_session={gone}"):
        with contextlib.closing(Intruder(common.url, cookie=cookie)) as browser:
            assert (await asyncio.to_thread(browser.ask, "GET", "/"))[0] == 200
        reply = await Agent(common.url).ask("GET", "/api/session", cookie=cookie)
        assert (reply.status, reply.error) == (401, "unknown token")
        assert "Max-Age=0" in reply.headers["set-cookie"]
    # A client that shows a token, or names a room, has no cookie to lose.
    reply = await Agent(common.url, gone).ask("GET", "/api/session", cookie=cookie)
    assert (reply.status, "set-cookie" in reply.headers) == (401, False)
    reply = await Inside(common.url, "x").ask("GET", "/api/session", cookie="tieline_session=t1.x")
    assert (reply.status, "set-cookie" in reply.headers) == (401, False)


async def test_a_client_of_any_room_may_ask_for_the_health_of_the_hub(common: Room) -> None:
    alice = await member(await make(common.url), "alice")
    for asker in (alice, Agent(common.url, alice.token), Inside(common.url, "x"), common.stranger):
        assert (await asker.get("/healthz"))["status"] == "ok"
    # The figures are of the common room.
    assert (await alice.ask("GET", "/metrics")).status == 404


async def test_a_room_is_there_again_after_a_restart(folder: Path) -> None:
    async with room(folder / "h", store="sqlite:unsafe", ac7=True) as common:
        lobby = await make(common.url)
        alice = await member(lobby, "alice")
        await alice.send("@alice", "kept")
    async with running_hub(folder / "h", store="sqlite:unsafe") as there:
        again = Inside(there.running.http, lobby.room_id, alice.token, "alice")
        assert await again.bodies() == ["kept"]
        await member(Inside(there.running.http, lobby.room_id, lobby.token), "bob")


async def test_the_token_of_a_room_is_kept_as_a_digest_only(common: Room) -> None:
    lobby = await make(common.url)
    alice = await member(lobby, "alice")
    assert lobby.token is not None
    assert alice.token is not None
    place = common.there.home / "rooms" / lobby.room_id
    assert json.loads((place / ROOM_FILE).read_bytes()) == {"token": sha256(lobby.token.encode()).hexdigest()}
    for path in common.there.home.rglob("*"):
        if path.is_file():
            kept = path.read_bytes()
            assert lobby.token.encode() not in kept, path
            assert alice.token.encode() not in kept, path
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / ROOM_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_hub_has_so_many_rooms_and_says_so(common: Room) -> None:
    for _ in range(ROOMS_MAX):
        await make(common.url)
    error = await common.stranger.refused(429, "POST", "/v1/rooms")
    assert str(ROOMS_MAX) in error
    assert len(list((common.there.home / "rooms").iterdir())) == ROOMS_MAX


async def test_who_asks_for_rooms_without_end_is_told_to_wait(common: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(_: Rooms) -> None:
        return None

    monkeypatch.setattr(Rooms, "create", full)
    for _ in range(100):
        await common.stranger.refused(429, "POST", "/v1/rooms")
    reply = await common.stranger.ask("POST", "/v1/rooms")
    assert reply.status == 429
    assert "too many rooms asked for" in reply.error
    assert 0 < int(reply.headers["retry-after"]) <= 3600


@contextlib.asynccontextmanager
async def policy(home: Path, written: str, **options: Any) -> AsyncIterator[Agent]:
    """Start a hub with the setting `written` of backchannel. Yield a client without a token."""
    home.mkdir(mode=0o700)
    (home / "tieline.toml").write_text(f'[backchannel]\nroom_token = "{ROOM}"\n{written}\n')
    async with running_hub(home, store="memory", **options) as there:
        yield Agent(there.running.http)


async def test_rooms_that_are_off_are_refused_in_json(folder: Path) -> None:
    async with policy(folder / "h", 'rooms = "off"') as stranger:
        assert "rooms are off" in await stranger.refused(403, "POST", "/v1/rooms")
        stranger.token = ROOM
        assert "rooms are off" in await stranger.refused(403, "POST", "/v1/rooms")


async def test_with_a_token_only_who_shows_it_makes_a_room(folder: Path) -> None:
    async with policy(folder / "h", 'rooms = "token"') as stranger:
        assert await stranger.refused(401, "POST", "/v1/rooms") == "room creation is restricted on this relay"
        stranger.token = "wrong"
        assert await stranger.refused(401, "POST", "/v1/rooms")
        stranger.token = ROOM
        assert set(await stranger.post("/v1/rooms")) == {"roomId", "roomToken"}


async def test_rooms_by_a_token_that_does_not_exist_are_a_mistake_in_the_configuration(folder: Path) -> None:
    (folder / "tieline.toml").write_text('[backchannel]\nrooms = "token"\n')
    with pytest.raises(ConfigError, match="needs a room_token"):
        load_config(folder)


async def test_on_an_address_that_others_reach_a_room_needs_the_token(folder: Path) -> None:
    async with policy(folder / "h", "", http="0.0.0.0:0", flags={"http": {"insecure": True}}) as stranger:
        assert await stranger.refused(401, "POST", "/v1/rooms")
        stranger.token = ROOM
        assert await stranger.post("/v1/rooms")


async def test_the_admin_token_of_the_environment_restricts_rooms(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKCHANNEL_ADMIN_TOKEN", "the administrator's")
    async with policy(folder / "h", "") as stranger:
        stranger.token = ROOM
        assert await stranger.refused(401, "POST", "/v1/rooms")
        stranger.token = "the administrator's"
        assert await stranger.post("/v1/rooms")


async def test_a_page_of_another_site_makes_no_room(common: Room) -> None:
    assert await common.stranger.refused(403, "POST", "/v1/rooms", origin="https://example.org")


def days_pass(path: Path, seconds: float) -> None:
    """Set the time of the last use of a room to `seconds` ago."""
    then = time.time() - seconds
    os.utime(path / ROOM_FILE, (then, then))


async def test_a_room_that_nobody_joined_goes_after_a_day_and_one_with_members_stays(folder: Path) -> None:
    async with room(folder / "h", store="sqlite:unsafe", ac7=True) as common:
        lobbies = [await make(common.url) for _ in range(3)]
        alice = await member(lobbies[0], "alice")
        await lobbies[1].refused(401, "GET", "/v1/agents")
    places = [folder / "h" / "rooms" / lobby.room_id for lobby in lobbies]
    for place in places[:2]:
        days_pass(place, EMPTY_SECONDS + 1)
    days_pass(places[2], EMPTY_SECONDS - 60)
    async with running_hub(folder / "h", store="sqlite:unsafe") as there:
        await rooms_of(there)._sweep()
        assert [place.exists() for place in places] == [True, False, True]
        assert sorted(rooms_of(there)._known) == sorted([lobbies[0].room_id, lobbies[2].room_id])
        gone = Inside(there.running.http, lobbies[1].room_id, lobbies[1].token)
        assert await gone.refused(404, "POST", "/v1/register", {"name": "alice"})
        assert await Inside(there.running.http, lobbies[0].room_id, alice.token, "alice").bodies() == []


async def test_a_room_without_requests_is_closed_and_opened_again_by_the_next(common: Room) -> None:
    rooms = rooms_of(common.there)
    alice = await member(await make(common.url), "alice")
    await alice.send("@alice", "kept")
    known = rooms._known[alice.room_id]
    async with alice.watch() as stream:
        assert (await stream.next())["body"] == "kept"
        known.used_at -= 3600
        await rooms._sweep()
        assert known.open is not None, "a stream is a request that goes on"
    await until(lambda: known.users == 0)
    known.used_at -= 3600
    await rooms._sweep()
    assert known.open is None
    assert await alice.bodies() == ["kept"]
    assert known.open is not None


@pytest.mark.parametrize("over", [False, True])
async def test_a_request_that_comes_while_an_empty_room_is_looked_at_keeps_it(
    common: Room, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    rooms = rooms_of(common.there)
    lobby = await make(common.url)
    known = rooms._known[lobby.room_id]
    known.used_at -= EMPTY_SECONDS + 1
    is_empty = Rooms._is_empty

    async def look(self: Rooms, known: Any) -> bool:
        empty = await is_empty(self, known)
        records.append(await lobby.register("alice"))
        await until(lambda: known.users == 0)
        # 1: the request is not over yet.
        known.users = int(not over)
        return empty

    records: list[Any] = []
    monkeypatch.setattr(Rooms, "_is_empty", look)
    await rooms._sweep()
    known.users = 0
    assert known.open is not None
    alice = Inside(common.url, lobby.room_id, records[0]["token"], "alice")
    assert await alice.bodies() == []


async def test_two_sweeps_at_once_remove_an_empty_room_once(common: Room) -> None:
    rooms = rooms_of(common.there)
    lobby = await make(common.url)
    known = rooms._known[lobby.room_id]
    known.used_at -= EMPTY_SECONDS + 1
    await asyncio.gather(rooms._sweep(), rooms._sweep())
    assert lobby.room_id not in rooms._known
    assert not known.path.exists()


async def test_requests_that_come_together_open_a_room_once(common: Room) -> None:
    lobby = await make(common.url)
    records = await asyncio.gather(*(lobby.register(f"agent-{number}") for number in range(3)))
    tokens = [Inside(common.url, lobby.room_id, record["token"]) for record in records]
    assert len(await tokens[0].get("/v1/agents")) == 3


async def test_what_a_killed_hub_left_of_a_room_is_removed_at_the_next_start(folder: Path) -> None:
    async with room(folder / "h", store="sqlite:unsafe", ac7=True) as common:
        kept = await make(common.url)
    rooms = folder / "h" / "rooms"
    shutil.copytree(rooms / kept.room_id, rooms / f".{'a' * 32}")
    (rooms / f".{'b' * 32}").mkdir()
    (rooms / ("c" * 32)).mkdir()
    with capture_logs() as logs:
        async with running_hub(folder / "h", store="sqlite:unsafe") as there:
            assert list(rooms_of(there)._known) == [kept.room_id]
    assert sorted(path.name for path in rooms.iterdir()) == sorted([kept.room_id, "c" * 32])
    assert [one["folder"] for one in logs if "left alone" in one["event"]] == [str(rooms / ("c" * 32))]


@pytest.mark.parametrize("failing", ["write_private", "sync_folder"])
async def test_a_room_that_the_disk_does_not_take_leaves_no_folder_behind(
    common: Room, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"tieline.server.rooms.{failing}", full)
    assert "could not be stored" in await common.stranger.refused(503, "POST", "/v1/rooms")
    monkeypatch.undo()
    assert list((common.there.home / "rooms").iterdir()) == []
    await member(await make(common.url), "alice")


async def test_a_room_whose_folder_was_deleted_does_not_come_back(common: Room) -> None:
    lobby = await make(common.url)
    shutil.rmtree(common.there.home / "rooms" / lobby.room_id)
    assert await lobby.refused(404, "POST", "/v1/register", {"name": "alice"})
    assert list((common.there.home / "rooms").iterdir()) == []


async def test_a_room_that_cannot_be_opened_is_503_and_the_others_go_on(common: Room) -> None:
    broken, other = await make(common.url), await make(common.url)
    path = common.there.home / "rooms" / broken.room_id
    (path / "tieline.db").write_bytes(b"no database")
    with capture_logs() as logs:
        for _ in range(3):
            assert "cannot be opened" in await broken.refused(503, "POST", "/v1/register", {"name": "alice"})
    assert [one["room"] for one in logs if one["event"] == "a room cannot be opened"] == [str(path)]
    for newcomer in (await member(other, "alice"), await common.agent("alice")):
        assert await newcomer.bodies() == []


async def test_a_room_that_lost_its_store_is_opened_again_and_the_hub_goes_on(common: Room) -> None:
    rooms = rooms_of(common.there)
    alice = await member(await make(common.url), "alice")
    known = rooms._known[alice.room_id]
    assert known.open is not None
    known.open.room.local_hub._fail(StoreError("lost"))
    await alice.send("@alice", "after it")
    assert await alice.bodies() == ["after it"]
    local_hub = common.there.hub.local_hub
    assert local_hub is not None
    assert not local_hub.failure.done()


@pytest.mark.skipif(on_postgres(), reason="it is about the files of a home that has the whole store")
async def test_a_token_that_is_made_while_no_hub_runs_leads_to_its_room_too(folder: Path) -> None:
    async with room(folder / "h", ac7=True) as common:
        lobby = await make(common.url)
        await member(lobby, "alice")
    async with OfflineHub(folder / "h" / "rooms" / lobby.room_id) as offline:
        token = (await offline.rotate_token("alice")).token
    async with running_hub(folder / "h") as there:
        assert [one["name"] for one in await Agent(there.running.http, token).get("/v1/agents")] == ["alice"]


async def test_rooms_of_a_hub_that_keeps_nothing_are_gone_with_it(folder: Path) -> None:
    async with running_hub(folder / "h", store="memory") as there:
        lobby = await make(there.running.http)
        assert await (await member(lobby, "alice")).bodies() == []
    assert not (folder / "h" / "rooms").exists()
    assert not (folder / "h" / "forgotten").exists()
