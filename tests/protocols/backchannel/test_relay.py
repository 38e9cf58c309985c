"""Tests of the relay API: its routes, agents and channels, and the sessions of its requests.

There is a test for each sentence of its description, and for each fact that existing clients rely on.
"""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.protocols.backchannel.relays import JSON, NO_TOKEN, Room
from tieline.contract.refusal import Code
from tieline.core.store import StoreError
from tieline.protocols.backchannel.relay import _STATUS, Relay

# Health, routes and forms


async def test_health_needs_no_token_and_says_what_this_is(lobby: Room) -> None:
    reply = await lobby.stranger.ask("GET", "/v1/health")
    assert (reply.status, reply.value) == (200, {"ok": True, "service": "backchannel-relay"})
    assert reply.headers["content-type"] == JSON


async def test_without_an_agent_token_every_other_route_is_401_even_one_that_is_not_there(lobby: Room) -> None:
    for path in ("/v1/agents", "/v1/channels", "/v1/inbox/alice", "/v1/events/alice", "/v1/nothing"):
        assert await lobby.stranger.refused(401, "GET", path) == NO_TOKEN


async def test_the_token_is_checked_before_the_body_is_looked_at(lobby: Room) -> None:
    for path in ("/v1/send", "/v1/take", "/v1/subscribe", "/v1/unsubscribe", "/v1/nothing"):
        assert await lobby.stranger.refused(401, "POST", path, b"not json") == NO_TOKEN


