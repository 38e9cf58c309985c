"""Tests of shadows: agents that get copies of another agent's messages, and their limits."""

import asyncio

import pytest

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import Frame, Wire, frame, said
from tests.server.hubs import WAIT_SECONDS
from tieline.contract.refusal import Code

MARKS = {"_shadowCopy": True, "_shadowOf": "bob"}
INCOMING = MARKS | {"_shadowDirection": "incoming"}
OUTGOING = MARKS | {"_shadowDirection": "outgoing"}


async def bound(shadow: Wire, primary: str, **options: object) -> None:
    """Let a connection shadow the agent `primary`, and wait until the hub has done it."""
    await shadow.send(frame("SHADOW_BIND", {"primaryAgent": primary} | options))
    await shadow.silent()


async def copies(shadow: Wire) -> list[tuple[str, str, str]]:
    """Return sender, body and direction of each copied message that a shadow got and has not read."""
    return [
        (one["from"], one["payload"]["body"], one["payload"]["data"]["_shadowDirection"])
        for one in await shadow.settled()
    ]


async def test_a_shadow_is_shown_what_its_primary_hears(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    await bound(shadow, "bob")
    await alice.send(frame("SEND", {"body": "one", "data": {"n": 1}, "thread": "t"}, to="bob", topic="chat"))
    (delivery,) = await bob.deliveries(1)
    copy = await shadow.expect("DELIVER")
    assert (copy["from"], copy["to"], copy["topic"]) == ("alice", "shadow", "chat")
    assert copy["payload"] == {"kind": "message", "body": "one", "data": {"n": 1} | INCOMING, "thread": "t"}
    assert copy["delivery"] == {"seq": 0, "session_id": shadow.welcome["session_id"], "originalTo": "bob"}
    assert delivery["payload"]["data"] == {"n": 1}, "the primary sees nothing of it"
    await alice.silent()


async def test_a_shadow_is_shown_what_its_primary_says(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    await bound(shadow, "bob")
    sent = said("two", "alice", topic="chat")
    await bob.send(sent, said("lost", "nobody"), sent)
    await bob.expect("ERROR")
    (copy,) = await shadow.settled()
    assert (copy["from"], copy["to"], copy["payload"]["data"]) == ("bob", "shadow", OUTGOING)
    assert copy["delivery"]["originalTo"] == "alice"
    assert await alice.bodies(1) == ["two"]


async def test_broadcasts_and_channel_messages_are_shown_too(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    for wire in (alice, bob):
        await wire.send(frame("CHANNEL_JOIN", {"channel": "#dev"}))
        await wire.settled()
    await bound(shadow, "bob")
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "standup"}))
    await alice.settled()
    await bob.settled()
    await bob.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "here"}))
    await bob.silent()
    assert await copies(shadow) == [("alice", "standup", "incoming"), ("bob", "here", "outgoing")]


async def test_a_copy_says_whom_the_message_was_for(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    for wire in (alice, bob):
        await wire.send(frame("CHANNEL_JOIN", {"channel": "#dev"}))
        await wire.settled()
    await bound(shadow, "bob", receiveOutgoing=False)
    await alice.send(
        frame("SEND", {"body": "direct", "channel": "#other"}, to="bob"),
        said("to the channel", "#dev"),
        frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "in the channel"}),
        said("to all", "*"),
    )
    await bob.settled()
    shown = await shadow.deliveries(5)
    originals = {
        one["payload"]["body"]: one["delivery"]["originalTo"] for one in shown if "originalTo" in one["delivery"]
    }
    assert originals == {"direct": "bob", "to the channel": "#dev", "in the channel": "#dev", "to all": "*"}


async def test_a_shadow_chooses_its_directions(relay: Relay) -> None:
    alice, bob, ear, mouth = await relay.agents("alice", "bob", "ear", "mouth")
    await bound(ear, "bob", receiveOutgoing=False)
    await bound(mouth, "bob", receiveIncoming=False)
    await alice.send(said("to bob", "bob"))
    await bob.deliveries(1)
    await bob.send(said("to alice", "alice"))
    await bob.silent()
    assert await copies(ear) == [("alice", "to bob", "incoming")]
    assert await copies(mouth) == [("bob", "to alice", "outgoing")]


async def test_what_a_shadow_says_or_is_told_itself_is_not_copied_to_it(relay: Relay) -> None:
    bob, shadow = await relay.agents("bob", "shadow")
    await bound(shadow, "bob")
    await shadow.send(said("from the shadow", "bob"))
    await bob.deliveries(1)
    await bob.send(said("to the shadow", "shadow"))
    await bob.silent()
    (only,) = await shadow.settled()
    assert only["payload"] == {"kind": "message", "body": "to the shadow"}


