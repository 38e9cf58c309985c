"""Tests of the handshake: the rights to open a session and to use a name, and frames before and after it."""

from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_relay.relays import Relay, relay_of, running
from tests.protocols.agent_relay.wire import Frame, frame, greeting, said
from tests.server.hubs import running_hub


async def test_hello_is_answered_by_welcome(relay: Relay) -> None:
    alice = await relay.dial()
    await alice.send(greeting("alice"))
    welcome = await alice.receive()
    assert (welcome["v"], welcome["type"]) == (1, "WELCOME")
    assert isinstance(welcome["id"], str)
    assert isinstance(welcome["ts"], int)
    payload = welcome["payload"]
    assert payload.keys() == {"session_id", "resume_token", "server"}
    assert payload["session_id"]
    assert payload["resume_token"]
    assert payload["server"] == {"max_frame_bytes": 1048576, "heartbeat_ms": 5000}


async def test_frames_sent_right_behind_hello_are_heard(relay: Relay) -> None:
    bob = await relay.agent("bob")
    alice = await relay.dial()
    await alice.send(greeting("alice"), said("one", "bob"), said("two", "bob"))
    await alice.expect("WELCOME")
    assert await bob.bodies(2) == ["one", "two"]


async def test_whoever_says_hello_and_send_and_hangs_up_is_heard(relay: Relay) -> None:
    bob = await relay.agent("bob")
    for number in range(5):
        wire = await relay.dial()
        await wire.send(greeting("alice"), said(str(number), "bob"), said("and", "bob"))
        await wire.close()
        assert await bob.bodies(2) == [str(number), "and"]


async def test_whoever_says_all_at_once_and_then_only_listens_is_answered(relay: Relay) -> None:
    bob, wire = await relay.agent("bob"), await relay.dial()
    await wire.send(greeting("alice"), frame("STATUS"), said("one", "bob"), frame("STATUS"), said("two", "bob"))
    wire.writer.write_eof()
    for kind in ("WELCOME", "STATUS_RESPONSE", "STATUS_RESPONSE"):
        await wire.expect(kind)
    await wire.ended()
    assert await bob.bodies(2) == ["one", "two"]


async def test_no_id_of_the_hub_comes_again_after_a_restart(folder: Path) -> None:
    ids = set()
    for _ in range(2):
        async with running(folder / "h") as relay:
            wire = await relay.dial()
            await wire.send(greeting("alice"))
            ids.add((await wire.expect("WELCOME"))["id"])
    assert len(ids) == 2


async def test_send_before_hello_is_refused_and_the_connection_stays(relay: Relay) -> None:
    alice = await relay.dial()
    await alice.send(said("too early", "alice"))
    error = await alice.expect("ERROR")
    assert error["payload"] == {"code": "BAD_REQUEST", "message": "Not in ACTIVE state", "fatal": False}
    await alice.hello("alice")
    await alice.silent()


