"""The relay API: one test for each sentence of its description, and for each fact that existing clients rely on."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from tests.protocols.backchannel.relays import JSON, ROOM, Agent, Room, room
from tests.server.hubs import house
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByUser
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached
from tieline.core.store import StoreError
from tieline.protocols.backchannel.relay import _STATUS
from tieline.server.config import load_config

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
NO_TOKEN = "unauthorized — agent token required (get one via /v1/register)"
NO_ROOM = "unauthorized — registration requires the room token"


@pytest.fixture
async def lobby(folder: Path) -> AsyncIterator[Room]:
    async with room(folder) as made:
        yield made


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
    for shown in ("", "Bearer", "Bearer ", "Basic eDp5", "Bearer wrong", "Bearer \xe9", "Bearer " + "x" * 10_000):
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


# Registration: the room token


async def test_registering_issues_a_token_once_and_never_its_hash(lobby: Room) -> None:
    record = await lobby.lobby.register("alice")
    assert list(record) == ["name", "subscriptions", "createdAt", "lastSeen", "token"]
    assert record["name"] == "alice"
    assert record["subscriptions"] == []
    assert TIME.match(record["createdAt"])
    assert TIME.match(record["lastSeen"])
    assert re.fullmatch(r"[0-9a-f]{64}", record["token"])
    again = await Agent(lobby.url, record["token"]).register("alice")
    assert list(again) == ["name", "subscriptions", "createdAt", "lastSeen"]


async def test_a_new_name_needs_the_room_token(lobby: Room) -> None:
    for token in (None, "", "wrong", ROOM[:-1], ROOM + "x"):
        assert await Agent(lobby.url, token).refused(401, "POST", "/v1/register", {"name": "alice"}) == NO_ROOM


async def test_an_agent_token_admits_nobody_else(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    assert await alice.refused(401, "POST", "/v1/register", {"name": "bob"}) == NO_ROOM


async def test_the_room_token_cannot_read_send_or_list_anything(lobby: Room) -> None:
    await lobby.agents("alice")
    for method, path, body in (
        ("GET", "/v1/agents", None),
        ("GET", "/v1/channels", None),
        ("GET", "/v1/inbox/alice", None),
        ("GET", "/v1/events/alice", None),
        ("POST", "/v1/send", {"to": "@alice", "body": "x"}),
        ("POST", "/v1/take", {"id": "x"}),
        ("POST", "/v1/subscribe", {"channel": "#dev"}),
    ):
        assert await lobby.lobby.refused(401, method, path, body) == NO_TOKEN


async def test_names_cannot_be_taken_over_with_the_room_token(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    for name in ("alice", "ALICE", "Alice"):
        text = f'agent name "{name}" is registered — present its token to re-register'
        for taker in (lobby.lobby, lobby.stranger, bob):
            assert await taker.refused(409, "POST", "/v1/register", {"name": name}) == text
    assert await alice.get("/v1/inbox/alice") == [], "the token that it had is still good"


async def test_re_registering_with_the_agent_token_gives_the_record_without_a_token_and_is_a_sign_of_life(
    lobby: Room,
) -> None:
    alice = await lobby.agent("alice")
    await alice.post("/v1/subscribe", channel="#dev")
    before = (await alice.get("/v1/agents"))[0]
    again = await alice.register("alice")
    assert "token" not in again
    assert (again["name"], again["subscriptions"], again["createdAt"]) == ("alice", ["#dev"], before["createdAt"])
    assert again["lastSeen"] >= before["lastSeen"]


async def test_without_a_room_token_anybody_may_register_and_every_other_route_still_needs_an_agent_token(
    folder: Path,
) -> None:
    async with room(folder, room_token="") as made:
        for token in (None, "", "whatever"):
            record = await Agent(made.url, token).register(f"agent-{token}")
            assert await Agent(made.url, record["token"]).get("/v1/channels") == ["#general"]
        assert await made.stranger.refused(401, "GET", "/v1/agents") == NO_TOKEN
        assert "present its token" in await made.stranger.refused(409, "POST", "/v1/register", {"name": "agent-None"})


async def test_a_bad_name_is_refused_in_the_words_that_clients_look_for(lobby: Room) -> None:
    for name in ("", "_x", ".x", "-x", "a b", "a/b", "../../etc", "#dev", "@bob", "x" * 129, "é", "a\0", "a\n"):
        for caller in (lobby.lobby, lobby.stranger):
            text = await caller.refused(400, "POST", "/v1/register", {"name": name})
            assert text == f'invalid agent name "{name}" (use letters, digits, . _ -)'


async def test_a_name_that_is_kept_for_the_hub_is_refused(lobby: Room) -> None:
    for name in ("all", "Hub", "operator", "tieline"):
        text = await lobby.lobby.refused(400, "POST", "/v1/register", {"name": name})
        assert text == f'invalid agent name "{name}" — it is kept for the hub itself'


async def test_letters_digits_dots_dashes_and_underscores_make_a_name(lobby: Room) -> None:
    for name in ("a", "A.b_c-9", "0", "x" * 128):
        agent = await lobby.agent(name)
        assert (await agent.send(f"@{name}"))["from"] == name
        assert len(await agent.inbox()) == 1


async def test_a_name_made_by_a_local_session_is_given_a_token_for_the_room_token(lobby: Room) -> None:
    await lobby.there.add("owner")
    hub = lobby.there.hub.exchange
    assert hub is not None
    attached = await hub.ask(c.Attach(protocol="local", credential=ByUser(), member=MemberName("local")))
    assert isinstance(attached, Attached)
    assert await lobby.stranger.refused(401, "POST", "/v1/register", {"name": "local"}) == NO_ROOM
    local = await lobby.agent("local")
    ended = await hub.ask(c.Fetch(attached.session))
    assert isinstance(ended, Refusal), "a session that showed nothing cannot go on under this name"
    assert await local.inbox() == []
    assert "present its token" in await lobby.lobby.refused(409, "POST", "/v1/register", {"name": "local"})
    assert "present its token" in await lobby.lobby.refused(409, "POST", "/v1/register", {"name": "owner"})


async def test_a_lost_token_is_replaced_by_the_operator_and_the_old_one_opens_nothing_at_once(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    await alice.send("@bob", "before")
    operator = await lobby.there.operator()
    issued = await operator.rotate_token("bob")
    assert await bob.refused(401, "GET", "/v1/inbox/bob") == NO_TOKEN
    assert await Agent(lobby.url, issued.token, "bob").bodies() == ["before"]


async def test_a_removed_agent_is_nobody_and_its_name_is_free(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    await alice.get("/v1/agents")
    await (await lobby.there.operator()).remove_member("alice")
    assert await alice.refused(401, "POST", "/v1/send", {"to": "@bob", "body": "x"}) == NO_TOKEN
    assert "unknown agent" in await bob.refused(400, "POST", "/v1/send", {"to": "@alice", "body": "x"})
    assert "token" in await lobby.lobby.register("alice")


async def test_a_token_made_by_the_hub_itself_is_an_agent_token(lobby: Room) -> None:
    await lobby.there.add("carol")
    carol = Agent(lobby.url, lobby.there.tokens["carol"], "carol")
    assert await carol.inbox() == []
    assert "present its token" in await lobby.lobby.refused(409, "POST", "/v1/register", {"name": "carol"})


# Configuration


async def test_a_first_start_makes_a_room_token_of_its_own_in_a_private_file(folder: Path) -> None:
    async with house(folder) as there:
        made = load_config(folder).backchannel.room_token
        assert len(made) >= 32
        assert there.hub.room_token == made
        assert (folder / "tieline.toml").stat().st_mode & 0o777 == 0o600
        assert await Agent(there.running.http).refused(401, "POST", "/v1/register", {"name": "a"}) == NO_ROOM
        assert "token" in await Agent(there.running.http, made).register("a")


async def test_the_environment_says_which_room_token_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKCHANNEL_TOKEN", "from the environment")
    async with room(folder) as made:
        assert await made.lobby.refused(401, "POST", "/v1/register", {"name": "a"}) == NO_ROOM
        assert "token" in await Agent(made.url, "from the environment").register("a")


@pytest.mark.parametrize(("more", "options"), [("enabled = false\n", {}), ("", {"backchannel": False})])
async def test_it_can_be_turned_off(folder: Path, more: str, options: dict[str, Any]) -> None:
    (folder / "tieline.toml").write_text(f"[backchannel]\n{more}", encoding="utf-8")
    async with house(folder, **options) as there:
        assert there.hub.room_token is None
        with pytest.raises(ValueError, match="Expecting value"):
            await Agent(there.running.http).ask("GET", "/v1/health")


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


# Sending


async def test_a_sent_message_comes_back_with_the_keys_of_the_protocol_in_their_order(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    fields = {"priority": "urgent", "scope": "org/repo", "thread": "any text", "refs": ["src/api.ts", "https://x/42"]}
    sent = await alice.send("@bob", "markdown *text*", **fields)
    assert list(sent) == ["id", "from", "to", "body", "priority", "scope", "thread", "refs", "ts"]
    assert {key: sent[key] for key in fields} == fields
    assert (sent["from"], sent["to"], sent["body"]) == ("alice", "@bob", "markdown *text*")
    assert UUID.match(sent["id"])
    assert TIME.match(sent["ts"])
    assert await bob.inbox() == [sent], "what the recipient reads is what the sender was told"


async def test_what_is_empty_is_left_out_and_the_priority_is_normal(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    kinds_of_empty: list[dict[str, Any]] = [{}, {"scope": "", "thread": "", "refs": []}, {"scope": None, "refs": None}]
    for empty in kinds_of_empty:
        sent = await alice.send("@alice", **empty)
        assert list(sent) == ["id", "from", "to", "body", "priority", "ts"]
        assert sent["priority"] == "normal"
        assert await alice.take(sent["id"]) == sent


async def test_the_sender_is_who_the_token_says_whatever_the_body_says(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.post("/v1/send", **{"from": "bob", "agent": "bob", "id": "1", "to": "@bob", "body": "spoofed?"})
    assert sent["from"] == "alice"
    assert [message["from"] for message in await bob.inbox()] == ["alice"]


async def test_the_target_comes_back_as_it_was_written_and_a_bare_name_is_an_agent(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    assert (await alice.send("bob"))["to"] == "bob"
    assert [message["to"] for message in await bob.inbox()] == ["@bob"]


async def test_an_unknown_agent_is_refused_in_the_words_that_clients_look_for(lobby: Room) -> None:
    (alice, _) = await lobby.agents("alice", "bob")
    for to in ("@nobody", "nobody", "@all", "@a b", "@@bob", "@", "", "@Bob"):
        name = to.removeprefix("@")
        text = await alice.refused(400, "POST", "/v1/send", {"to": to, "body": "x"})
        near = "; did you mean bob?" if to == "@Bob" else ""
        assert text == f'unknown agent "{name}" — they must `bch init {name}` first{near}'


async def test_everybody_and_an_objectives_thread_may_be_addressed_as_elsewhere(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.send("*", "all of you")
    assert [(message["id"], message["to"]) for message in await bob.inbox()] == [(sent["id"], "#general")]
    assert "obj-1" in await alice.refused(400, "POST", "/v1/send", {"to": "obj:obj-1", "body": "x"})


async def test_a_channel_message_goes_to_each_subscriber_but_its_sender_under_one_id(lobby: Room) -> None:
    alice, bob, carol, dave = await lobby.agents("alice", "bob", "carol", "dave")
    for agent in (alice, bob, carol):
        await agent.post("/v1/subscribe", channel="#dev")
    sent = await alice.send("#dev", "to all of you")
    assert await bob.inbox() == await carol.inbox() == [sent]
    assert await alice.inbox() == await dave.inbox() == []
    assert await bob.take(sent["id"]) == sent
    assert await carol.inbox() == [sent], "each has an independent copy"


async def test_who_joins_later_does_not_get_what_was_said_before(lobby: Room) -> None:
    alice, bob, carol = await lobby.agents("alice", "bob", "carol")
    await bob.post("/v1/subscribe", channel="#dev")
    await alice.send("#dev")
    await carol.post("/v1/subscribe", channel="#dev")
    assert (len(await bob.inbox()), await carol.inbox()) == (1, [])


async def test_a_channel_without_other_subscribers_is_an_error_not_a_silent_no_op(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    await alice.post("/v1/subscribe", channel="#mine")
    for channel in ("#empty", "#mine", "#general", "#", "#a b"):
        text = await alice.refused(400, "POST", "/v1/send", {"to": channel, "body": "anyone?"})
        assert text == f"channel {channel} has no other subscribers — nothing to deliver"


async def test_everybodys_channel_reaches_everybody_else(lobby: Room) -> None:
    alice, bob, carol = await lobby.agents("alice", "bob", "carol")
    sent = await alice.send("#general")
    assert await bob.inbox() == await carol.inbox() == [sent]
    assert await alice.inbox() == []


async def test_one_may_write_to_oneself(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    sent = await alice.send("@alice", "remember")
    assert await alice.inbox() == [sent]


async def test_any_text_arrives_as_it_was(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    text = 'snow ☃, astral 𝄞, \u2028, tab\t, quote ", back \\, nul \0, line\nline\r\n\n data: x'
    sent = await alice.send("@bob", text)
    assert sent["body"] == text
    assert await bob.bodies() == [text]
    taken = await bob.take(sent["id"])
    assert taken is not None
    assert taken["body"] == text


async def test_half_a_surrogate_pair_is_refused(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    assert await alice.refused(400, "POST", "/v1/send", rb'{"to":"@alice","body":"\ud800"}')


async def test_what_the_hub_refuses_has_a_status_of_its_kind(folder: Path) -> None:
    async with room(folder, more="[limits]\nbody_bytes_max = 100\nbacklog_max = 2\nhops_max = 1\n") as made:
        alice, bob = await made.agents("alice", "bob")
        assert "larger than 100 bytes" in await alice.refused(
            413, "POST", "/v1/send", {"to": "@bob", "body": "x" * 101}
        )
        first = await alice.send("@bob", "one")
        await bob.take(first["id"])
        await bob.send("@alice", "two", thread=first["id"])
        await alice.send("@bob", "three")
        await alice.send("@bob", "four")
        assert "waiting" in await alice.refused(429, "POST", "/v1/send", {"to": "@bob", "body": "x"})


async def test_agents_that_loop_are_stopped_here_too(folder: Path) -> None:
    async with room(folder, more="[limits]\nhops_max = 3\n") as made:
        alice, bob = await made.agents("alice", "bob")
        thread, turns = None, [(alice, bob), (bob, alice)] * 3
        statuses = []
        for speaker, hearer in turns:
            body = {"to": f"@{hearer.name}", "body": "ping", **({"thread": thread} if thread else {})}
            reply = await speaker.ask("POST", "/v1/send", body)
            statuses.append(reply.status)
            if reply.status == 200:
                thread = reply.value["id"]
                await hearer.take(thread)
        assert statuses[:4] == [200] * 4
        assert 429 in statuses[4:]


# Inbox and take


async def test_the_inbox_peeks_and_take_claims(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.send("@bob")
    for _ in range(3):
        assert await bob.inbox() == [sent]
    assert await bob.take(sent["id"], agent="bob", keep=False) == sent
    assert await bob.inbox() == []


async def test_a_second_take_and_a_take_of_what_never_was_get_null(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.send("@bob")
    assert await bob.take(sent["id"]) == sent
    for message_id in (sent["id"], "00000000-0000-7000-8000-000000000000", "", "../../etc/passwd", "x" * 5000, "\0"):
        assert await bob.take(message_id) is None
    assert await bob.post("/v1/take") == {"message": None}


async def test_keep_is_accepted(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.send("@bob")
    assert await bob.take(sent["id"], keep=True) == sent
    assert await bob.inbox() == []


async def test_a_message_of_somebody_else_cannot_be_taken(lobby: Room) -> None:
    alice, bob, eve = await lobby.agents("alice", "bob", "eve")
    sent = await alice.send("@bob")
    for other in (alice, eve):
        assert await other.take(sent["id"]) is None
        assert await other.take(sent["id"], agent="bob") is None
    assert await bob.take(sent["id"]) == sent


async def test_what_belongs_to_another_agent_is_403(lobby: Room) -> None:
    (alice, _) = await lobby.agents("alice", "bob")
    for route in ("inbox", "events"):
        for other in ("bob", "ALICE", "nobody", "a/b", "a b", "", "é"):
            text = await alice.refused(403, "GET", f"/v1/{route}/{quote(other, safe='')}")
            assert text == f'token is for "alice", not "{other}"'


async def test_the_agent_in_a_path_may_be_escaped(lobby: Room) -> None:
    alice = await lobby.agent("a.b_c")
    assert await alice.get("/v1/inbox/a%2Eb%5Fc") == []


async def test_the_inbox_is_sorted_by_time(lobby: Room) -> None:
    alice, bob, carol = await lobby.agents("alice", "bob", "carol")
    for number, sender in enumerate((alice, bob, alice, bob)):
        await sender.send("@carol", str(number))
    unread = await carol.inbox()
    assert [message["body"] for message in unread] == ["0", "1", "2", "3"]
    assert [message["ts"] for message in unread] == sorted(message["ts"] for message in unread)


async def test_an_inbox_shows_as_many_as_the_limit_and_the_rest_when_those_are_taken(folder: Path) -> None:
    async with room(folder, more="[limits]\npage_max = 5\n") as made:
        alice, bob = await made.agents("alice", "bob")
        for number in range(8):
            await alice.send("@bob", str(number))
        first = await bob.inbox()
        assert [message["body"] for message in first] == ["0", "1", "2", "3", "4"]
        for message in first:
            await bob.take(message["id"])
        assert await bob.bodies() == ["5", "6", "7"]


async def test_an_inbox_of_large_messages_is_cut_where_it_grows_too_large(folder: Path) -> None:
    async with room(folder, more="[limits]\npage_bytes_max = 5000\n") as made:
        alice, bob = await made.agents("alice", "bob")
        for number in range(8):
            await alice.send("@bob", str(number) * 2000)
        assert [body[0] for body in await bob.bodies()] == ["0", "1", "2", "3"]


async def test_unread_messages_survive_a_restart_and_taken_ones_stay_taken(folder: Path) -> None:
    async with room(folder) as made:
        alice, bob = await made.agents("alice", "bob")
        taken, kept = await alice.send("@bob", "taken"), await alice.send("@bob", "kept", scope="org/repo")
        assert await bob.take(taken["id"]) == taken
    async with room(folder) as made:
        bob = Agent(made.url, bob.token, "bob")
        assert await bob.inbox() == [kept]
        assert await bob.take(taken["id"]) is None


# Sessions of requests


async def test_requests_of_one_agent_share_one_session(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    await asyncio.gather(*(alice.inbox() for _ in range(10)))
    (member,) = await (await lobby.there.operator()).members()
    assert member.sessions == ("backchannel",)


async def test_a_session_that_ended_between_two_steps_of_a_request_is_opened_again(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    await alice.inbox()
    assert lobby.there.hub.exchange is not None
    broker = lobby.there.hub.exchange._broker
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
    assert lobby.there.hub.exchange is not None

    def fail() -> None:
        monkeypatch.undo()
        raise StoreError("no space left on device")

    monkeypatch.setattr(lobby.there.hub.exchange._broker.store, "commit", fail)
    with capture_logs():
        text = await alice.refused(503, "POST", "/v1/send", {"to": "@alice", "body": "lost"})
    assert "nothing was accepted" in text
    assert await alice.inbox() == []
    assert (await alice.send("@alice", "kept"))["body"] == "kept"


def test_every_refusal_of_the_hub_has_a_status_that_clients_take_for_an_error() -> None:
    assert all(400 <= _STATUS.get(code, 400) < 600 for code in Code)