async def test_a_copy_is_no_delivery(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    await bound(shadow, "bob")
    await alice.send(said("one", "bob"))
    await bob.deliveries(1)
    copy = await shadow.expect("DELIVER")
    await shadow.ack(copy)
    await shadow.silent()
    assert (await shadow.ask("INBOX"))["payload"]["messages"] == []
    again = await relay.agent("shadow")
    await again.silent()
    # A new connection shadows nobody.
    await alice.send(said("two", "bob"))
    await bob.deliveries(1)
    await again.silent()


async def test_a_shadow_is_shown_nothing_any_more_once_it_unbinds(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    await bound(shadow, "bob")
    await shadow.send(frame("SHADOW_UNBIND", {"primaryAgent": "bob"}), frame("SHADOW_UNBIND", {"primaryAgent": 7}))
    await shadow.silent()
    await alice.send(said("one", "bob"))
    await bob.deliveries(1)
    await shadow.silent()


async def test_a_name_that_belongs_to_a_token_is_shadowed_with_permission_alone(relay: Relay) -> None:
    await relay.add("bob")
    await relay.add("auditor", permissions=("messages.shadow",))
    stranger = await relay.agent("stranger")
    refused = await stranger.ask("SHADOW_BIND", {"primaryAgent": "bob"})
    assert (refused["type"], refused["payload"]["code"], refused["payload"]["fatal"]) == ("ERROR", "FORBIDDEN", False)
    (row,) = await relay.refusals(Code.FORBIDDEN)
    assert (row.speaker, row.what) == ("stranger", "SHADOW_BIND")
    auditor = await relay.agent("auditor", token=relay.tokens["auditor"])
    await bound(auditor, "bob")
    bob = await relay.agent("bob", token=relay.tokens["bob"])
    alice = await relay.agent("alice")
    await alice.send(said("secret", "bob"))
    await bob.deliveries(1)
    assert await copies(auditor) == [("alice", "secret", "incoming")]
    await stranger.silent()


async def test_a_name_that_gets_a_token_later_is_not_shown_to_whoever_waited_for_it(relay: Relay) -> None:
    stranger = await relay.agent("stranger")
    await bound(stranger, "bob", speakOn=["SESSION_END"])
    await relay.add("bob")
    bob = await relay.agent("bob", token=relay.tokens["bob"])
    alice = await relay.agent("alice")
    await alice.send(said("secret", "bob"))
    await bob.deliveries(1)
    await bob.send(said("secret too", "alice"))
    await alice.deliveries(1)
    await relay.leave(bob)
    await stranger.silent()


async def test_a_shadow_that_asked_for_it_is_told_when_its_primary_is_gone(relay: Relay) -> None:
    bob, end, every, never = await relay.agents("bob", "end", "every", "never")
    await bound(end, "bob", speakOn=["SESSION_END"])
    await bound(every, "bob", speakOn=["ALL_MESSAGES"])
    await bound(never, "bob")
    again = await relay.agent("bob")
    assert (await bob.failed())["code"] == "DUPLICATE_CONNECTION"
    for shadow in (end, every, never):
        await shadow.silent()
    await relay.leave(again)
    for shadow in (end, every):
        told = await shadow.expect("DELIVER")
        assert (told["from"], told["payload"]["kind"]) == ("bob", "action")
        assert told["payload"]["body"] == "SHADOW_TRIGGER:SESSION_END"
        assert told["payload"]["data"] == {"_shadowTrigger": "SESSION_END", "_shadowOf": "bob"}
    await never.silent()


async def test_a_shadow_needs_a_primary_and_has_a_limited_number_of_them(relay: Relay) -> None:
    shadow = await relay.agent("shadow")
    wrong: list[Frame] = [{}, {"primaryAgent": 7}, {"primaryAgent": "two words"}, {"primaryAgent": "shadow"}]
    for payload in wrong:
        assert (await shadow.ask("SHADOW_BIND", payload))["payload"]["code"] == "BAD_REQUEST"
    for number in range(64):
        await bound(shadow, f"primary-{number}")
    assert (await shadow.ask("SHADOW_BIND", {"primaryAgent": "one-more"}))["payload"]["code"] == "BAD_REQUEST"
    await bound(shadow, "primary-7")


@pytest.mark.slow
async def test_a_shadow_that_does_not_read_misses_copies_and_keeps_nobody_waiting(relay: Relay) -> None:
    alice, bob, shadow = await relay.agents("alice", "bob", "shadow")
    await bound(shadow, "bob")
    large = "x" * 900_000
    for number in range(30):
        await alice.send(said(f"{number} {large}", "bob"))
        await bob.ack(await bob.expect("DELIVER"))
    await alice.send(said("end", "shadow"))
    seen = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while (await shadow.expect("DELIVER"))["payload"]["body"] != "end":
            seen += 1
    assert 0 < seen < 30
    await bob.silent()


async def test_what_a_primary_hears_on_another_wire_is_not_shadowed(relay: Relay) -> None:
    await relay.add("nina")
    await relay.add("auditor", permissions=("messages.shadow",))
    auditor = await relay.agent("auditor", token=relay.tokens["auditor"])
    await bound(auditor, "nina")
    nina = await relay.join("nina", receive=True)
    alice = await relay.agent("alice")
    await alice.send(said("there", "nina"))
    await nina.send("@alice", "and back")
    await alice.deliveries(1)
    await auditor.silent()