async def test_with_a_token_a_route_that_is_not_there_is_404(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for path in ("/v1/nothing", "/v1/", "/v1/sendx", "/v1/agents/alice"):
        assert await alice.refused(404, "GET", path) == "not found"
    for method, path in (("GET", "/v1/send"), ("GET", "/v1/register"), ("POST", "/v1/agents"), ("PUT", "/v1/health")):
        assert await alice.refused(404, method, path) == "not found", "the wrong method on a known path"


async def test_what_comes_after_the_name_of_a_route_is_a_name_whatever_it_holds(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for name in ("", "bob", "alice/", "a/b"):
        for route in ("inbox", "events"):
            assert await alice.refused(403, "GET", f"/v1/{route}/{name}") == f'token is for "alice", not "{name}"'


async def test_the_document_names_the_routes_of_the_table(lobby: Room) -> None:
    relay = lobby.there.hub.servers["backchannel"].http
    assert isinstance(relay, Relay)
    paths = (await lobby.stranger.get("/v1/openapi.json"))["paths"]
    named = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    assert {(one.method, one.path.replace("*}", "}")) for one in relay.table} == named


async def test_a_client_whose_address_ends_in_a_slash_is_served_too(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    assert (await alice.post("//v1/send", to="@alice", body="to myself"))["to"] == "@alice"
    assert len(await alice.get("//v1/inbox/alice")) == 1
    assert (await lobby.stranger.get("//v1/health"))["ok"] is True


async def test_the_word_before_the_token_may_have_any_case_or_be_missing(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for form in ("Bearer {}", "bearer {}", "BEARER   {}", "{}", "  Bearer {}  "):
        reply = await lobby.stranger.ask("GET", "/v1/inbox/alice", authorization=form.format(alice.token))
        assert (reply.status, reply.value) == (200, []), form


async def test_a_token_that_opens_nothing_is_401(lobby: Room) -> None:
    for shown in ("", "Bearer", "Bearer ", "Basic eDp5", "Bearer wrong", "Bearer \xe9", "Bearer " + "x" * 4000):
        assert await lobby.stranger.refused(401, "GET", "/v1/agents", authorization=shown) == NO_TOKEN


async def test_a_body_that_is_not_what_the_route_takes_is_400_in_json(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    bad = [b"", b"not json", b"[]", b'"x"', b"null", b"{}", b'{"to":1,"body":"x"}', b'{"to":"@bob"}', b"\xff\xfe"]
    for body in (*bad, b"{" * 50_000, b'{"to":"@bob","body":"x","y":' + b"[" * 50_000):
        assert await alice.refused(400, "POST", "/v1/send", body)


async def test_every_field_has_its_type(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    bad: list[tuple[str, Any]] = [
        ("/v1/register", {"name": 1}),
        ("/v1/register", {}),
        ("/v1/subscribe", {"channel": None}),
        ("/v1/unsubscribe", {"name": "dev"}),
        ("/v1/take", {"id": 7}),
        ("/v1/take", {"id": "x", "keep": "yes"}),
        ("/v1/send", {"to": "@alice", "body": "x", "priority": "whenever"}),
        ("/v1/send", {"to": "@alice", "body": "x", "refs": "one"}),
        ("/v1/send", {"to": "@alice", "body": "x", "scope": 3}),
        ("/v1/send", {"to": "@alice", "body": ""}),
    ]
    for path, body in bad:
        assert await alice.refused(400, "POST", path, body)


async def test_a_body_that_is_too_large_is_413_and_its_sender_hears_so(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for path, size in (("/v1/register", 65_537), ("/v1/take", 70_000), ("/v1/send", 32 * 2**20 + 1)):
        assert "larger than" in await alice.refused(413, "POST", path, b'"' + b"x" * size)
    many = b'{"to":"@alice","body":"x","refs":[' + b'"",' * 2**18 + b'""]}'
    assert "values" in await alice.refused(413, "POST", "/v1/send", many)
    large = "x" * 2**20
    assert (await alice.send("@alice", large))["body"] == large


async def test_a_page_of_another_site_cannot_use_the_hub_through_its_visitor(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert "another site" in await alice.refused(403, "GET", "/v1/inbox/alice", origin=origin)
        assert "another site" in await lobby.lobby.refused(403, "POST", "/v1/register", {"name": "eve"}, origin=origin)
    assert (await alice.ask("GET", "/v1/inbox/alice", origin=lobby.url)).status == 200


async def test_bad_input_of_any_kind_leaves_no_line_in_the_log(lobby: Room, caplog: pytest.LogCaptureFixture) -> None:
    alice = await lobby.agent("alice")
    for body in (b"{", b"[]", b'{"to":"@nobody","body":"x"}', b'{"to":"#none","body":"x"}'):
        await alice.refused(400, "POST", "/v1/send", body)
    await lobby.stranger.refused(401, "POST", "/v1/register", {"name": "eve"})
    assert caplog.records == []


# Agents and channels


async def test_agents_are_listed_by_name_with_their_channels_and_without_any_hash(lobby: Room) -> None:
    bob, alice = await lobby.agents("bob", "alice")
    await bob.post("/v1/subscribe", channel="#dev")
    await bob.post("/v1/subscribe", channel="ops")
    records = await alice.get("/v1/agents")
    assert [record["name"] for record in records] == ["alice", "bob"]
    assert [record["subscriptions"] for record in records] == [[], ["#dev", "#ops"]]
    for record in records:
        assert list(record) == ["name", "subscriptions", "createdAt", "lastSeen"]
        assert record["createdAt"] <= record["lastSeen"]


async def test_looking_into_the_inbox_is_a_sign_of_life(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    before = {record["name"]: record["lastSeen"] for record in await alice.get("/v1/agents")}
    await bob.inbox()
    after = {record["name"]: record["lastSeen"] for record in await alice.get("/v1/agents")}
    assert after["bob"] > before["bob"]


@pytest.mark.slow
async def test_channels_are_names_with_their_sign_and_everybodys_channel_is_always_there(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    assert await alice.get("/v1/channels") == ["#general"]
    assert await alice.post("/v1/subscribe", channel="#zeta") == {"ok": True}
    assert await bob.post("/v1/subscribe", channel="alpha", agent="ignored") == {"ok": True}
    assert await bob.post("/v1/subscribe", channel="alpha") == {"ok": True}
    assert await alice.get("/v1/channels") == ["#alpha", "#general", "#zeta"]
    assert await bob.post("/v1/unsubscribe", channel="#alpha") == {"ok": True}
    assert await alice.get("/v1/channels") == ["#general", "#zeta"], "a channel exists iff someone subscribes to it"


async def test_leaving_a_channel_that_one_is_not_in_is_no_error(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    assert await alice.post("/v1/unsubscribe", channel="#never") == {"ok": True}


async def test_nobody_can_leave_the_channel_that_holds_everybody(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    assert await alice.post("/v1/subscribe", channel="#general") == {"ok": True}
    assert "general" in await alice.refused(403, "POST", "/v1/unsubscribe", {"channel": "#general"})


async def test_a_channel_has_the_form_of_a_name(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for channel in ("", "#", "##dev", "a b", "x" * 129, "inbox-x"):
        assert "channel name" in await alice.refused(400, "POST", "/v1/subscribe", {"channel": channel})


# Sessions of requests


async def test_requests_of_one_agent_share_one_session(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    await asyncio.gather(*(alice.inbox() for _ in range(10)))
    (member,) = await (await lobby.there.operator()).members()
    assert member.sessions == ("backchannel",)


async def test_a_session_that_ended_between_two_steps_of_a_request_is_opened_again(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    await alice.inbox()
    assert lobby.there.hub.local_hub is not None
    broker = lobby.there.hub.local_hub._broker
    for session in list(broker.directory.sessions.values()):
        # Behind the back of whoever keeps it.
        broker.directory.end(session)
    assert (await alice.send("@alice"))["from"] == "alice"
    assert len(await alice.inbox()) == 1


async def test_a_failed_store_is_503_and_the_next_request_is_served(
    lobby: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await lobby.agent("alice")
    await alice.inbox()
    assert lobby.there.hub.local_hub is not None

    def fail() -> None:
        monkeypatch.undo()
        raise StoreError("no space left on device")

    monkeypatch.setattr(lobby.there.hub.local_hub._broker.store, "commit", fail)
    with capture_logs():
        text = await alice.refused(503, "POST", "/v1/send", {"to": "@alice", "body": "lost"})
    assert "nothing was accepted" in text
    assert await alice.inbox() == []
    assert (await alice.send("@alice", "kept"))["body"] == "kept"


def test_every_refusal_of_the_hub_has_a_status_that_clients_take_for_an_error() -> None:
    assert all(400 <= _STATUS.get(code, 400) < 600 for code in Code)
