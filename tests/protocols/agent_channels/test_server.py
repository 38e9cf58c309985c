"""Tests of the hub's channel sockets: their messages are durable, and pass from and to every other protocol."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.protocols.agent_channels.scene import Scene
from tests.protocols.agent_channels.sockets import Peer
from tests.server.hubs import bodies, running_hub, take, until
from tieline.client import HubRefused
from tieline.contract.identifiers import MemberName
from tieline.contract.refusal import Code
from tieline.contract.target import to_member
from tieline.protocols.agent_channels import server
from tieline.protocols.agent_channels.codec import Message, encode
from tieline.wire import session_pump


async def hears_nothing(scene: Scene, peer: Peer) -> None:
    """Check that a client gets no message, after the hub has handled all messages so far."""
    await scene.operator_client.members()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await peer.receive()


# Channels


async def test_a_post_becomes_a_durable_message_for_subscribers_and_reaches_the_other_clients_alone(
    scene: Scene,
) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    poster, other = await scene.dial("dev"), await scene.dial("dev")
    await poster.send({"msg": "hello", "data": {"n": 1}})
    (delivery,) = await take(alice, 1)
    message = delivery.message
    assert (message.body, message.data, message.target) == ("hello", {"n": 1}, "#dev")
    assert (message.sender, message.verified, message.protocol) == ("client-0@dev", False, "agent-channels")
    assert await other.receive() == Message("hello", {"n": 1})
    await hears_nothing(scene, poster)
    assert [said.body for said in await alice.history("#dev")] == ["hello"]


async def test_a_writer_that_hangs_up_at_once_is_heard_all_the_same(scene: Scene) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    other = await scene.dial("dev")
    for name in ("dev", "inbox-alice", "general"):
        writer = await scene.dial(name)
        await writer.send({"msg": f"first on {name}", "data": {}}, {"msg": f"second on {name}", "data": {}})
        writer.close()
    heard = bodies(await take(alice, 6))
    assert sorted(heard) == sorted(
        f"{n} on {name}" for name in ("dev", "inbox-alice", "general") for n in ("first", "second")
    )
    assert await other.texts(2) == ["first on dev", "second on dev"]
    async with asyncio.timeout(10):
        while any("agent-channels" in member.sessions for member in await scene.operator_client.members()):
            pass


async def test_of_all_clients_with_half_a_frame_the_one_that_holds_most_is_hung_up_on(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\nunfinished_bytes_max = 1000000\n")
    async with running_hub(folder) as there:
        await there.add("alice")
        assert there.running.places["channels_dir"] is not None
        inbox = Path(there.running.places["channels_dir"]) / "inbox-alice.sock"
        await until(inbox.exists)
        large, small = await Peer.unix(inbox), await Peer.unix(inbox)
        half = encode(Message("x" * 800_000))
        unfinished = there.hub.unfinished
        assert unfinished is not None
        await small.send(half[:400_000])
        await until(lambda: unfinished.size == 400_000)
        large.writer.write(half[:700_000])
        await large.closed()
        assert unfinished.size == 400_000
        await small.send(half[400_000:])
        await until(lambda: unfinished.size == 0)
        for peer in (small, large):
            peer.close()


async def test_posts_of_one_client_arrive_in_order(scene: Scene) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    poster, other = await scene.dial("dev"), await scene.dial("dev")
    await poster.send(*({"msg": str(number), "data": {}} for number in range(300)))
    expected = [str(number) for number in range(300)]
    assert await other.texts(300) == expected
    assert bodies(await take(alice, 300, ack=True)) == expected


async def test_what_is_said_on_another_protocol_reaches_the_socket_with_its_sender_stamped(scene: Scene) -> None:
    alice, bob = await scene.join("alice"), await scene.join("bob")
    await alice.subscribe("dev")
    await bob.subscribe("dev")
    client = await scene.dial("dev")
    forged = {"from": "mallory", "tieline": {"id": "forged"}, "kept": [1]}
    sent = await alice.send("#dev", "hello", data=forged, thread="t1", title="a title")
    heard = await client.receive()
    assert heard.msg == "hello"
    assert heard.data is not None
    assert heard.data["from"] == "alice"
    assert heard.data["kept"] == [1]
    stamp = heard.data["tieline"]
    assert (stamp["id"], stamp["target"], stamp["protocol"]) == (sent.id, "#dev", "tieline")
    assert (stamp["thread"], stamp["title"]) == ("t1", "a title")


async def test_everybody_is_heard_on_the_general_socket_and_a_post_there_reaches_all_members(scene: Scene) -> None:
    alice, bob = await scene.join("alice", receive=True), await scene.join("bob", receive=True)
    general, other = await scene.dial("general"), await scene.dial("general")
    await alice.send("*", "to everybody")
    await alice.send("#general", "to general")
    assert await general.texts(2) == ["to everybody", "to general"]
    await general.send({"msg": "from the socket", "data": {}})
    assert bodies(await take(alice, 1)) == ["from the socket"]
    assert bodies(await take(bob, 3)) == ["to everybody", "to general", "from the socket"]
    assert await other.texts(3) == ["to everybody", "to general", "from the socket"]
    await hears_nothing(scene, general)


async def test_a_channel_socket_never_replays(scene: Scene) -> None:
    alice, bob = await scene.join("alice"), await scene.join("bob")
    await alice.subscribe("dev")
    await bob.subscribe("dev")
    await scene.dial("dev")
    await alice.send("#dev", "before")
    late = await scene.dial("dev")
    await until(lambda: scene.server._places["dev"].channel.client_count == 2)
    await alice.send("#dev", "after")
    assert (await late.receive()).msg == "after"


async def test_keys_beside_msg_and_data_survive_from_socket_to_socket(scene: Scene) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    poster, other = await scene.dial("dev"), await scene.dial("dev")
    await poster.send({"msg": "hello", "data": {}, "id": "x1", "nested": {"a": [1, None]}})
    heard = await other.receive()
    assert heard.extra == {"id": "x1", "nested": {"a": [1, None]}}
    assert bodies(await take(alice, 1)) == ["hello"]
    listener = await scene.listener("bob")
    writer = await scene.dial("inbox-bob")
    await writer.send({"msg": "mail", "data": {}, "id": "x2"})
    assert (await listener.receive()).extra == {"id": "x2"}


async def test_a_members_name_claimed_in_the_data_is_taken_away(scene: Scene) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    poster = await scene.dial("dev")
    listener = await scene.dial("dev")
    await poster.send({"msg": "I am bob", "data": {"from": "bob", "tieline": {"id": "forged"}, "n": 1}, "from": "bob"})
    assert (await listener.receive()).data == {"from": "client-0@dev", "n": 1}
    (delivery,) = await take(alice, 1)
    assert delivery.message.sender == "client-0@dev"
    assert not delivery.message.verified
    assert delivery.message.data == {"from": "client-0@dev", "n": 1}
    assert delivery.message.notes == ("claimed to be bob", "for agent-channels alone: from")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@client-0@dev", "who are you?")
    assert caught.value.code is Code.INVALID_NAME


# Inboxes


async def test_a_post_on_an_inbox_reaches_the_member_and_its_listener_and_not_the_poster(scene: Scene) -> None:
    bob = await scene.join("bob", receive=True)
    listener = await scene.listener("bob")
    poster = await scene.dial("inbox-bob")
    await poster.send({"msg": "hello", "data": {"n": 1}})
    assert await listener.receive() == Message("hello", {"n": 1})
    (delivery,) = await take(bob, 1)
    assert (delivery.message.target, delivery.message.sender) == ("@bob", "client-1@inbox-bob")
    await hears_nothing(scene, poster)


async def test_a_listener_receives_what_others_say_to_its_member_wherever_they_say_it(scene: Scene) -> None:
    alice = await scene.join("alice")
    listener = await scene.listener("bob")
    bob = await scene.join("bob")
    await bob.subscribe("dev")
    await alice.send("@bob", "direct", data={"from": "mallory"})
    await alice.send("*", "everybody")
    await alice.send("#dev", "channel")
    heard = [await listener.receive() for _ in range(3)]
    assert [message.msg for message in heard] == ["direct", "everybody", "channel"]
    assert {(message.data or {})["from"] for message in heard} == {"alice"}


async def test_what_was_not_offered_yet_is_replayed_once(scene: Scene) -> None:
    alice = await scene.join("alice")
    sent = [await alice.send("@bob", str(number)) for number in range(3)]
    first = await scene.listener("bob")
    assert await first.texts(3) == ["0", "1", "2"]
    async with asyncio.timeout(10):
        while (await alice.receipts(sent[2].id))[0].state != "offered":
            pass
    (receipt,) = await alice.receipts(sent[2].id)
    assert receipt.steps[-1].protocol == "agent-channels"
    first.close()
    async with asyncio.timeout(10):
        while await scene.listeners("bob"):
            pass
    second = await scene.listener("bob")
    await alice.send("@bob", "new")
    assert (await second.receive()).msg == "new"


async def test_a_message_that_comes_while_a_client_is_still_silent_is_heard_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LISTEN_SECONDS", 60)
    alice = await scene.join("alice")
    peer = await scene.dial("inbox-bob")
    clients = scene.server._places["inbox-bob"]._clients
    await until(lambda: bool(clients))
    await alice.send("@bob", "early")
    (client,) = clients.values()
    assert client._timer is not None
    client._timer.cancel()
    client._listen()
    async with asyncio.timeout(10):
        while not await scene.listeners("bob"):
            pass
    await alice.send("@bob", "late")
    assert await peer.texts(2) == ["early", "late"]


async def test_a_writer_hears_what_is_new_from_its_connection_on_and_does_not_use_up_the_mail(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LISTEN_SECONDS", 60)
    alice = await scene.join("alice")
    await alice.send("@bob", "old")
    writer = await scene.dial("inbox-bob")
    await until(lambda: bool(scene.server._places["inbox-bob"]._clients))
    await alice.send("@bob", "before its first words")
    await writer.send({"msg": "written", "data": {}})
    await until(lambda: scene.hub.local_hub is not None and scene.hub.local_hub.counters.accepted == 3)
    await alice.send("@bob", "after")
    assert await writer.texts(2) == ["before its first words", "after"]
    monkeypatch.undo()
    listener = await scene.listener("bob")
    assert await listener.texts(4) == ["old", "before its first words", "written", "after"]


async def test_a_listener_that_speaks_does_not_hear_itself_and_its_words_stay_for_the_next(scene: Scene) -> None:
    alice = await scene.join("alice")
    listener = await scene.listener("bob")
    await listener.send({"msg": "to myself", "data": {}})
    await until(lambda: scene.hub.local_hub is not None and scene.hub.local_hub.counters.accepted == 1)
    await alice.send("@bob", "from alice")
    assert (await listener.receive()).msg == "from alice"
    second = await scene.listener("bob")
    assert (await second.receive()).msg == "to myself"


@pytest.mark.slow
async def test_a_large_backlog_is_replayed_whole_to_a_client_that_reads(scene: Scene) -> None:
    alice = await scene.join("alice")
    large = "x" * 1_000_000
    for number in range(80):
        await alice.send("@bob", f"{number} {large}")
    listener = await scene.listener("bob")
    heard = await listener.texts(80)
    assert [text.partition(" ")[0] for text in heard] == [str(number) for number in range(80)]


async def test_an_acknowledgement_elsewhere_ends_a_delivery_for_the_inbox_too(scene: Scene) -> None:
    alice, bob = await scene.join("alice"), await scene.join("bob", receive=True)
    await alice.send("@bob", "taken")
    bob.ack((await take(bob, 1))[0])
    await alice.send("@bob", "left")
    async with asyncio.timeout(10):
        while len((await bob.inbox()).items) != 1:
            pass
    await bob.close()
    listener = await scene.listener("bob")
    await alice.send("@bob", "new")
    # "left" was offered to the other session, so it is not replayed here.
    assert (await listener.receive()).msg == "new"


async def test_a_sender_is_told_that_a_listener_can_never_acknowledge(scene: Scene) -> None:
    alice = await scene.join("alice")
    await scene.listener("bob")
    sent = await alice.send("@bob", "hello")
    with pytest.raises(HubRefused) as caught:
        await alice.follow(sent.id)
    assert caught.value.code is Code.NEVER_ACKNOWLEDGED
    assert "agent-channels" in str(caught.value)


# Bad input

BAD_INPUT = {
    "no bytes": b"\0\0\0\0",
    "too many bytes": (16 * 1024 * 1024 + 1).to_bytes(4, "big") + b"x",
    "not JSON": b"\0\0\0\x05hello",
    "an array": b"\0\0\0\x02[]",
    "no text": b'\0\0\0\x0b{"data":{}}',
    "data that is an array": b'\0\0\0\x16{"msg":"x","data":[1]}',
}


@pytest.mark.parametrize("bad", BAD_INPUT.values(), ids=BAD_INPUT.keys())
@pytest.mark.parametrize("name", ["general", "inbox-bob"])
async def test_bad_input_disconnects_that_client_alone_and_the_hub_logs_it(scene: Scene, name: str, bad: bytes) -> None:
    bob = await scene.join("bob", receive=True)
    broken, good = await scene.dial(name), await scene.dial(name)
    with capture_logs() as logs:
        await broken.send({"msg": "before", "data": {}}, bad)
        await broken.closed()
        await until(lambda: any(entry["event"] == "a client was disconnected" for entry in logs))
    (entry,) = [entry for entry in logs if entry["event"] == "a client was disconnected"]
    assert entry["place"] == name
    await good.send({"msg": "after", "data": {}})
    assert bodies(await take(bob, 2)) == ["before", "after"], "what came before the bad input counts"


async def test_half_a_frame_and_then_silence_delays_nobody(scene: Scene) -> None:
    bob = await scene.join("bob", receive=True)
    stuck, good = await scene.dial("general"), await scene.dial("general")
    await stuck.send(encode({"msg": "never finished", "data": {}})[:-1])
    await good.send({"msg": "hello", "data": {}})
    assert bodies(await take(bob, 1)) == ["hello"]
    assert (await stuck.receive()).msg == "hello"


async def test_a_post_that_the_store_fails_at_is_kept_when_it_works_again_though_the_writer_is_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(session_pump, "RETRY_SECONDS", 0.05)
    bob = await scene.join("bob", receive=True)
    writer = await scene.dial("inbox-bob")
    local_hub = scene.hub.local_hub
    assert local_hub is not None
    with capture_logs() as logs:
        with monkeypatch.context() as patch:
            patch.setattr(local_hub._broker.store, "commit", fail)
            for number in range(3):
                await writer.send({"msg": f"{number}"})
            await until(lambda: local_hub.health.faults > 0)
            writer.close()
        assert bodies(await take(bob, 3)) == ["0", "1", "2"]
    assert [entry for entry in logs if entry["event"] == "a post was refused"] == []


async def test_a_post_that_is_refused_is_logged_because_the_wire_cannot_say_so(scene: Scene) -> None:
    client, other = await scene.dial("inbox-bob"), await scene.dial("general")
    place = scene.server._places["inbox-bob"]
    await until(lambda: place.channel.client_count == 1)
    with capture_logs() as logs:
        for peer in place._clients.values():
            peer._target = to_member(MemberName("nobody"))
        await client.send({"msg": "lost", "data": {}})
        await until(lambda: any(entry["event"] == "a post was refused" for entry in logs))
    (entry,) = [entry for entry in logs if entry["event"] == "a post was refused"]
    assert entry["code"] is Code.UNKNOWN_MEMBER
    await other.send({"msg": "the hub goes on", "data": {}})


async def test_a_message_too_large_for_a_frame_is_not_sent_and_the_socket_goes_on(scene: Scene) -> None:
    alice = await scene.join("alice")
    client = await scene.dial("general")
    await until(lambda: scene.server._places["general"].channel.client_count == 1)
    with capture_logs() as logs:
        await alice.send("*", "x" * (16 * 1024 * 1024))
        await alice.send("*", "small")
        assert (await client.receive()).msg == "small"
    assert any("does not fit" in entry["event"] for entry in logs)
