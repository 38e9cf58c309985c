"""Tests of resumed sessions, by token or by RESUME, and of the deliveries that they get."""

from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_relay.relays import Relay, relay_of, running, texts
from tests.protocols.agent_relay.wire import Frame, Wire, frame, greeting, resumption, said
from tests.server.hubs import running_hub


async def test_hello_with_the_resume_token_keeps_the_session_and_rotates_the_token(relay: Relay) -> None:
    bob = await relay.agent("bob")
    await relay.leave(bob)
    again = await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    assert again.welcome["session_id"] == bob.welcome["session_id"]
    assert again.welcome["resume_token"] != bob.welcome["resume_token"]


async def resume_is_too_old(wire: Wire, name: str, token: str) -> Frame:
    await wire.send(greeting(name, resume_token=token))
    error = await wire.expect("ERROR")
    assert (error["payload"]["code"], error["payload"]["fatal"]) == ("RESUME_TOO_OLD", False)
    welcome: Frame = (await wire.expect("WELCOME"))["payload"]
    return welcome


async def test_a_replayed_resume_token_gives_a_new_session(relay: Relay) -> None:
    bob = await relay.agent("bob")
    old = bob.welcome["resume_token"]
    again = await relay.agent("bob", resume_token=old)
    await again.silent()
    thief = await relay.dial()
    welcome = await resume_is_too_old(thief, "bob", old)
    assert welcome["session_id"] != bob.welcome["session_id"]


async def test_a_resume_token_is_good_again_if_its_successor_was_never_used(relay: Relay) -> None:
    bob = await relay.agent("bob")
    await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    again = await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    assert again.welcome["session_id"] == bob.welcome["session_id"]


async def test_a_resume_token_is_bound_to_its_member(relay: Relay) -> None:
    bob = await relay.agent("bob")
    mallory = await relay.dial()
    welcome = await resume_is_too_old(mallory, "mallory", bob.welcome["resume_token"])
    assert welcome["session_id"] != bob.welcome["session_id"]
    await bob.silent()


async def test_a_resume_token_that_never_was_gives_a_new_session(relay: Relay) -> None:
    await resume_is_too_old(await relay.dial(), "bob", "made up")


async def chatted(relay: Relay, *senders: str, count: int = 5, ack: bool = True) -> tuple[Wire, list[Frame]]:
    """Let `senders` send messages to bob, and close bob's connection. Return this connection and its deliveries.

    With `ack`, bob acknowledges them before.
    """
    bob = await relay.agent("bob")
    for name in senders:
        sender = await relay.agent(name)
        await sender.send(*(said(f"{name} {number + 1}", "bob", topic="chat") for number in range(count)))
    deliveries = await bob.deliveries(count * len(senders))
    for delivery in deliveries if ack else ():
        await bob.ack(delivery)
    await bob.silent()
    await relay.leave(bob)
    return bob, deliveries


async def test_resume_is_answered_by_sync_and_a_replay_from_last_seq_on(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice")
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}))
    sync = (await again.expect("SYNC"))["payload"]
    assert sync["session_id"] == bob.welcome["session_id"]
    assert sync["resume_token"] != bob.welcome["resume_token"]
    assert sync["streams"] == [{"topic": "chat", "peer": "alice", "last_seq": 2, "server_last_seq": 5}]
    assert sorted(sync) == ["resume_token", "session_id", "streams"]
    replayed = await again.deliveries(3)
    assert replayed == deliveries[2:]
    await again.silent()


async def test_the_replay_has_the_note_of_a_redacted_message(relay: Relay) -> None:
    bob, _ = await chatted(relay, "alice", count=2)
    operator = await relay.operator()
    secret, _ = await operator.history(everything=True)
    assert secret.body == "alice 2"
    await operator.redact(secret.id, "a password")
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 1}}))
    await again.expect("SYNC")
    assert await again.bodies(1) == ["redacted by operator: a password"]


async def test_a_resumed_session_goes_on_with_the_next_numbers(relay: Relay) -> None:
    bob, _ = await chatted(relay, "alice", count=2)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}), said("from me", "alice"))
    await again.expect("SYNC")
    alice = await relay.agent("alice")
    assert await alice.bodies(1) == ["from me"]
    await alice.send(said("next", "bob", topic="chat"))
    (delivery,) = await again.deliveries(1)
    assert delivery["delivery"] == {"seq": 3, "session_id": bob.welcome["session_id"]}


