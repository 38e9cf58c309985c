"""Tests of heartbeats: the hub sends a PING to silent clients, and drops those that do not answer."""

import asyncio

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import frame
from tieline.protocols.agent_relay.pulse import Pulse, Verdict


async def test_a_ping_is_answered_by_a_pong_with_its_nonce(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("PING", {"nonce": "n-1"}))
    assert (await alice.expect("PONG"))["payload"] == {"nonce": "n-1"}


async def test_an_idle_client_is_pinged_and_one_that_answers_stays(brisk: Relay) -> None:
    alice = await brisk.agent("alice")
    assert alice.welcome["server"]["heartbeat_ms"] == 100
    nonces = set()
    for _ in range(4):
        ping = await alice.expect("PING")
        nonces.add(ping["payload"]["nonce"])
        await alice.send(frame("PONG", ping["payload"]))
    assert len(nonces) == 4


async def test_any_frame_counts_as_life(brisk: Relay) -> None:
    alice = await brisk.agent("alice")
    for _ in range(4):
        await alice.expect("PING")
        await alice.send(frame("NEVER_HEARD_OF"))
    await alice.silent()


async def test_a_client_that_never_answers_is_dropped_after_two_heartbeats(brisk: Relay) -> None:
    alice, silent = await brisk.agent("alice"), await brisk.dial()
    started = asyncio.get_running_loop().time()
    await alice.expect("PING")
    await alice.ended()
    assert asyncio.get_running_loop().time() - started >= 0.1
    await silent.ended()


# The rule itself, without a clock.


def test_a_client_is_asked_once_it_was_silent_for_a_heartbeat_and_dead_after_two() -> None:
    pulse = Pulse(1000, now=10.0)
    assert pulse.check(10.9) is Verdict.ALIVE
    assert pulse.check(11.0) is Verdict.SILENT
    assert pulse.check(11.9) is Verdict.ALIVE, "it is asked once"
    assert pulse.check(12.0) is Verdict.DEAD


def test_a_client_that_speaks_is_never_asked() -> None:
    pulse = Pulse(1000, now=0.0)
    for step in range(1, 100):
        assert pulse.check(step * 0.5) is Verdict.ALIVE
        pulse.heard(step * 0.5)


def test_a_client_that_answers_is_asked_again_after_the_next_silence() -> None:
    pulse = Pulse(1000, now=0.0)
    for step in range(1, 10):
        assert pulse.check(step * 1.1) is Verdict.SILENT
        pulse.heard(step * 1.1)
