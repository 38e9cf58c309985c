"""Tests of channels: the right to send, and the notices about members that join or leave."""

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import Frame, Wire, frame, said
from tests.server.hubs import take


async def joined(channel: str, *wires: Wire) -> None:
    """Let agents join a channel, and receive the notices about each other."""
    for number, wire in enumerate(wires):
        await wire.send(frame("CHANNEL_JOIN", {"channel": channel}))
        await wire.silent()
        for other in wires[:number]:
            assert (await other.expect("CHANNEL_JOIN"))["from"] == wire.name


async def test_a_channel_message_reaches_the_other_members_and_is_not_given_again(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await joined("#dev", alice, bob)
    said_here = {"channel": "#dev", "body": "standup", "thread": "t-1", "mentions": ["bob"], "data": {"n": 1}}
    await alice.send(frame("CHANNEL_MESSAGE", said_here))
    heard = await bob.expect("CHANNEL_MESSAGE")
    assert (heard["from"], heard["payload"]) == ("alice", said_here)
    await alice.silent()
    await carol.silent()
    await relay.leave(bob)
    await (await relay.agent("bob")).silent()


async def test_whoever_left_a_channel_hears_it_no_more(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await joined("dev", alice, bob)
    await bob.send(frame("CHANNEL_LEAVE", {"channel": "#dev"}))
    await bob.silent()
    assert (await alice.expect("CHANNEL_LEAVE"))["from"] == "bob"
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "x"}))
    await alice.silent()
    await bob.silent()


async def test_joining_and_leaving_are_told_to_the_other_members_who_are_connected(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await joined("#dev", alice)
    await bob.send(frame("CHANNEL_JOIN", {"channel": "dev", "displayName": "Bob the builder"}, sender="mallory"))
    await bob.silent()
    heard = await alice.expect("CHANNEL_JOIN")
    assert (heard["from"], heard["payload"]) == ("bob", {"channel": "#dev", "displayName": "Bob the builder"})
    await bob.send(frame("CHANNEL_LEAVE", {"channel": "#dev", "reason": "lunch"}))
    heard = await alice.expect("CHANNEL_LEAVE")
    assert (heard["from"], heard["payload"]) == ("bob", {"channel": "#dev", "reason": "lunch"})
    for wire in (alice, bob, carol):
        await wire.silent()


async def test_joining_twice_or_leaving_what_one_is_not_in_is_no_news_and_no_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await joined("#dev", alice, bob)
    await bob.send(frame("CHANNEL_JOIN", {"channel": "#dev"}), frame("CHANNEL_LEAVE", {"channel": "#other"}))
    await bob.send(frame("CHANNEL_JOIN", {"channel": "#general"}))
    await bob.silent()
    await alice.silent()


async def test_everybody_is_in_general_from_the_start_and_nobody_can_leave_it(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#general", "body": "hello"}))
    heard = await bob.expect("CHANNEL_MESSAGE")
    assert (heard["from"], heard["payload"]) == ("alice", {"channel": "#general", "body": "hello"})
    assert (await alice.ask("CHANNEL_LEAVE", {"channel": "#general"}))["payload"]["code"] == "FORBIDDEN"


async def test_a_channel_message_comes_from_its_members_alone(relay: Relay) -> None:
    alice, mallory = await relay.agents("alice", "mallory")
    await joined("#dev", alice)
    for body in ("x", "y"):
        refused = await mallory.ask("CHANNEL_MESSAGE", {"channel": "#dev", "body": body})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "FORBIDDEN")
        assert refused["payload"]["fatal"] is False
        # Of a channel that nobody is in no more is said.
        refused = await mallory.ask("CHANNEL_MESSAGE", {"channel": "#nowhere", "body": body})
        assert refused["payload"]["code"] == "FORBIDDEN"
    await alice.silent()
    # A SEND to the topic is open to all: so the specification has it.
    await mallory.send(said("hello", "*", topic="dev"))
    assert (await alice.expect("DELIVER"))["from"] == "mallory"


async def test_a_channel_message_carries_its_kind_and_its_meta_on(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await joined("#dev", alice, bob)
    meta: Frame = {"importance": 7}
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "x", "kind": "action"}, payload_meta=meta))
    heard = await bob.expect("CHANNEL_MESSAGE")
    assert heard["payload"] == {"channel": "#dev", "body": "x", "kind": "action"}
    assert heard["payload_meta"] == meta


async def test_another_member_is_brought_into_a_channel_and_out_of_it_with_permission_alone(relay: Relay) -> None:
    await relay.add("boss", permissions=("members.manage",))
    alice, bob = await relay.agents("alice", "bob")
    await joined("#dev", alice)
    for kind in ("CHANNEL_JOIN", "CHANNEL_LEAVE"):
        refused = await alice.ask(kind, {"channel": "#dev", "member": "bob"})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "FORBIDDEN")
    boss = await relay.agent("boss", token=relay.tokens["boss"])
    await boss.send(frame("CHANNEL_JOIN", {"channel": "#dev", "member": "bob"}))
    for wire in (alice, bob):
        heard = await wire.expect("CHANNEL_JOIN")
        assert (heard["from"], heard["payload"]) == ("boss", {"channel": "#dev", "member": "bob"})
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "welcome"}))
    await bob.expect("CHANNEL_MESSAGE")
    await boss.send(frame("CHANNEL_LEAVE", {"channel": "#dev", "member": "bob"}))
    for wire in (alice, bob):
        assert (await wire.expect("CHANNEL_LEAVE"))["payload"]["member"] == "bob"
    assert (await bob.ask("CHANNEL_MESSAGE", {"channel": "#dev", "body": "x"}))["payload"]["code"] == "FORBIDDEN"
    assert (await boss.ask("CHANNEL_JOIN", {"channel": "#dev", "member": "nobody"}))["payload"]["code"] == "NOT_FOUND"
    assert (await boss.ask("CHANNEL_JOIN", {"channel": "#dev", "member": 7}))["payload"]["code"] == "BAD_REQUEST"


