"""Tests that nothing passes from one room of a hub to another, with any request of any protocol."""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any, get_args

import msgspec
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed

from tests.interop.drivers import BY_PROTOCOL, Driver, Refused
from tests.interop.rooms import COMMON, House, Intruder, Place, house
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import WAIT_SECONDS, silent
from tieline.client import Client, HubRefused, connect
from tieline.contract.channel import Admit
from tieline.contract.objective import Cancel
from tieline.contract.reach import Reach
from tieline.wire.native import derived
from tieline.wire.native import frames as f
from tieline.wire.route import Route

PAIRS = list(itertools.permutations((COMMON, "east", "west"), 2))
STREAMED = ("/v1/events/{agent*}", "/subscribe", "/members/{name}/activity/stream")
"""Routes whose answers have no end. Another test checks them."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("r")
    folder.chmod(0o700)
    async with house(folder / "h") as built:
        yield built


@pytest.fixture(params=PAIRS, ids=lambda pair: f"from-{pair[0]}-to-{pair[1]}")
def pair(there: House, request: pytest.FixtureRequest) -> tuple[Place, Place]:
    """Fixture: return the room of the intruder, and the room whose data it asks for."""
    return there.places[request.param[0]], there.places[request.param[1]]


def news(before: list[Any], now: list[Any]) -> list[Any]:
    """Return the entries that only one of two states of a room has."""
    return [each for each in now if each not in before] + [each for each in before if each not in now]


async def test_a_name_of_another_room_is_unknown_and_a_shared_name_is_another_member(pair: tuple[Place, Place]) -> None:
    here, other = pair
    before = await other.state()
    speaker = here.agent("alice")
    assert "unknown agent" in await speaker.refused(
        400, "POST", "/v1/send", {"to": f"@{other.found.member}", "body": "x"}
    )
    assert "no other subscribers" in await speaker.refused(
        400, "POST", "/v1/send", {"to": f"#{other.found.channel}", "body": "x"}
    )
    assert await here.agent("bob").take(other.found.message) is None
    for to in ("@bob", "#general", "*"):
        await speaker.send(to, f"from {here.name}")
    assert news(before, await other.state()) == []
    assert f"from {here.name}" not in await other.agent("bob").bodies()


async def test_streams_carry_the_messages_of_their_own_room_alone(pair: tuple[Place, Place]) -> None:
    here, other = pair
    listener: Client = await other.join("bob", receive=True)
    async with other.agent("bob").watch() as stream, listener:
        await here.agent("alice").send("@bob", f"only for {here.name}")
        await here.agent("alice").send("#general", f"all of {here.name}")
        await other.agent("alice").send("@bob", "the sentinel")
        heard: list[str] = []
        while "the sentinel" not in heard:
            heard.append((await stream.next())["body"])
        assert not [body for body in heard if here.name in body and "said-in" not in body]
        async for delivery in listener:
            assert here.name not in delivery.message.body
            if delivery.message.body == "the sentinel":
                break
        await silent(listener)
    for message in await other.agent("bob").inbox():
        await other.agent("bob").take(message["id"])


async def test_a_token_opens_nothing_where_another_room_is_named(pair: tuple[Place, Place]) -> None:
    here, other = pair
    token = here.tokens["alice"]
    if other.id is not None:
        intruder = Agent(here.url, token, "alice")
        header = {"x-backchannel-room": other.id}
        assert "agent token required" in await intruder.refused(401, "GET", "/v1/events/alice", **header)
        assert (await intruder.ask("GET", "/subscribe?name=alice", **header)).status == 401
        assert "room token" in await intruder.refused(401, "POST", "/v1/register", {"name": "new"}, **header)
        url = here.url.replace("http", "ws", 1) + "/api/stream"
        async with dial(url, additional_headers=header, compression=None) as socket:
            await socket.send(json.dumps([{"t": "hello", "token": token}]))
            assert "unauthorized" in str(await socket.recv())
    # The console's login takes a token in the body, and its cookie and header say where it goes.
    entered = await here.agent("alice").ask("POST", "/api/session", {"token": other.tokens["alice"]})
    assert entered.status == 401


@pytest.mark.parametrize("protocol", BY_PROTOCOL)
async def test_a_protocol_with_sockets_is_in_the_common_room_and_reaches_no_other(there: House, protocol: str) -> None:
    common, east = there.places[COMMON], there.places["east"]
    name = f"driver-{protocol}"
    driver = await there.hub.driver(protocol, name)
    before = await east.state()
    # agent-channels has no socket to say it to; see below.
    if protocol != "agent-channels":
        with contextlib.suppress(Refused):
            await driver.send(f"@{east.only}", "intrusion")
    await driver.send("*", "to everybody")
    # Not every wire says when it is accepted.
    async with asyncio.timeout(WAIT_SECONDS):
        while "to everybody" not in await common.agent("bob").bodies():
            pass
    assert news(before, await east.state()) == []
    assert "unknown agent" in await east.agent("alice").refused(
        400, "POST", "/v1/send", {"to": f"@{name}", "body": "x"}
    )
    await east.agent("alice").send("*", "to everybody in the east")
    await common.agent("alice").send(f"@{name}", "the sentinel")
    heard: list[str] = []
    while "the sentinel" not in heard:
        # A wire that refuses late does so here.
        with contextlib.suppress(Refused):
            heard.append((await driver.hear()).body)
    assert not [body for body in heard if "east" in body]
    await driver.leave()


@pytest.mark.parametrize("protocol", ["agent-relay", "peerbus"])
async def test_a_token_of_a_room_opens_no_socket_of_the_common_room(there: House, protocol: str) -> None:
    east = there.places["east"]
    there.hub.there.tokens[east.only] = east.tokens[east.only]
    driver: Driver = BY_PROTOCOL[protocol](there.hub.there, east.only)
    with pytest.raises((Refused, ConnectionClosed, asyncio.IncompleteReadError)):
        await driver.connect()
    await driver.hang_up()
    assert east.only not in [member["name"] for member in await there.places[COMMON].agent("alice").get("/v1/agents")]


async def test_the_hubs_own_socket_and_its_folders_know_nobody_of_a_room(there: House) -> None:
    east = there.places["east"]
    with pytest.raises(HubRefused):
        await connect(home=there.hub.there.home, token=east.tokens["alice"])
    home = there.hub.there.home
    assert not [path for path in home.glob("channels/**/*") if east.only in path.name]
    assert not [path for path in home.glob("spool-home/**/*") if east.only in path.name]


# These make members and channels of the same names here, so they come last.


def path_of(route: Route, other: Place) -> str:
    """Return the path of a route with the identifiers of objects in another room."""
    found = other.found
    filled = {"name": found.member, "slug": found.channel, "path": found.file.lstrip("/"), "agent": found.member}
    filled |= {"member": found.member, "log": "main", "preset": "x"}
    message = "messages" in route.path
    filled["id"] = found.message if message else found.token_id if "token" in route.path else found.objective
    path = re.sub(r"\{(\w+)\*?\}", lambda name: filled.get(name[1], found.objective), route.path)
    query = f"path={found.file}&with={found.member}&channel={found.channel}&q={other.marker}&name={found.member}"
    return path if route.method != "GET" and "/fs/" not in path else f"{path}?{query}"


def body_of(other: Place) -> dict[str, Any]:
    """Return a request body with every field that a route may have, filled with identifiers of another room."""
    found = other.found
    return {
        "to": found.member,
        "target": f"@{found.member}",
        "body": "intrusion",
        "name": found.member,
        "member": found.member,
        "assignee": found.member,
        "watchers": [found.member],
        "add": [found.member],
        "channel": found.channel,
        "slug": found.channel,
        "id": found.message,
        "thread": found.message,
        "reply_to": found.message,
        "data": {"thread": f"chan:{found.channel_id}"},
        "files": [found.file],
        "attachments": [{"path": found.file}],
        "from": found.file,
        "path": found.file,
        "title": "intrusion",
        "outcome": "intrusion",
        "result": "intrusion",
        "reason": "intrusion",
        "events": [{"kind": "objective_open", "ts": 1, "objectiveId": found.objective}],
    }


async def test_no_route_shows_or_changes_anything_of_another_room(there: House, pair: tuple[Place, Place]) -> None:
    here, other = pair
    before = await other.state()
    shown = {"authorization": f"Bearer {here.tokens['alice']}"}
    named = {"x-backchannel-room": other.id} if other.id else {}

    intruders = [Intruder(here.url, **shown)]
    if other.id:
        intruders.append(Intruder(here.url, **shown, **named))

    def try_all() -> int:
        tried = 0
        for route in there.routes:
            if route.path in STREAMED or route.path == "/v1/rooms":
                continue
            path, body = path_of(route, other), None if route.method == "GET" else body_of(other)
            for intruder in intruders:
                status, text = intruder.ask(route.method, path, body)
                assert other.marker not in text, (route.method, path, status, text)
                if intruder is not intruders[0] and not route.open:
                    # 400 where the shape of a request is looked at before its token.
                    assert status in (400, 401), (route.method, path, status, text)
                tried += 1
        status, _ = intruders[0].ask("GET", "/roster")
        assert status == 200, "the token was good to the end, so that every route had to decide"
        return tried

    try:
        assert await asyncio.to_thread(try_all) > 80
    finally:
        for intruder in intruders:
            intruder.close()
    assert news(before, await other.state()) == []


VALUES = {"change_channel": Admit("somebody"), "change_objective": Cancel("intrusion")}


def frame_of(kind: type[f.Frame], number: int, other: Place) -> f.Frame:
    """Return a frame of the hub's own protocol, filled with identifiers of another room."""
    found = other.found
    values: dict[str, Any] = {
        "n": number,
        "target": f"@{found.member}",
        "body": "intrusion",
        "name": found.member,
        "member": found.member,
        "assignee": found.member,
        "channel": found.channel,
        "id": found.objective if "Objective" in kind.__name__ else found.message,
        "token_id": found.token_id,
        "token": "a shared token of nobody",
        "thread": found.message,
        "title": "intrusion",
        "outcome": "intrusion",
        "query": other.marker,
        "reason": "intrusion",
        "keys": (),
        "events": [],
        "position": 0,
        "change": VALUES.get(str(kind.__struct_config__.tag)),
        "reach": Reach(),
    }
    required = [each for each in msgspec.structs.fields(kind) if each.required or each.name in ("member", "channel")]
    return kind(**{each.name: values[each.name] for each in required})


async def test_no_request_of_the_own_protocol_reaches_another_room(pair: tuple[Place, Place]) -> None:
    here, other = pair
    before = await other.state()
    kinds: tuple[type[f.Frame], ...] = get_args(derived.AnyRequest)
    async with await here.join("alice") as alice:
        for kind in kinds:
            n = next(alice._numbers)
            try:
                answer = await alice._ask(n, frame_of(kind, n, other), f.Frame)
            except HubRefused:
                continue
            assert other.marker.encode() not in msgspec.json.encode(answer), (kind, answer)
            # A member or channel of that name may be made here by these, and is another one.
            if kind is derived.AddMember:
                await alice.remove_member(other.found.member)
    assert len(kinds) > 30
    assert news(before, await other.state()) == []