async def test_one_last_seq_counts_for_each_peer_of_its_topic(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", "carol", count=3)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert [(one["peer"], one["last_seq"], one["server_last_seq"]) for one in streams] == [
        ("alice", 2, 3),
        ("carol", 2, 3),
    ]
    assert await again.settled() == [one for one in deliveries if one["delivery"]["seq"] == 3]


async def test_peers_say_exactly_how_far_each_stream_got(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", "carol", count=3)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"peers": {"alice": 3, "carol": 1}}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert [(one["peer"], one["last_seq"]) for one in streams] == [("alice", 3), ("carol", 1)]
    assert await again.settled() == [one for one in deliveries if one["from"] == "carol"][1:]


async def test_what_was_never_acked_comes_again_whatever_resume_says(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", ack=False)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 4}}))
    await again.expect("SYNC")
    assert await again.settled() == deliveries


async def test_messages_without_a_topic_resume_under_default(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"), said("two", "bob"))
    for delivery in await bob.deliveries(2):
        await bob.ack(delivery)
    await bob.silent()
    again = await relay.dial()
    await again.send(resumption(bob, {"default": {"last_seq": 1}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert streams == [{"topic": "default", "peer": "alice", "last_seq": 1, "server_last_seq": 2}]
    assert await again.bodies(1) == ["two"]
    assert (await bob.failed())["code"] == "DUPLICATE_CONNECTION"


@pytest.mark.parametrize("streams", [None, {}, {"chat": {}}, {"chat": {"peers": {}}}, {"other": {"last_seq": 0}}])
async def test_a_stream_without_a_position_goes_on_behind_its_last_ack(relay: Relay, streams: Any) -> None:
    bob, _ = await chatted(relay, "alice")
    again = await relay.dial()
    resume = resumption(bob)
    resume["payload"]["streams"] = streams
    await again.send(resume)
    assert (await again.expect("SYNC"))["payload"]["streams"][0]["last_seq"] == 5
    await again.silent()


async def test_resume_of_an_unknown_session_is_stale_and_hello_works_on_the_same_connection(relay: Relay) -> None:
    bob = await relay.agent("bob")
    wire = await relay.dial()
    for name, session_id in (("bob", "s-made-up"), ("mallory", bob.welcome["session_id"])):
        await wire.send(frame("RESUME", {"session_id": session_id, "agent": name, "streams": {}}))
        assert (await wire.expect("NACK"))["payload"]["code"] == "STALE"
    await bob.silent()
    await wire.hello("carol")
    await wire.send(said("hi", "bob"))
    assert (await bob.expect("DELIVER"))["from"] == "carol"


async def test_a_resume_whose_gap_is_not_kept_is_stale_and_a_fresh_hello_works(folder: Path) -> None:
    config = "[limits]\nretention_ms = 1\nclock_patience_ms = 0\n"
    async with running(folder / "h", config) as relay:
        bob, _ = await chatted(relay, "alice")
    # Retention makes a pass when a hub starts; everything is acknowledged, and older than a millisecond.
    async with running(folder / "h", config) as relay:
        again = await relay.dial()
        await again.send(resumption(bob, {"chat": {"last_seq": 2}}))
        nack = await again.expect("NACK")
        assert nack["payload"]["code"] == "STALE"
        assert "fresh HELLO" in nack["payload"]["message"]
        welcome = await again.hello("bob")
        assert welcome["session_id"] != bob.welcome["session_id"]
        await again.silent()
        alice = await relay.agent("alice")
        await alice.send(said("go on", "bob", topic="chat"))
        (delivery,) = await again.deliveries(1)
        assert delivery["delivery"] == {"seq": 6, "session_id": welcome["session_id"]}


async def test_a_resume_that_lacks_nothing_is_never_stale(folder: Path) -> None:
    config = "[limits]\nretention_ms = 1\nclock_patience_ms = 0\n"
    async with running(folder / "h", config) as relay:
        bob, _ = await chatted(relay, "alice")
    async with running(folder / "h", config) as relay:
        again = await relay.dial()
        await again.send(resumption(bob, {"chat": {"last_seq": 5}}))
        assert (await again.expect("SYNC"))["payload"]["session_id"] == bob.welcome["session_id"]
        await again.silent()


async def test_what_was_sent_behind_a_stale_resume_is_heard_after_the_nack(relay: Relay) -> None:
    wire = await relay.dial()
    stale = frame("RESUME", {"session_id": "s-made-up", "agent": "bob", "streams": {}})
    await wire.send(stale, stale, greeting("bob"), said("to myself", "bob"))
    await wire.expect("NACK")
    await wire.expect("NACK")
    await wire.expect("WELCOME")
    assert await wire.bodies(1) == ["to myself"]


async def test_a_session_is_resumed_until_its_time_is_over(folder: Path) -> None:
    async with running(folder / "h", "[limits]\nresume_ms = 1\n") as relay:
        bob = await relay.agent("bob")
        await relay.leave(bob)
        wire = await relay.dial()
        await wire.send(resumption(bob))
        assert (await wire.expect("NACK"))["payload"]["code"] == "STALE"
        await resume_is_too_old(wire, "bob", bob.welcome["resume_token"])


async def test_a_topic_called_default_is_the_stream_of_no_topic(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"), said("two", "bob", topic="default"))
    deliveries = await bob.deliveries(2)
    assert [(one.get("topic"), one["delivery"]["seq"]) for one in deliveries] == [(None, 1), ("default", 2)]
    for delivery in deliveries:
        await bob.ack(delivery)
    await bob.silent()
    await relay.leave(bob)
    again = await relay.dial()
    await again.send(resumption(bob, {"default": {"last_seq": 0}}))
    await again.expect("SYNC")
    assert await again.deliveries(2) == deliveries


@pytest.mark.parametrize("lacking", ["agent", "session_id"])
async def test_a_resume_in_the_wrong_form_ends_the_connection(relay: Relay, lacking: str) -> None:
    bob, wire = await relay.agent("bob"), await relay.dial()
    resume = resumption(bob)
    del resume["payload"][lacking]
    await wire.send(resume)
    assert (await wire.failed())["code"] == "BAD_REQUEST"
    await bob.silent()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resume_token": 7},
        {"token": 7},
        {"streams": [{"topic": "chat", "last_seq": 1}]},
        {"streams": {"chat": 7}},
        {"streams": {"chat": {"last_seq": "1"}}},
        {"streams": {"chat": {"last_seq": 1.5}}},
        {"streams": {"chat": {"last_seq": True}}},
        {"streams": {"chat": {"last_seq": -1}}},
        {"streams": {"chat": {"peers": []}}},
        {"streams": {"chat": {"peers": {"alice": None}}}},
    ],
    ids=str,
)
async def test_a_resume_that_says_something_in_the_wrong_form_skips_nothing_but_ends(
    relay: Relay, wrong: Frame
) -> None:
    bob, wire = await relay.agent("bob"), await relay.dial()
    await wire.send(resumption(bob, **wrong))
    assert (await wire.failed())["code"] == "BAD_REQUEST"
    await bob.silent()


async def test_a_client_that_does_not_ack_is_given_what_it_lacks_when_it_says_so(relay: Relay) -> None:
    quiet = {"capabilities": {"ack": False}}
    alice, bob = await relay.agent("alice"), await relay.agent("bob", **quiet)
    await alice.send(*(said(str(number), "bob", topic="chat") for number in range(4)))
    deliveries = await bob.deliveries(4)
    await relay.leave(bob)
    await alice.send(said("4", "bob", topic="chat"))
    await alice.silent()
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}, **quiet))
    assert (await again.expect("SYNC"))["payload"]["streams"][0]["server_last_seq"] == 5
    given = await again.deliveries(3)
    assert given[:2] == deliveries[2:]
    assert given[2]["payload"]["body"] == "4"
    await again.silent()


async def test_a_sync_is_never_larger_than_a_frame_may_be(folder: Path) -> None:
    async with running(folder / "h", "[agent_relay]\nframe_bytes_max = 20000\n") as relay:
        alice, bob = await relay.agents("alice", "bob")
        for number in range(300):
            await alice.send(said("x", "bob", topic=f"{number:03}"))
            await bob.ack(await bob.expect("DELIVER"))
        await bob.silent()
        await relay.leave(bob)
        again = await relay.dial()
        await again.send(resumption(bob, {"299": {"last_seq": 0}}))
        streams = (await again.expect("SYNC"))["payload"]["streams"]
        assert 50 < len(streams) < 300
        assert streams[0] == {"topic": "299", "peer": "alice", "last_seq": 0, "server_last_seq": 1}
        assert (await again.expect("DELIVER"))["topic"] == "299"


@pytest.mark.slow
async def test_a_long_replay_comes_whole_and_in_order(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob", topic="chat") for number in range(600)))
    first = []
    for _ in range(600):
        first.append(await bob.expect("DELIVER"))
        if len(first) <= 400:
            await bob.ack(first[-1])
    await bob.silent()
    await relay.leave(bob)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 100}}))
    await again.expect("SYNC")
    for expected in first[100:]:
        delivery = await again.expect("DELIVER")
        assert delivery == expected
        await again.ack(delivery)
    await again.silent()