async def test_a_second_hello_is_refused_and_the_session_goes_on(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(greeting("mallory"))
    error = await alice.expect("ERROR")
    assert error["payload"] == {"code": "BAD_REQUEST", "message": "Unexpected HELLO", "fatal": False}
    await alice.send(said("to myself", "alice"))
    (delivery,) = await alice.deliveries(1)
    assert delivery["from"] == "alice"


@pytest.mark.parametrize("name", ["", "two words", "a/b", "*", None, 7])
async def test_a_bad_name_is_refused(relay: Relay, name: Any) -> None:
    wire = await relay.dial()
    await wire.send(greeting(name))
    assert (await wire.failed())["code"] == "BAD_REQUEST"


async def test_the_newest_connection_of_a_name_wins(relay: Relay) -> None:
    old = await relay.agent("alice")
    new = await relay.agent("alice")
    assert (await old.failed())["code"] == "DUPLICATE_CONNECTION"
    bob = await relay.agent("bob")
    await bob.send(said("hi", "alice"))
    assert await new.bodies(1) == ["hi"]


async def test_a_user_may_hold_several_connections(relay: Relay) -> None:
    windows = [await relay.agent("ursula", entityType="user") for _ in range(2)]
    bob = await relay.agent("bob")
    await bob.send(said("hi", "ursula"))
    assert [await window.bodies(1) for window in windows] == [["hi"], ["hi"]]


async def test_a_name_owned_by_a_token_is_refused_without_it(relay: Relay) -> None:
    await relay.add("carol")
    for wrong in ({}, {"token": "x" * 32}):
        thief = await relay.dial()
        await thief.send(greeting("carol", **wrong))
        assert (await thief.failed())["code"] == "UNAUTHORIZED"


async def test_a_name_owned_by_a_token_is_given_to_whoever_shows_it(relay: Relay) -> None:
    await relay.add("carol", "dave")
    carol = await relay.agent("carol", token=relay.tokens["carol"])
    await carol.silent()
    other = await relay.dial()
    await other.send(greeting("dave", token=relay.tokens["carol"]))
    assert (await other.failed())["code"] == "UNAUTHORIZED"


async def test_bye_is_answered_by_bye_and_the_end(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("BYE", {"reason": "done"}))
    await alice.expect("BYE")
    await alice.ended()


async def test_a_hub_that_stops_says_so_and_goodbye(folder: Path) -> None:
    async with running_hub(folder / "h", store="sqlite:unsafe") as built:
        alice = await relay_of(built).agent("alice")
    # Not fatal: the existing client takes a fatal ERROR as advice never to come back.
    assert (await alice.failed(fatal=False))["code"] == "SHUTTING_DOWN"
    await alice.close()


async def test_welcome_tells_the_limits_in_force(folder: Path) -> None:
    async with running(folder / "h", "[agent_relay]\nheartbeat_ms = 700\nframe_bytes_max = 20000\n") as relay:
        alice = await relay.agent("alice")
        assert alice.welcome["server"] == {"max_frame_bytes": 20000, "heartbeat_ms": 700}
        await alice.raw((20001).to_bytes(4, "big"))
        assert (await alice.failed())["code"] == "TOO_LARGE"


async def test_what_is_kept_for_the_relay_itself_is_no_name_and_no_target(relay: Relay) -> None:
    for name, code in (("_router", "BAD_REQUEST"), ("users", "FORBIDDEN"), ("all", "FORBIDDEN")):
        wire = await relay.dial()
        await wire.send(greeting(name))
        assert (await wire.failed())["code"] == code
    alice = await relay.agent("alice")
    for name in ("_router", "_consensus", "@_router"):
        sent = await alice.send(said("x", name))
        error = await alice.expect("ERROR")
        assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (sent["id"], "FORBIDDEN", False)
    await alice.silent()


@pytest.mark.parametrize(
    "odd",
    [
        {"capabilities": []},
        {"capabilities": "all"},
        {"agent": ["alice"]},
        {"token": 7},
        {"session": "s-1"},
        {"session": {"resume_token": 7}},
    ],
)
async def test_a_hello_in_the_wrong_form_ends_the_connection(relay: Relay, odd: Frame) -> None:
    wire = await relay.dial()
    await wire.send(greeting("alice", **odd))
    assert (await wire.failed())["code"] == "BAD_REQUEST"


async def test_capabilities_may_be_left_out(relay: Relay) -> None:
    wire = await relay.dial()
    await wire.send(frame("HELLO", {"agent": "alice"}))
    await wire.expect("WELCOME")
    await wire.silent()


async def test_who_never_says_hello_is_hung_up_on(folder: Path) -> None:
    config = "[agent_relay]\nheartbeat_ms = 200\n[limits]\nhello_ms = 100\n"
    async with running(folder / "h", config) as relay:
        silent = await relay.dial()
        assert (await silent.failed())["code"] == "UNAUTHORIZED"


async def test_an_agent_that_says_what_it_runs_is_announced_to_the_others(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob", cli="claude", task="tests")
    ready = (await alice.until_ready("bob"))["payload"]
    assert isinstance(ready.pop("connectedAt"), int)
    assert ready == {"name": "bob", "cli": "claude", "task": "tests"}
    await bob.silent()
    # Taking a session up again is no news.
    await relay.agent("bob", cli="claude", resume_token=bob.welcome["resume_token"])
    await alice.silent()
    assert len(alice.ready) == 1
