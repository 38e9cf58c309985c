"""Messages and threads: the sentences of the protocol's own text, seen from outside."""

from typing import Any

import pytest

from tests.protocols.ac7.teams import Team
from tieline.protocols.ac7.route import STATUS
from tieline.protocols.ac7.server import DOCUMENT_PATH

KINDS = pytest.mark.parametrize("kind", ["sse", "websocket"])


@KINDS
async def test_every_live_subscriber_of_the_recipient_gets_a_direct_message_and_so_does_the_sender(
    crew: Team, kind: str
) -> None:
    alice, bob = await crew.seat("alice"), await crew.seat("bob")
    streams = [await crew.open(seat, kind) for seat in (alice, bob)]
    result = await alice.push("hello", to="bob", title="a title", level="warning", data={"k": [1]})
    assert result["delivery"] == {"live": 2, "targets": 1}
    message = result["message"]
    assert (message["from"], message["to"], message["title"], message["level"]) == (
        "alice",
        "bob",
        "a title",
        "warning",
    )
    assert (message["data"], message["attachments"]) == ({"k": [1]}, [])
    assert [await stream.next() for stream in streams] == [message, message]
    assert (await bob.history())[-1] == message


async def test_pushes_cannot_override_from_and_reserved_keys_are_stripped(crew: Team) -> None:
    alice, bob = await crew.seat("alice"), await crew.seat("bob")
    forged = {"from": "bob", "ts": 1, "msg_id": "x", "level": "critical", "other": True, "tieline": {}}
    result = await alice.push("hello", **{"from": "bob", "to": "bob", "data": forged})
    assert result["message"]["from"] == "alice"
    assert result["message"]["data"] == {"other": True}
    assert (await bob.history())[-1]["from"] == "alice"


@KINDS
async def test_a_broadcast_reaches_every_team_member_and_each_stream_once_in_order(crew: Team, kind: str) -> None:
    seats = [await crew.seat(name) for name in ("alice", "bob", "carol")]
    streams = [await crew.open(seat, kind) for seat in (*seats, seats[0])]
    # The second stream of alice tells the first that it is online.
    assert (await streams[0].next())["title"] == "ac7 session online"
    for number in range(3):
        result = await seats[number].push(f"to all {number}")
        assert result["delivery"] == {"live": 4, "targets": 3}
        assert result["message"]["to"] is None
        assert result["message"]["data"] == {}
    for stream in streams:
        assert [(await stream.next())["body"] for _ in range(3)] == [f"to all {number}" for number in range(3)]


async def test_the_general_channel_is_implicit_and_its_history_is_everybodys(crew: Team) -> None:
    alice, bob = await crew.seat("alice"), await crew.seat("bob")
    await alice.push("untagged")
    tagged = await alice.push("tagged", data={"thread": "chan:general"})
    assert tagged["message"]["data"] == {"thread": "chan:general"}
    assert await bob.said("?channel=general") == ["untagged", "tagged"]
    (general,) = (await bob.get("/channels"))["channels"]
    assert (general["id"], general["slug"], general["createdBy"]) == ("general", "general", "__system__")
    assert (await bob.get("/channels/general"))["members"] == []


async def test_a_channel_message_goes_to_its_members_alone(crew: Team) -> None:
    alice, bob, carol = [await crew.seat(name) for name in ("alice", "bob", "carol")]
    channel = await alice.do("POST", "/channels", 201, slug="dev")
    thread = {"thread": f"chan:{channel['id']}"}
    assert await alice.refused(409, "POST", "/channels", {"slug": "dev"})
    assert await alice.refused(403, "POST", "/channels", {"slug": "general"})
    assert await bob.refused(403, "POST", "/push", {"body": "x", "data": thread})
    await bob.do("POST", "/channels/dev/members")
    stream, outside = await crew.open(bob), await crew.open(carol)
    result = await alice.push("for dev", data=thread)
    assert result["delivery"] == {"live": 1, "targets": 2}
    assert (await stream.next()) == result["message"]
    assert result["message"]["data"] == thread
    assert await carol.said() == []
    assert await carol.refused(403, "GET", "/history?channel=dev")
    assert await bob.said("?channel=dev") == ["for dev"]
    await alice.push("now", to="carol")
    assert (await outside.next())["body"] == "now"
    assert await bob.refused(403, "PATCH", "/channels/dev", {"slug": "devs"})
    assert (await alice.do("PATCH", "/channels/dev", slug="devs"))["slug"] == "devs"
    assert (await alice.do("DELETE", "/channels/devs"))["archivedAt"] > 0
    assert await bob.refused(410, "POST", "/push", {"body": "x", "data": thread})


async def test_a_thread_that_is_none_is_refused(crew: Team) -> None:
    alice = await crew.seat("alice")
    for thread, status in (("nonsense", 400), (5, 400), ("chan:none", 404), ("obj:none", 404)):
        assert await alice.refused(status, "POST", "/push", {"body": "x", "data": {"thread": thread}})
    assert await alice.refused(404, "POST", "/push", {"body": "x", "to": "nobody"}) == "no such agent: nobody"
    wrong: tuple[Any, ...] = ({}, {"body": ""}, {"body": "x", "level": "loud"}, {"body": "x", "title": "t" * 201}, [])
    for payload in wrong:
        assert (await alice.refused(400, "POST", "/push", payload)).startswith("invalid push payload")


async def test_history_pages_by_time_without_loss(crew: Team) -> None:
    alice, _ = await crew.seat("alice"), await crew.seat("bob")
    for number in range(25):
        await alice.push(f"m{number}", to="bob")
    found: list[str] = []
    query = "?limit=4&with=bob"
    while page := (await alice.get(f"/history{query}"))["messages"]:
        found += [message["body"] for message in page]
        query = f"?limit=4&with=bob&before={page[-1]['ts']}"
    assert found == [f"m{number}" for number in reversed(range(25))]
    assert await alice.refused(400, "GET", "/history?with=bob&channel=general")


async def test_only_a_member_itself_subscribes_and_the_answers_say_what_is_wrong(crew: Team) -> None:
    alice = await crew.seat("alice")
    await crew.seat("bob")
    assert await crew.stranger.refused(401, "GET", "/subscribe?name=alice") == "missing credentials"
    alice_token, alice.token = alice.token, "wrong"
    assert await alice.refused(401, "GET", "/roster") == "unknown token"
    alice.token = alice_token
    assert await alice.refused(400, "GET", "/subscribe")
    assert await alice.refused(403, "GET", "/subscribe?name=bob")
    reply = await alice.ask("GET", "/roster", authorization=f"bearer {alice.token}")
    assert (reply.status, reply.value["error"]) == (401, "missing bearer token")
    reply = await alice.ask("GET", "/roster", **{"x-ac7-protocol": "2"})
    assert (reply.status, reply.value) == (400, {"error": "unsupported protocol version", "got": 2, "expected": 1})
    reply = await alice.ask("GET", "/objectives/a/b/c")
    assert (reply.status, reply.text) == (404, "404 Not Found")


async def test_the_document_names_every_route_with_its_references_inside(crew: Team) -> None:
    described = await crew.stranger.get(DOCUMENT_PATH)
    assert described["openapi"] == "3.1.0"
    assert {"/push", "/subscribe", "/history", "/roster", "/channels/{slug}", "/objectives/{id}"} <= set(
        described["paths"]
    )
    assert set(STATUS.values()) <= {int(name[1:]) for name in described["components"]["responses"]}
