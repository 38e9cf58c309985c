"""Tests of the hub's `/mcp`: the official client with both versions of MCP, and requests that no good client makes."""

import asyncio
from typing import Any

import pytest

from tests.agents.mcp_agent import ERAS, LEGACY, WAIT_SECONDS, http_agent
from tests.protocols.mcp.conftest import Join
from tests.protocols.mcp.test_forwarder import state, steps
from tests.protocols.mcp.web import META, STATELESS, VERSION, Web, call, request, text_of
from tests.server.hubs import HubHarness, until
from tieline.contract.limits import DEFAULT_LIMITS, MEBIBYTE
from tieline.protocols.mcp import codec, server
from tieline.protocols.mcp.listener import UNPROVED_BYTES_MAX
from tieline.protocols.mcp.server import Mcp


def served(place: HubHarness) -> Mcp:
    """Return the MCP server of a hub."""
    found = place.hub.servers["mcp"]
    assert isinstance(found, Mcp)
    return found


# The official client.


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_lists_calls_drains_and_answers(place: HubHarness, era: str) -> None:
    alice = await place.join("alice")
    async with http_agent(place.running.http, place.tokens["bob"], era) as agent:
        client = agent.client
        assert client.protocol_version == ("2025-11-25" if era == LEGACY else "2026-07-28")
        assert client.server_capabilities.experimental == {"claude/channel": {}}
        assert client.instructions == codec.INSTRUCTIONS
        sent = await alice.send("@bob", "hello")
        assert "\nhello\n" in await agent.call("drain")
        assert await state(alice, sent.id) == "acked"
        await agent.call("send", to="@alice", body="yes", reply_to=sent.id)
        (item,) = (await alice.inbox()).items
        assert (item.message.body, item.message.reply_to, item.message.protocol) == ("yes", sent.id, "mcp")
        made = await alice.create_objective("Fix it", "It works", "bob")
        assert f"- {made.id} [active] Fix it → It works" in await agent.description()


@pytest.mark.parametrize("era", ERAS)
async def test_a_drain_that_waits_takes_what_comes_and_tells_of_its_progress(
    place: HubHarness, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served(place), "_tick_seconds", 0.02)
    alice = await place.join("alice")
    told: list[float] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        told.append(progress)

    async with http_agent(place.running.http, place.tokens["bob"], era) as agent:
        waiting = asyncio.create_task(agent.client.call_tool("drain", {"wait": 60}, progress_callback=progress))
        await until(lambda: len(told) > 1, seconds=WAIT_SECONDS)
        await alice.send("@bob", "at last")
        async with asyncio.timeout(WAIT_SECONDS):
            assert "at last" in str(await waiting)
        assert told == sorted(told)


