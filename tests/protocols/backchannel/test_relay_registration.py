"""Tests of the registration of names in the relay API: permitted members, tokens and configuration."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.backchannel.relays import NO_ROOM, NO_TOKEN, ROOM, TIME, Agent, Room, room
from tests.server.hubs import running_hub
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByUser
from tieline.contract.reply import Attached, Fetched
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

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


async def test_a_name_made_by_a_local_session_is_not_given_away_with_its_mail_for_the_room_token(lobby: Room) -> None:
    hub = lobby.there.hub.local_hub
    assert hub is not None
    attached = await hub.ask(c.Attach(protocol="local", credential=ByUser(), member=MemberName("local")))
    assert isinstance(attached, Attached)
    await (await lobby.agent("alice")).send("@local", "private")
    for taker in (lobby.lobby, lobby.stranger):
        for name in ("local", "LOCAL"):
            text = await taker.refused(409, "POST", "/v1/register", {"name": name})
            assert "present its token" in text
            assert "`tieline member rotate local`" in text
    fetched = await hub.ask(c.Fetch(attached.session))
    assert isinstance(fetched, Fetched), "its session goes on"
    assert [delivery.message.content.body for delivery in fetched.deliveries] == ["private"]
    token = (await (await lobby.there.operator()).rotate_token("local")).token
    assert await Agent(lobby.url, token, "local").bodies() == ["private"], "the way that the refusal names"


@pytest.mark.slow
async def test_without_a_room_token_strangers_make_a_bounded_number_of_members_in_an_hour(folder: Path) -> None:
    async with room(folder, room_token="") as made:
        statuses = [
            (await made.stranger.ask("POST", "/v1/register", {"name": f"invented-{number}"})).status
            for number in range(103)
        ]
        assert statuses == [200] * 100 + [429] * 3
        operator = await made.there.operator()
        assert len(await operator.members()) == 100


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
    async with running_hub(folder) as there:
        made = load_config(folder).of(BackchannelSettings).room_token
        assert len(made) >= 32
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
    async with running_hub(folder, **options) as there:
        assert "backchannel" not in there.hub.servers
        with pytest.raises(ValueError, match="Expecting value"):
            await Agent(there.running.http).ask("GET", "/v1/health")


async def test_an_invitation_registers_one_name_and_too_many_wrong_ones_must_wait(lobby: Room) -> None:
    operator = await lobby.there.operator()
    secret = (await operator.invite()).secret
    assert (await Agent(lobby.url, secret).register("alice"))["token"]
    assert await Agent(lobby.url, secret).refused(401, "POST", "/v1/register", {"name": "bob"}) == NO_ROOM
    for _ in range(99):
        await Agent(lobby.url, "wrong").refused(401, "POST", "/v1/register", {"name": "bob"})
    assert "wrong invitations" in await lobby.lobby.refused(429, "POST", "/v1/register", {"name": "bob"})