async def test_a_hub_may_want_the_token_in_a_resume(folder: Path) -> None:
    home = folder / "h"
    home.mkdir(mode=0o700)
    (home / "tieline.toml").write_text("[agent_relay]\nrequire_resume_token = true\n")
    async with running_hub(home, store="sqlite:unsafe") as built:
        relay = relay_of(built)
        bob, again = await relay.agent("bob"), await relay.dial()
        for wrong in (resumption(bob), resumption(bob, resume_token="made up")):
            await again.send(wrong)
            assert (await again.expect("NACK"))["payload"]["code"] == "STALE"
        await again.send(resumption(bob, resume_token=bob.welcome["resume_token"]))
        assert (await again.expect("SYNC"))["payload"]["session_id"] == bob.welcome["session_id"]
        for wire in relay.wires:
            await wire.close()


async def test_a_session_is_resumed_after_a_restart_of_the_hub(folder: Path) -> None:
    async with running_hub(folder / "h") as built:
        relay = relay_of(built)
        bob, deliveries = await chatted(relay, "alice", count=3)
        for wire in relay.wires:
            await wire.close()
    async with running_hub(folder / "h") as built:
        relay = relay_of(built)
        again = await relay.dial()
        await again.send(resumption(bob, {"chat": {"last_seq": 1}}))
        sync = (await again.expect("SYNC"))["payload"]
        assert sync["session_id"] == bob.welcome["session_id"]
        assert await again.settled() == deliveries[1:]
        by_token = await relay.agent("bob", resume_token=sync["resume_token"])
        assert by_token.welcome["session_id"] == bob.welcome["session_id"]
        for wire in relay.wires:
            await wire.close()


