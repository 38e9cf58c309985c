"""Tests of messages in the relay API: sending, reading the inbox, and taking."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.protocols.backchannel.relays import TIME, Agent, Room, room
from tieline.wire.prefix_ids import from_prefix_id

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


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
    assert (await alice.send("@bob"))["to"] == "@bob"
    assert [message["to"] for message in await bob.inbox()] == ["bob", "@bob"]
    async with bob.watch() as stream:
        assert [(await stream.next())["to"] for _ in range(2)] == ["bob", "@bob"]
    assert [(await bob.take(message["id"]) or {})["to"] for message in await bob.inbox()] == ["bob", "@bob"]


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


async def test_agents_that_loop_are_held_here_too_and_nothing_is_lost(folder: Path) -> None:
    async with room(folder, more="[limits]\nhops_max = 3\nhop_ms_min = 0\n") as made:
        alice, bob = await made.agents("alice", "bob")
        fields: dict[str, str] = {}
        for speaker, hearer in [(alice, bob), (bob, alice)] * 2:
            sent = await speaker.send(f"@{hearer.name}", "ping", **fields)
            assert await hearer.take(sent["id"]) == sent
            fields = {"thread": sent["id"]}
        held = await alice.send("@bob", "past the limit", **fields)
        behind = await alice.send("@bob", "behind it")
        (notice,) = await bob.inbox()
        assert notice["from"] == "hub@notices"
        assert await bob.take(held["id"]) is None
        operator = await made.there.operator()
        (pause,) = await operator.pauses()
        assert pause.held >= 1
        async with bob.watch() as stream:
            assert await stream.next() == notice
            await operator.resume_thread(pause.thread)
            assert [await stream.next(), await stream.next()] == [held, behind]
        assert sorted(one["id"] for one in await bob.inbox()) == sorted((notice["id"], held["id"], behind["id"]))


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


async def test_a_client_that_takes_by_the_eight_characters_it_shows_takes_the_message_it_means(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    for number in range(20):
        await alice.send("@bob", str(number))
    unread = await bob.inbox()
    shown = {message["body"]: message["id"][:8] for message in unread}
    for body, beginning in shown.items():
        first = next(message for message in unread if message["id"].startswith(beginning))
        taken = await bob.take(first["id"])
        assert taken is not None
        assert taken["body"] == body


async def test_a_message_can_be_taken_and_answered_by_the_id_that_other_protocols_show(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    sent = await alice.send("@bob", "hello")
    answer = await bob.send("@alice", "yes", thread=from_prefix_id(sent["id"]))
    assert answer["thread"] == from_prefix_id(sent["id"]), "the sender reads what it wrote"
    assert [message["thread"] for message in await alice.inbox()] == [sent["id"]]
    assert await bob.take(from_prefix_id(sent["id"])) == sent
