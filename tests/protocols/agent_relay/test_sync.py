"""Tests of synchronous sends: a sender that waits for its recipient's answer."""

import asyncio
import json

from tests.protocols.agent_relay.relays import MIB, Relay
from tests.protocols.agent_relay.wire import Frame, frame, said
from tests.server.hubs import WAIT_SECONDS


def asking(body: str, to: str, correlation: str | None, timeout_ms: int = 5000, *, blocking: bool = True) -> Frame:
    sync: Frame = {"timeoutMs": timeout_ms, "blocking": blocking}
    if correlation is not None:
        sync["correlationId"] = correlation
    return said(body, to, payload_meta={"sync": sync})


async def test_an_ack_with_the_correlation_id_goes_back_to_the_sender(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    assert delivery["payload_meta"]["sync"]["correlationId"] == "c-1"
    await bob.ack(delivery, correlationId="c-1", response=True, responseData={"status": "ok"})
    ack = await alice.expect("ACK")
    assert (ack["from"], ack["to"]) == ("bob", "alice")
    assert ack["payload"] == {
        "ack_id": delivery["id"],
        "seq": 1,
        "correlationId": "c-1",
        "response": True,
        "responseData": {"status": "ok"},
    }


async def test_an_ack_without_the_correlation_id_completes_nothing(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    await bob.ack(delivery)
    await bob.silent()
    await alice.silent()
    await bob.ack(delivery, correlationId="c-1", response=False)
    assert (await alice.expect("ACK"))["payload"]["response"] is False


async def test_another_agents_ack_with_the_correlation_id_completes_nothing(relay: Relay) -> None:
    alice, bob, mallory = await relay.agents("alice", "bob", "mallory")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    await mallory.send(frame("ACK", {"ack_id": delivery["id"], "correlationId": "c-1", "response": "forged"}))
    await mallory.silent()
    await alice.silent()
    await bob.ack(delivery, correlationId="c-1", response="real")
    assert (await alice.expect("ACK"))["payload"]["response"] == "real"


async def test_no_answer_in_time_is_an_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1", 30))
    error = await alice.expect("ERROR")
    assert error["payload"] == {
        "code": "TIMEOUT",
        "message": "ACK timeout after 30ms",
        "fatal": False,
        "correlationId": "c-1",
    }
    (delivery,) = await bob.deliveries(1)
    await bob.ack(delivery, correlationId="c-1", response="late")
    await bob.silent()
    await alice.silent()


async def test_a_correlation_id_in_use_is_refused(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("one", "bob", "c-1"))
    twice = await alice.send(asking("two", "bob", "c-1"))
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"]) == (twice["id"], "CONFLICT")
    assert error["payload"]["message"] == "Duplicate correlationId: c-1"
    assert await bob.bodies(1) == ["one"]
    await alice.silent()
    await bob.silent()


async def test_agents_who_ask_others_may_use_the_same_correlation_id(relay: Relay) -> None:
    alice, bob, carol, dave = await relay.agents("alice", "bob", "carol", "dave")
    await alice.send(asking("ready?", "bob", "c-1"))
    await carol.send(asking("ready?", "dave", "c-1"))
    for recipient, sender, answer in ((dave, carol, "no"), (bob, alice, "yes")):
        (delivery,) = await recipient.deliveries(1)
        await recipient.ack(delivery, correlationId="c-1", response=answer)
        assert (await sender.expect("ACK"))["payload"]["response"] == answer
    await alice.silent()
    await carol.silent()


async def test_whoever_comes_back_waits_anew_while_its_old_connection_still_drains(relay: Relay) -> None:
    bob, alice = await relay.agent("bob"), await relay.agent("alice", capabilities={"ack": False})
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    # More than the sockets hold, and alice does not read.
    await bob.send(*(said("x" * 500_000, "alice") for _ in range(6)))
    await bob.silent()
    again = await relay.agent("alice", capabilities={"ack": False})
    await again.send(asking("ready?", "bob", "c-1"))
    await bob.deliveries(1)
    await bob.ack(delivery, correlationId="c-1", response="yes")
    assert (await again.expect("ACK"))["payload"]["response"] == "yes"


async def test_a_blocking_send_needs_a_correlation_id_and_one_recipient(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("one", "bob", None))
    error = (await alice.expect("ERROR"))["payload"]
    assert (error["code"], error["message"]) == ("BAD_REQUEST", "Missing sync correlationId for blocking SEND")
    for wrong in (asking("x", "*", "c-1"), asking("x", "#dev", "c-2"), asking("x", "bob", "c-3", 0)):
        await alice.send(wrong)
        assert (await alice.expect("ERROR"))["payload"]["code"] == "BAD_REQUEST"
    await bob.silent()


async def test_a_refused_synchronous_send_waits_for_nothing(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(asking("x", "nobody", "c-1", 20))
    assert (await alice.expect("ERROR"))["payload"]["code"] == "NOT_FOUND"
    await alice.send(asking("x", "alice", "c-1"))
    assert await alice.bodies(1) == ["x"]


async def test_who_waits_for_an_answer_is_told_at_once_that_the_message_is_held(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    operator = await relay.operator()
    await operator.pause_thread("@alice+@bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    error = (await alice.expect("ERROR"))["payload"]
    assert (error["code"], error["correlationId"], error["fatal"]) == ("HELD", "c-1", False)
    assert error["message"].startswith("held: operator paused @alice+@bob")
    await operator.resume_thread("@alice+@bob")
    assert await bob.bodies(1) == ["ready?"]


async def test_a_repeated_synchronous_send_after_a_reconnect_still_times_out(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    sent = await alice.send(asking("ready?", "bob", "c-1", 50))
    (delivery,) = await bob.deliveries(1)
    again = await relay.agent("alice")
    await again.send(sent)
    assert (await again.expect("ERROR"))["payload"]["code"] == "TIMEOUT"
    await again.silent()
    assert delivery["payload"]["body"] == "ready?"
    await bob.silent()


async def test_a_non_blocking_sync_is_answered_the_same_way(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1", blocking=False))
    (delivery,) = await bob.deliveries(1)
    await bob.ack(delivery, correlationId="c-1", response="yes")
    assert (await alice.expect("ACK"))["payload"]["response"] == "yes"


async def test_an_answer_that_no_frame_has_room_for_is_an_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    answer = frame("ACK", {"ack_id": delivery["id"], "correlationId": "c-1", "responseData": ""}, id="")
    answer["payload"]["responseData"] = "x" * (MIB - len(json.dumps(answer)))
    await bob.send(answer)
    error = (await alice.expect("ERROR"))["payload"]
    assert (error["code"], error["correlationId"], error["fatal"]) == ("TOO_LARGE", "c-1", False)


async def test_an_agent_waits_for_a_limited_number_of_answers(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(*(asking("?", "alice", f"c-{number}") for number in range(1025)))
    frames = await alice.settled()
    assert [one["payload"]["code"] for one in frames if one["type"] == "ERROR"] == ["BUSY"]
    await alice.send(asking("?", "alice", "x" * 1025))
    async with asyncio.timeout(WAIT_SECONDS):
        while (heard := await alice.receive())["type"] != "ERROR":
            pass
    assert heard["payload"]["code"] == "BAD_REQUEST"


async def test_nobody_waits_any_more_when_the_sender_is_gone(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    await relay.leave(alice)
    await bob.ack(delivery, correlationId="c-1", response="yes")
    await bob.silent()
    again = await relay.agent("alice")
    await again.silent()
    await again.send(asking("again?", "bob", "c-1"))
    assert await bob.bodies(1) == ["again?"]