async def test_users_are_all_the_humans_connected_or_not(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    windows = [await relay.agent("ursula", entityType="user") for _ in range(2)]
    away = await relay.agent("ulrich", entityType="user")
    await relay.leave(away)
    await alice.send(said("to the people", "@users"))
    for window in windows:
        heard = await window.expect("DELIVER")
        assert (heard["to"], heard["delivery"]["originalTo"]) == ("ursula", "@users")
    assert await (await relay.agent("ulrich", entityType="user")).bodies(1) == ["to the people"]
    await alice.silent()
    await bob.silent()


async def test_a_user_who_writes_to_users_does_not_hear_itself_and_nobody_is_no_error(relay: Relay) -> None:
    ursula = await relay.agent("ursula", entityType="user")
    await ursula.send(said("anybody?", "@users"))
    await ursula.silent()
    alice = await relay.agent("alice")
    assert (await alice.ask("SUBSCRIBE", topic="users"))["payload"]["code"] == "FORBIDDEN"


async def test_a_channel_of_two_is_for_both_of_them_and_nobody_else(relay: Relay) -> None:
    alice, bob, mallory = await relay.agents("alice", "bob", "mallory")
    pair = "dm:alice:bob"
    for kind in ("CHANNEL_JOIN", "CHANNEL_MESSAGE", "CHANNEL_LEAVE"):
        refused = await mallory.ask(kind, {"channel": pair, "body": "let me in"})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "FORBIDDEN")
    await alice.send(frame("CHANNEL_JOIN", {"channel": pair}))
    for one, other in ((alice, bob), (bob, alice)):
        await one.send(frame("CHANNEL_MESSAGE", {"channel": pair, "body": "between us"}))
        heard = await other.expect("CHANNEL_MESSAGE")
        assert (heard["from"], heard["payload"]) == (one.name, {"channel": pair, "body": "between us"})
    assert (await alice.ask("CHANNEL_MESSAGE", {"channel": "dm:alice:a b", "body": "x"}))["payload"][
        "code"
    ] == "BAD_REQUEST"
    assert (await alice.ask("CHANNEL_JOIN", {"channel": "dm:a:b:c"}))["payload"]["code"] == "FORBIDDEN"
    assert (await alice.ask("CHANNEL_JOIN", {"channel": "dm:alice"}))["payload"]["code"] == "BAD_REQUEST"
    for wire in (alice, bob, mallory):
        await wire.silent()


async def test_a_group_is_for_its_members_and_each_of_them_hears_what_another_says(relay: Relay) -> None:
    alice, bob, carol, mallory = await relay.agents("alice", "bob", "carol", "mallory")
    group = "dm:alice:bob:carol"
    for kind in ("CHANNEL_JOIN", "CHANNEL_MESSAGE", "CHANNEL_LEAVE"):
        refused = await mallory.ask(kind, {"channel": group, "body": "let me in"})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "FORBIDDEN")
    await alice.send(frame("CHANNEL_JOIN", {"channel": group}))
    for one in (alice, bob, carol):
        words = {"channel": group, "body": f"between us, {one.name}", "data": {"n": 1}}
        sent = await one.send(frame("CHANNEL_MESSAGE", words))
        # Said twice under one id, it is told once.
        await one.send(sent)
        await one.silent()
        for other in {alice, bob, carol} - {one}:
            heard = await other.expect("CHANNEL_MESSAGE")
            assert (heard["from"], heard["payload"]) == (one.name, words)
            await other.silent()
    for wire in (alice, mallory):
        await wire.silent()


async def test_a_group_with_a_stranger_in_it_is_refused_and_nobody_is_told(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    for channel, code in (
        ("dm:alice:bob:nobody", "NOT_FOUND"),
        ("dm:alice:bob:Bob", "NOT_FOUND"),
        ("dm:alice:bob:two words", "BAD_REQUEST"),
        (":".join(["dm", "alice", *(f"a-{number}" for number in range(32))]), "BAD_REQUEST"),
    ):
        assert (await alice.ask("CHANNEL_MESSAGE", {"channel": channel, "body": "x"}))["payload"]["code"] == code
    await bob.silent()


async def test_a_member_of_a_group_on_another_wire_gets_a_direct_message_with_a_note(relay: Relay) -> None:
    await relay.add("nina")
    nina, (alice, bob) = await relay.join("nina", receive=True), await relay.agents("alice", "bob")
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "dm:alice:bob:nina", "body": "all three"}))
    await bob.expect("CHANNEL_MESSAGE")
    (heard,) = await take(nina, 1, ack=True)
    assert (heard.message.target, heard.message.body) == ("@nina", "all three")
    assert heard.message.notes == ("said to a group: alice, bob, nina",)