async def test_an_answer_without_a_stream_settles_the_message(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    sent = [await alice.send("@bob", body) for body in ("one", "two")]
    call = {"name": "send", "arguments": {"to": "@alice", "body": "yes", "reply_to": sent[0].id}}
    reply = await bob.stateless("tools/call", call, mcp_name="send")
    assert "accepted" in str(await reply.json())
    await alice.members()
    assert [step for step in await steps(alice, sent[0].id) if step[0] in ("seen", "acked")] == [
        ("seen", "named by the agent"),
        ("acked", "answered by the agent"),
    ]
    assert await state(alice, sent[1].id) == "pending"


async def test_pushes_ride_on_the_stream_of_a_session(place: HubHarness) -> None:
    alice = await place.join("alice")
    async with http_agent(place.running.http, place.tokens["bob"], LEGACY) as agent:
        sent = await alice.send("@bob", "hello", data={"branch": "main"})
        await until(lambda: agent.bodies == ["hello"], seconds=WAIT_SECONDS)
        assert agent.pushed[0].meta["branch"] == "main"
        # The client opened the stream by itself: a call does not prove that the agent was shown the push.
        await agent.call("members")
        assert await state(alice, sent.id) == "offered"
        await agent.call("send", to="@alice", body="yes", reply_to=sent.id)
        await alice.members()
        assert [step for step in await steps(alice, sent.id) if step[0] in ("seen", "acked")] == [
            ("seen", "named by the agent"),
            ("acked", "answered by the agent"),
        ]
        await alice.create_objective("Fix it", "It works", "bob")
        await until(lambda: agent.refreshes == 1, seconds=WAIT_SECONDS)


async def test_pushes_ride_on_the_subscription_of_a_stateless_client(place: HubHarness) -> None:
    alice = await place.join("alice")
    async with (
        http_agent(place.running.http, place.tokens["bob"], "auto") as agent,
        agent.client.listen(tools_list_changed=True) as changes,
        asyncio.timeout(WAIT_SECONDS),
    ):
        sent = await alice.send("@bob", "hello")
        await until(lambda: agent.bodies == ["hello"], seconds=WAIT_SECONDS)
        await alice.create_objective("Fix it", "It works", "bob")
        await anext(aiter(changes))
        await agent.call("drain", limit=1)
        assert await state(alice, sent.id) == "acked"
    member = next(one for one in await alice.members() if one.name == "bob")
    assert set(member.sessions) == {"mcp"}
    await until(lambda: not served(place)._listeners)


# Tokens, pages of other sites, host names.


async def test_a_request_without_a_valid_token_is_refused(bob: Web) -> None:
    for wrong in (None, "Bearer", "Bearer nonsense"):
        reply = await bob.ask(body=request("initialize"), authorization=wrong)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "error" in await reply.json()


async def test_a_page_of_another_site_is_refused(bob: Web) -> None:
    pages: list[dict[str, str | None]] = [
        {"origin": "https://example.org"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"host": "example.org"},
    ]
    for headers in pages:
        for method in ("POST", "GET", "DELETE"):
            assert (await bob.ask(method, request("initialize"), **headers)).status in (403, 421)


async def test_the_hubs_own_page_may_ask(place: HubHarness, bob: Web) -> None:
    assert (await bob.ask(body=request("initialize"), origin=place.running.http)).status == 200


async def test_a_revoked_token_ends_its_sessions_and_streams(place: HubHarness, bob: Web) -> None:
    await bob.initialize()
    stream = await bob.listen()
    subscription = await bob.stateless("subscriptions/listen", {"notifications": {}})
    assert (await subscription.event() or {})["method"] == "notifications/subscriptions/acknowledged"
    operator = await place.operator()
    await operator.rotate_token("bob")
    assert await stream.event() is None
    assert "result" in (await subscription.event() or {})
    assert (await bob.ask(body=call("members"))).status == 401
    assert (await bob.ask("GET")).status == 401
    await until(lambda: not served(place)._sessions and not served(place)._callers)


async def test_a_session_belongs_to_its_token(join: Join, bob: Web) -> None:
    await bob.initialize()
    alice = join("alice")
    alice.session = bob.session
    for method in ("POST", "GET", "DELETE"):
        assert (await alice.ask(method, call("members"))).status == 404
    assert "You are bob." in await bob.call("members")


# Sessions.


async def test_a_deleted_session_is_gone_with_its_stream(bob: Web) -> None:
    await bob.initialize()
    stream = await bob.listen()
    assert (await bob.ask("DELETE")).status == 200
    assert await stream.event() is None
    assert (await bob.ask(body=call("members"))).status == 404
    assert (await bob.ask("DELETE")).status == 404


async def test_a_request_needs_a_session_unless_it_opens_one(bob: Web) -> None:
    assert (await bob.ask(body=call("members"))).status == 400
    bob.session = "nonsense"
    assert (await bob.ask(body=call("members"))).status == 404


async def test_idle_sessions_expire_and_those_with_a_stream_do_not(
    place: HubHarness, join: Join, bob: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp = served(place)
    monkeypatch.setattr(mcp, "_keepalive_seconds", 0.02)
    monkeypatch.setattr(mcp, "_idle_seconds", 0.1)
    monkeypatch.setattr(mcp, "_caller_idle_seconds", 0.5)
    listening = join("alice")
    await listening.initialize()
    stream = await listening.listen()
    await bob.initialize()
    await until(lambda: len(mcp._sessions) == 1)
    assert (await bob.ask(body=call("members"))).status == 404
    # One task for all streams keeps them open.
    assert await stream.event(comments=True) == {"comment": "keepalive"}
    await until(lambda: not mcp._callers)
    assert "You are alice." in await listening.call("members")


async def test_a_member_has_so_many_sessions_and_the_oldest_unused_one_ends(
    join: Join, bob: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SESSIONS_MAX", 2)
    first, second, third = (join("bob") for _ in range(3))
    await first.initialize()
    stream = await first.listen()
    await second.initialize()
    await third.initialize()
    assert (await second.ask(body=call("members"))).status == 404
    assert "You are bob." in await first.call("members")
    await third.listen()
    assert (await bob.ask(body=request("initialize"))).status == 503
    subscribed = [await bob.stateless("subscriptions/listen", {"notifications": {}}) for _ in range(3)]
    assert [reply.status for reply in subscribed] == [200, 200, 503]
    stream.close()


# Streams.


async def test_a_stream_that_is_opened_again_repeats_only_what_the_client_does_not_have(
    place: HubHarness, bob: Web
) -> None:
    alice = await place.join("alice")
    await bob.initialize()
    stream = await bob.listen()
    for body in ("one", "two"):
        await alice.send("@bob", body)
    first, second = await stream.event() or {}, await stream.event() or {}
    assert [one["params"]["content"] for one in (first, second)] == ["one", "two"]
    stream.close()
    again = await bob.listen(last_event_id=first["event_id"])
    assert ((await again.event()) or {})["params"]["content"] == "two"
    await alice.send("@bob", "three")
    assert ((await again.event()) or {})["params"]["content"] == "three"
    # A new stream replaces the old one.
    newest = await bob.listen(last_event_id="3")
    assert await again.event() is None
    await alice.send("@bob", "four")
    assert ((await newest.event()) or {})["params"]["content"] == "four"


async def test_a_stream_that_is_opened_again_does_not_repeat_what_was_redacted(place: HubHarness, bob: Web) -> None:
    alice, operator = await place.join("alice"), await place.operator()
    await bob.initialize()
    stream = await bob.listen()
    sent = [await alice.send("@bob", body) for body in ("one", "the secret", "three")]
    events = [(await stream.event()) or {} for _ in sent]
    assert events[1]["params"]["content"] == "the secret"
    await stream.closed()
    await operator.redact(sent[1].id, "a password")
    again = await bob.listen(last_event_id=events[0]["event_id"])
    assert ((await again.event()) or {})["params"]["content"] == "three"
    assert "redacted by operator: a password" in await bob.call("drain"), "the inbox has the note"


async def test_nothing_is_kept_of_a_stream_that_cannot_be_repeated(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    stream = await bob.stateless("subscriptions/listen", {"notifications": {}})
    assert (await stream.event() or {})["method"] == "notifications/subscriptions/acknowledged"
    await alice.send("@bob", "hello")
    assert ((await stream.event()) or {})["params"]["content"] == "hello"
    (listener,) = served(place)._listeners
    assert not listener._unproved


@pytest.mark.parametrize("last", ["9" * 5000, "-1", "x", "1e3"])
async def test_a_stream_opens_whatever_the_client_calls_its_last_event(place: HubHarness, bob: Web, last: str) -> None:
    await bob.initialize()
    stream = await bob.listen(last_event_id=last)
    await (await place.join("alice")).send("@bob", "hello")
    assert (await stream.event() or {})["params"]["content"] == "hello"


@pytest.mark.slow
async def test_a_client_that_does_not_read_delays_no_other_and_loses_nothing(
    place: HubHarness, join: Join, bob: Web
) -> None:
    alice = await place.join("alice")
    await bob.initialize()
    stream = await bob.listen()
    body = "x" * 60_000
    for number in range(200):
        await alice.send("@bob", f"{number} {body}")
    other = join("alice")
    await other.initialize()
    assert "bob" in await other.call("members")
    came = [((await stream.event()) or {})["params"]["content"].split()[0] for _ in range(50)]
    assert came == [str(number) for number in range(50)]
    # Little of it is kept for a stream that is opened again.
    kept = [len(session.listener._unproved or ()) for session in served(place)._sessions.values()]
    assert 0 < max(kept) <= UNPROVED_BYTES_MAX // len(body)


# Messages that were taken and not shown.


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_client_that_disconnects_while_it_waits_takes_nothing(place: HubHarness, bob: Web, era: str) -> None:
    alice = await place.join("alice")
    mcp = served(place)
    await bob.initialize()
    headers: dict[str, Any] = {}
    body = call("drain", wait=60)
    if era == "stateless":
        body["params"]["_meta"] = META
        headers = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "drain"}
    asking = asyncio.create_task(bob.ask(body=body, **headers))
    await until(lambda: any(caller.running for caller in mcp._callers.values()))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await bob.close()
    await until(lambda: not any(caller.running for caller in mcp._callers.values()))
    sent = await alice.send("@bob", "late")
    # The session of the request may still be ending: it is offered the message, and does not take it.
    assert await state(alice, sent.id) in {"pending", "offered"}
    assert "\nlate\n" in await bob.call("drain")


async def test_a_cancelled_call_is_answered_and_takes_nothing(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    await bob.initialize()
    asking = asyncio.create_task(bob.ask(body=call("drain", wait=60, number="n-1")))
    (session,) = served(place)._sessions.values()
    await until(lambda: "n-1" in session.running.values())
    numbers: list[Any] = ["n-2", [], None, "n-1"]
    for number in numbers:
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        assert (await bob.ask(body=cancelled)).status == 202
    assert (await (await asking).json())["error"]["code"] == codec.CANCELLED
    sent = await alice.send("@bob", "late")
    assert await state(alice, sent.id) == "pending"


async def test_true_is_no_id_and_cancels_nothing(place: HubHarness, bob: Web) -> None:
    await bob.initialize()
    asking = asyncio.create_task(bob.call("drain", wait=60, number=1))
    (session,) = served(place)._sessions.values()
    await until(lambda: bool(session.running))
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": True}}
    assert (await bob.ask(body=cancelled)).status == 202
    await (await place.join("alice")).send("@bob", "still there")
    assert "still there" in await asking


async def test_a_session_that_ends_cancels_all_calls_also_those_with_the_same_id(place: HubHarness, bob: Web) -> None:
    await bob.initialize()
    asking = [asyncio.create_task(bob.ask(body=call("drain", wait=60, number=7))) for _ in range(3)]
    (session,) = served(place)._sessions.values()
    await until(lambda: len(session.running) == 3)
    assert (await bob.ask("DELETE")).status == 200
    for one in asking:
        assert (await (await one).json())["error"]["code"] == codec.CANCELLED


async def test_a_client_that_disconnects_during_a_list_of_calls_loses_no_message(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    mcp = served(place)
    await bob.initialize("2025-03-26")
    sent = await alice.send("@bob", "precious")
    asking = asyncio.create_task(bob.ask(body=[call("drain"), call("drain", wait=60, number=2)]))
    (session,) = mcp._sessions.values()
    await until(lambda: 2 in session.running.values())
    assert await state(alice, sent.id) == "acked"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await bob.close()
    await until(lambda: not session.running)
    assert "\nprecious\n" in await bob.call("drain")


async def test_messages_of_an_answer_that_was_lost_are_shown_again(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    await bob.initialize()
    await alice.send("@bob", "taken")
    await bob.call("members")
    (caller,) = served(place)._callers.values()
    answer = await caller.agent_session.call_tool("drain", {})
    caller.agent_session.lost(answer)
    assert not caller.idle
    assert "\ntaken\n" in await bob.call("drain")
    await until(lambda: caller.idle)
    assert await bob.call("drain") == "Nothing waits."


async def test_a_pushed_message_is_not_kept_in_memory_until_it_is_seen(place: HubHarness, bob: Web) -> None:
    alice = await place.join("alice")
    await bob.initialize()
    stream = await bob.listen()
    await alice.send("@bob", "x" * MEBIBYTE)
    assert await stream.event()
    (session,) = served(place)._sessions.values()
    forwarder = session.listener._forwarder
    # The delivery is noted after its push.
    await until(lambda: len(forwarder._awaiting) == 1)
    assert len(repr(forwarder._awaiting)) < 1000


# Bad input.


async def test_what_is_no_message_is_refused(bob: Web) -> None:
    await bob.initialize()
    for body in (b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}'):
        assert (await bob.ask(body=body)).status == 400
    assert (await bob.ask(body=b'{"jsonrpc":"2.0","id":1,"result":{}}')).status == 202
    assert "You are bob." in await bob.call("members")


@pytest.mark.slow
async def test_methods_types_and_sizes_that_are_not_served(bob: Web) -> None:
    await bob.initialize()
    put = await bob.ask("PUT", call("members"))
    assert (put.status, put.headers["allow"]) == (405, "POST, GET, DELETE")
    assert (await bob.ask("GET", accept="text/html")).status == 406
    assert (await bob.ask(body=call("members"), content_type="text/plain")).status == 415
    too_large = await bob.ask(body=b"x", content_length=str(DEFAULT_LIMITS.frame_bytes_max + 1))
    assert too_large.status == 413
    unknown = await (await bob.ask(body=request("prompts/list"))).json()
    assert unknown["error"]["code"] == codec.METHOD_NOT_FOUND
    for params in ({"name": 1}, {"name": "dance"}, {"name": "send", "arguments": []}):
        assert (await (await bob.ask(body=request("tools/call", params))).json())["error"]["code"] == -32602
    wrong = await (await bob.ask(body=call("send", too="x"))).json()
    assert wrong["result"]["isError"] is True
    assert "send takes to, body, [reply_to]" in text_of(wrong)


async def test_several_messages_in_one_body_only_in_the_version_that_has_them(bob: Web) -> None:
    await bob.initialize("2025-03-26")
    both = [request("ping", number=1), call("members", number=2), {"jsonrpc": "2.0", "method": "notifications/x"}]
    answers = await (await bob.ask(body=both)).json()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert (await bob.ask(body=[request("ping", number=n) for n in range(codec.BATCH_MAX + 1)])).status == 400
    await bob.initialize(VERSION)
    assert (await bob.ask(body=both)).status == 400


async def test_a_member_asks_so_many_things_at_once(
    place: HubHarness, bob: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", 1)
    await bob.initialize()
    asking = asyncio.create_task(bob.ask(body=call("drain", wait=60)))
    await until(lambda: any(caller.running for caller in served(place)._callers.values()))
    assert (await bob.ask(body=call("members"))).status == 429
    asking.cancel()


@pytest.mark.parametrize("in_list", [False, True])
async def test_requests_that_come_together_are_counted(
    place: HubHarness, bob: Web, monkeypatch: pytest.MonkeyPatch, in_list: bool
) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", 2)
    await bob.initialize("2025-03-26")
    bodies = [call("drain", wait=60, number=number) for number in range(5)]
    asking = [asyncio.create_task(bob.ask(body=[body, request("ping")] if in_list else body)) for body in bodies]
    await until(lambda: sum(one.done() for one in asking) == 3)
    assert [(await one).status for one in asking if one.done()] == [429] * 3
    assert (await bob.ask("DELETE")).status == 200
    await asyncio.gather(*asking)


async def test_a_stateless_request_that_contradicts_itself_is_refused(bob: Web) -> None:
    unknown = {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}}
    wrong: list[tuple[dict[str, str | None], dict[str, Any], int]] = [
        ({}, {"_meta": {}}, codec.INVALID_PARAMS),
        ({"mcp_method": None}, {}, codec.HEADER_MISMATCH),
        ({"mcp_protocol_version": "2099-01-01"}, {}, codec.HEADER_MISMATCH),
        ({"mcp_protocol_version": "2099-01-01"}, unknown, codec.UNSUPPORTED_VERSION),
    ]
    for headers, params, code in wrong:
        reply = await bob.stateless("tools/list", params, **headers)
        assert reply.status == 400
        assert (await reply.json())["error"]["code"] == code


async def test_stateless_requests_stand_alone(bob: Web) -> None:
    found = (await (await bob.stateless("server/discover")).json())["result"]
    assert found["supportedVersions"] == [STATELESS]
    assert (await bob.stateless("ping")).status == 404
    name = "=?base64?bWVtYmVycw==?="
    reply = await bob.stateless("tools/call", {"name": "members", "arguments": {}}, mcp_name=name)
    assert "You are bob." in text_of(await reply.json())
    reply = await bob.stateless("tools/call", {"name": "members"}, mcp_name="send")
    assert (await reply.json())["error"]["code"] == codec.HEADER_MISMATCH
    get = await bob.ask("GET", mcp_protocol_version=STATELESS)
    assert (get.status, get.headers["allow"]) == (405, "POST")
    assert (await bob.stateless("subscriptions/listen", {"notifications": 1})).status == 400


async def test_an_idle_stream_has_no_timer(join: Join) -> None:
    loop: Any = asyncio.get_running_loop()

    def timers() -> int:
        return sum(not timer.cancelled() for timer in loop._scheduled)

    clients = [join("bob") for _ in range(20)]
    for client in clients:
        await client.initialize()
    before = timers()
    for client in clients:
        await client.listen()
    subscribed = [await join("alice").stateless("subscriptions/listen", {"notifications": {}}) for _ in range(20)]
    assert [(await reply.event() or {})["method"] for reply in subscribed]
    assert timers() - before < 10
