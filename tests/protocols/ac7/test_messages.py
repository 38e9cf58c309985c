"""Tests of history, refused pushes and refused subscriptions.

`conformance` tests the sentences of the protocol itself.
"""

import asyncio

import pytest

from tests.protocols.ac7.teams import Team
from tieline.protocols.ac7.server import DOCUMENT_PATH
from tieline.wire.route import STATUS


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
    for before in ("abc", "-1", "1.5", ""):
        assert "before" in await alice.refused(400, "GET", f"/history?before={before}")


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


async def test_what_came_while_nobody_listened_waits_until_the_member_reads_its_history(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob", "objectives.create")
    operator = await crew.there.operator()

    async def waiting(name: str) -> int:
        return next(member.backlog for member in await operator.members() if member.name == name)

    await bob.push("first", to="ann")
    await bob.push("second", to="ann")
    assert await waiting("ann") == 2
    await ann.get("/history?limit=1")
    assert await waiting("ann") == 1
    await ann.history()
    assert await waiting("ann") == 0
    await bob.do("POST", "/objectives", title="t", outcome="o", assignee="ann")
    assert (await waiting("ann"), await waiting("bob")) == (1, 0), "who asked for it has its answer"


async def test_the_document_names_every_route_with_its_references_inside(crew: Team) -> None:
    described = await crew.stranger.get(DOCUMENT_PATH)
    assert described["openapi"] == "3.1.0"
    assert {"/push", "/subscribe", "/history", "/roster", "/channels/{slug}", "/objectives/{id}"} <= set(
        described["paths"]
    )
    assert set(STATUS.values()) <= {int(name[1:]) for name in described["components"]["responses"]}


@pytest.mark.slow
async def test_history_of_large_messages_said_in_the_same_millisecond_pages_without_loss(crew: Team) -> None:
    alice = await crew.seat("alice")
    await crew.seat("bob")
    body = "x" * 60_000

    async def lane(number: int) -> None:
        for index in range(number, 400, 20):
            await alice.push(f"{index} {body}", to="bob")

    await asyncio.gather(*(lane(number) for number in range(20)))
    found: list[str] = []
    query = "?limit=1000&with=bob"
    pages = 0
    while page := (await alice.get(f"/history{query}"))["messages"]:
        pages += 1
        found += [message["body"].split()[0] for message in page]
        query = f"?limit=1000&with=bob&before={page[-1]['ts']}"
    assert sorted(map(int, found)) == list(range(400))
    assert pages > 1, "an answer has its limit, too"