async def test_a_resumed_connection_has_the_capabilities_that_its_resume_says(relay: Relay) -> None:
    alice, bob = await relay.agent("alice"), await relay.agent("bob")
    await relay.leave(bob)
    again = await relay.dial()
    await again.send(resumption(bob, capabilities={"ack": True, "max_inflight": 1, "accept": True}))
    await again.expect("SYNC")
    await alice.send(*(said(str(number), "bob") for number in range(3)))
    await alice.silent()
    assert texts(await again.settled()) == ["0"]
    sent = await again.send(said("hello", "alice"))
    assert (await again.expect("ACK"))["payload"]["ack_id"] == sent["id"]


async def test_frames_sent_along_with_hello_do_not_void_the_token_before(relay: Relay) -> None:
    first = await relay.dial()
    token = (await first.hello("alice"))["resume_token"]
    await relay.leave(first)
    second = await relay.dial()
    # The answer with the new token may be lost with the connection, whatever was sent in the meantime.
    await second.send(greeting("alice", resume_token=token), frame("STATUS"))
    await second.expect("WELCOME")
    await second.expect("STATUS_RESPONSE")
    await relay.leave(second)
    third = await relay.dial()
    await third.send(greeting("alice", resume_token=token))
    assert (await third.receive())["type"] == "WELCOME"
