"""The SDK against a real hub: the same tests over a Unix socket and a WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hubs import CARRIERS, House, bodies, house, silent, take, until
from tieline.client import Client, Disconnected, HubRefused, HubUnreachable, LogRowView, connect
from tieline.client.client import to_json
from tieline.contract.member import MemberKind
from tieline.contract.message import Attachment, Kind, Level, Priority
from tieline.contract.refusal import Code


@pytest.fixture(params=CARRIERS)
async def there(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async with house(folder, request.param, store="sqlite:unsafe") as built:
        await built.add("alice", "bob", "carol")
        yield built


async def state_of(client: Client, message_id: str) -> str:
    """How far a message to one recipient has come."""
    (receipt,) = await client.receipts(message_id)
    return receipt.state


async def reached(client: Client, message_id: str, state: str) -> None:
    """Wait until a message to one recipient has come so far."""
    async with asyncio.timeout(10):
        while await state_of(client, message_id) != state:
            pass


# Sending and receiving


async def test_a_session_knows_who_it_is(there: House) -> None:
    alice = await there.join("alice", window=7)
    assert alice.welcome is not None
    assert (alice.welcome.member, alice.welcome.speaker, alice.welcome.window) == ("alice", "alice", 7)


async def test_a_message_arrives_with_all_its_parts_and_the_sender_stamped_by_the_hub(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    accepted = await alice.send(
        "@bob",
        "hello ☎",
        data={"from": "carol", "n": [1, 2.5, None]},
        title="a title",
        level=Level.WARNING,
        priority=Priority.URGENT,
        kind=Kind.STATUS,
        topic="build",
        scope="src/",
        thread="t1",
        refs=("a", "b"),
        attachments=(Attachment("/tmp/x", "x", 3, "text/plain"),),
        ttl_ms=60_000,
        wire_id="w1",
    )
    assert (accepted.recipients, accepted.duplicate) == (1, False)
    (delivery,) = await take(bob, 1)
    message = delivery.message
    assert (message.id, message.offset) == (accepted.id, accepted.offset)
    assert (message.sender, message.target, message.protocol) == ("alice", "@bob", "tieline")
    assert message.verified
    assert message.body == "hello ☎"
    assert message.data == {"from": "carol", "n": [1, 2.5, None]}
    assert (message.title, message.level, message.priority) == ("a title", Level.WARNING, Priority.URGENT)
    assert (message.kind, message.topic, message.scope, message.thread) == (Kind.STATUS, "build", "src/", "t1")
    assert (message.refs, message.ttl_ms, message.wire_id) == (("a", "b"), 60_000, "w1")
    assert message.attachments == (Attachment("/tmp/x", "x", 3, "text/plain"),)
    assert (delivery.key, delivery.seq) == (1, 1)


async def test_messages_of_one_sender_arrive_in_order(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    accepted = await asyncio.gather(*(alice.send("@bob", str(number)) for number in range(500)))
    deliveries = await take(bob, 500, ack=True)
    assert bodies(deliveries) == [str(number) for number in range(500)]
    assert [delivery.key for delivery in deliveries] == list(range(1, 501))
    assert [item.offset for item in accepted] == sorted(item.offset for item in accepted)


async def test_what_was_sent_before_the_recipient_came_is_waiting_for_it(there: House) -> None:
    alice = await there.join("alice")
    for number in range(3):
        await alice.send("@bob", str(number))
    bob = await there.join("bob", receive=True)
    assert bodies(await take(bob, 3)) == ["0", "1", "2"]


async def test_a_channel_and_everybody_reach_all_others(there: House) -> None:
    alice = await there.join("alice", receive=True)
    bob, carol = await there.join("bob", receive=True), await there.join("carol", receive=True)
    for member in (alice, bob):
        await member.subscribe("#dev")
    assert (await alice.send("#dev", "to the channel")).recipients == 1
    assert (await alice.send("*", "to everybody")).recipients == 2
    assert (await alice.send("#general", "to general")).recipients == 2
    assert bodies(await take(bob, 3)) == ["to the channel", "to everybody", "to general"]
    assert bodies(await take(carol, 2)) == ["to everybody", "to general"]
    await silent(alice)
    await bob.unsubscribe("dev")
    with pytest.raises(HubRefused) as caught:
        await alice.send("#dev", "nobody is left")
    assert caught.value.code is Code.NO_RECIPIENTS
    assert (await alice.send("#dev", "to the record", allow_empty=True)).recipients == 0


async def test_the_largest_body_passes_and_one_byte_more_is_refused_alone(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    largest = "x" * (16 * 1024 * 1024)
    await alice.send("@bob", largest)
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", largest + "x")
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    (delivery,) = await take(bob, 1)
    assert delivery.message.body == largest


async def test_more_than_one_frame_of_messages_in_one_turn_is_carried_in_several(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    large = "x" * 1_000_000
    await asyncio.gather(*(alice.send("@bob", f"{number} {large}") for number in range(40)))
    arrived = bodies(await take(bob, 40, ack=True))
    assert [body.partition(" ")[0] for body in arrived] == [str(number) for number in range(40)]


async def test_a_backlog_of_large_messages_is_received(there: House) -> None:
    alice = await there.join("alice")
    large = "x" * 1_000_000
    for number in range(80):
        await alice.send("@bob", f"{number} {large}")
    bob = await there.join("bob", receive=True)
    arrived = bodies(await take(bob, 80))
    assert [body.partition(" ")[0] for body in arrived] == [str(number) for number in range(80)]


async def test_a_request_larger_than_any_frame_is_refused_and_the_session_goes_on(there: House) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "hello", data={"x": "\x00" * (6 * 1024 * 1024)})
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    assert (await alice.send("@bob", "small")).recipients == 1


# Acknowledging, claiming, following


async def test_a_delivery_climbs_the_ladder_by_evidence(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    (delivery,) = await take(bob, 1)
    await reached(alice, sent.id, "offered")
    bob.see(delivery, evidence="a tool call")
    await reached(alice, sent.id, "seen")
    bob.ack(delivery)
    await reached(alice, sent.id, "acked")
    (receipt,) = await alice.receipts(sent.id)
    assert receipt.member == "bob"
    assert [step.state for step in receipt.steps] == ["pending", "offered", "seen", "acked"]
    assert receipt.steps[2].evidence == "a tool call"
    assert {step.protocol for step in receipt.steps} == {"tieline"}
    assert bob.welcome is not None
    assert receipt.steps[3].session == bob.welcome.session


async def test_a_sender_that_follows_hears_of_each_step(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = await alice.send("@bob", "hello")
    (receipt,) = await alice.follow(sent.id)
    assert receipt.state == "pending"
    page = await bob.inbox()
    bob.see(page.items[0], evidence="read")
    bob.ack(page.items[0])
    steps = []
    async with asyncio.timeout(10):
        async for step in alice.progress():
            steps.append((step.id, step.member, step.state))
            if len(steps) == 2:
                break
    assert steps == [(sent.id, "bob", "seen"), (sent.id, "bob", "acked")]


async def test_an_inbox_is_looked_into_without_taking_anything(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = [await alice.send("@bob", str(number)) for number in range(5)]
    page = await bob.inbox(limit=2)
    assert [item.message.id for item in page.items] == [sent[0].id, sent[1].id]
    assert (page.through, page.complete) == (2, False)
    rest = await bob.inbox(after=page.through)
    assert [item.key for item in rest.items] == [3, 4, 5]
    assert rest.complete
    assert {item.state for item in (*page.items, *rest.items)} == {"pending"}


async def test_settling_in_a_session_that_does_not_receive_leaves_the_rest_as_it_was(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = [await alice.send("@bob", str(number)) for number in range(4)]
    bob.ack((await bob.inbox()).items[0])
    assert await bob.claim(sent[1].id) is not None
    await reached(alice, sent[0].id, "acked")
    page = await bob.inbox()
    assert [(item.key, item.state) for item in page.items] == [(3, "pending"), (4, "pending")]
    await silent(bob)


async def test_a_message_is_claimed_by_one_session_and_never_again(there: House) -> None:
    alice, first, second = await there.join("alice"), await there.join("bob"), await there.join("bob")
    sent = await alice.send("@bob", "hello")
    won = await asyncio.gather(first.claim(sent.id), second.claim(sent.id), first.claim(sent.id))
    winners = [item for item in won if item is not None]
    assert len(winners) == 1
    assert winners[0].message.body == "hello"
    assert await second.claim(sent.id) is None
    assert await state_of(alice, sent.id) == "acked"
    carol = await there.join("carol")
    assert await carol.claim(sent.id) is None, "it never was hers"
    assert await carol.claim("no such message") is None


async def test_two_sessions_of_a_member_are_both_offered_and_the_first_acknowledgement_ends_it(there: House) -> None:
    alice = await there.join("alice")
    first, second = await there.join("bob", receive=True), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    one, other = (await take(first, 1))[0], (await take(second, 1))[0]
    assert (one.key, one.message.id) == (other.key, other.message.id) == (1, sent.id)
    first.ack(one)
    await reached(alice, sent.id, "acked")
    second.ack(other)
    third = await there.join("bob", receive=True)
    await silent(third)
    (receipt,) = await alice.receipts(sent.id)
    assert [step.state for step in receipt.steps] == ["pending", "offered", "acked"]
    assert first.welcome is not None
    assert receipt.steps[2].session == first.welcome.session


async def test_acknowledging_twice_or_what_never_was_is_no_error(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    await alice.send("@bob", "one")
    (delivery,) = await take(bob, 1)
    for _ in range(3):
        bob.ack(delivery)
    await alice.send("@bob", "two")
    assert bodies(await take(bob, 1)) == ["two"]


# The window


async def test_a_recipient_that_does_not_acknowledge_gets_only_its_window(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True, window=3)
    for number in range(10):
        await alice.send("@bob", str(number))
    held = await take(bob, 3)
    await silent(bob)
    bob.ack(held[0])
    assert bodies(await take(bob, 1)) == ["3"]
    await silent(bob)
    for delivery in held[1:]:
        bob.ack(delivery)
    assert bodies(await take(bob, 2)) == ["4", "5"]
    await silent(bob)


async def test_a_window_of_one_passes_everything_one_by_one(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True, window=1)
    sending = asyncio.gather(*(alice.send("@bob", str(number)) for number in range(50)))
    assert bodies(await take(bob, 50, ack=True)) == [str(number) for number in range(50)]
    await sending


async def test_after_a_reconnect_what_was_not_acknowledged_comes_again_under_the_same_id_and_key(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    for number in range(6):
        await alice.send("@bob", str(number))
    before = await take(bob, 6)
    for delivery in (before[0], before[1], before[4]):
        bob.ack(delivery)
    await bob.close()
    await reached(alice, before[4].message.id, "acked")
    again = await take(await there.join("bob", receive=True), 3)
    left = (before[2], before[3], before[5])
    assert [(item.key, item.seq, item.message) for item in again] == [
        (item.key, item.seq, item.message) for item in left
    ]


async def test_a_recipient_that_does_not_read_holds_up_nobody_and_gets_everything_later(there: House) -> None:
    alice, carol = await there.join("alice"), await there.join("carol", receive=True)
    slow = await there.join("bob", receive=True, window=1024)
    body = "x" * 100_000
    for _ in range(100):
        await alice.send("*", body)
    assert len(await take(carol, 100, ack=True)) == 100
    assert len(await take(slow, 100, ack=True)) == 100


# Sending again


async def test_the_same_words_under_the_same_wire_id_are_a_duplicate_and_arrive_once(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    first = await alice.send("@bob", "hello", wire_id="w1")
    await alice.close()
    alice = await there.join("alice")
    again = await alice.send("@bob", "hello", wire_id="w1")
    assert (again.id, again.offset, again.recipients) == (first.id, first.offset, first.recipients)
    assert again.duplicate
    assert bodies(await take(bob, 1)) == ["hello"]
    await silent(bob)


async def test_other_words_under_a_used_wire_id_are_refused(there: House) -> None:
    alice, carol = await there.join("alice"), await there.join("carol")
    await alice.send("@bob", "hello", wire_id="w1")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "good-bye", wire_id="w1")
    assert caught.value.code is Code.WIRE_ID_REUSED
    assert not (await carol.send("@bob", "good-bye", wire_id="w1")).duplicate, "ids belong to their sender"


# Refusals


async def test_a_name_that_nobody_has_is_refused_with_the_nearest(there: House) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bop", "hello")
    assert caught.value.code is Code.UNKNOWN_MEMBER
    assert caught.value.near == ("bob",)
    assert "bob" in str(caught.value)
    assert (await alice.send("@bob", "hello")).recipients == 1, "the session goes on"


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("bob", "hello", Code.INVALID_TARGET),
        ("", "hello", Code.INVALID_TARGET),
        ("@", "hello", Code.INVALID_NAME),
        ("@all", "hello", Code.RESERVED_NAME),
        ("#nowhere", "hello", Code.UNKNOWN_CHANNEL),
        ("obj:1", "hello", Code.UNKNOWN_OBJECTIVE),
        ("@bob", "", Code.INVALID_MESSAGE),
    ],
)
async def test_a_bad_send_is_refused_with_its_code(there: House, target: str, body: str, code: Code) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send(target, body)
    assert caught.value.code is code


async def test_refusals_and_answers_find_their_requests(there: House) -> None:
    alice = await there.join("alice")
    outcomes = await asyncio.gather(
        *(alice.send("@bob" if number % 2 else "bob", str(number)) for number in range(20)), return_exceptions=True
    )
    assert [isinstance(outcome, HubRefused) for outcome in outcomes] == [number % 2 == 0 for number in range(20)]


async def test_what_only_operators_may_do_is_forbidden_to_members(there: House) -> None:
    alice = await there.join("alice")
    for asking in (alice.add_member("mallory"), alice.remove_member("bob"), alice.rotate_token("bob")):
        with pytest.raises(HubRefused) as caught:
            await asking
        assert caught.value.code is Code.FORBIDDEN
    with pytest.raises(HubRefused) as caught:
        await alice.read_log()
    assert caught.value.code is Code.FORBIDDEN


async def test_a_token_that_is_wrong_opens_nothing(there: House) -> None:
    there.tokens["mallory"] = "tie_guessed"
    with pytest.raises(HubRefused) as caught:
        await there.join("mallory")
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_rotated_token_opens_and_the_old_one_does_not(there: House) -> None:
    alice = await there.join("alice")
    old = there.tokens["alice"]
    issued = await alice.rotate_token("alice")
    there.tokens["alice"] = issued.token
    assert len(await (await there.join("alice")).members()) == 3
    there.tokens["alice"] = old
    with pytest.raises(HubRefused):
        await there.join("alice")


async def test_the_operator_manages_members_and_has_no_voice(there: House) -> None:
    operator = await there.operator()
    issued = await operator.add_member("dora", kind=MemberKind.HUMAN, permissions=("log.read",), token="d" * 20)
    assert (issued.member, issued.token) == ("dora", "d" * 20)
    members = {member.name: member for member in await operator.members()}
    assert (members["dora"].kind, members["dora"].permissions) == ("human", ("log.read",))
    with pytest.raises(HubRefused) as caught:
        await operator.send("@bob", "hello")
    assert caught.value.code is Code.FORBIDDEN
    with pytest.raises(HubRefused) as caught:
        await operator.add_member("Dora")
    assert caught.value.code is Code.NAME_TAKEN


async def test_a_removed_member_is_told_why_its_session_ends(there: House) -> None:
    bob = await there.join("bob", receive=True)
    operator = await there.operator()
    await operator.remove_member("bob")
    with pytest.raises(HubRefused, match="removed") as caught:
        await take(bob, 1)
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_loop_is_refused_and_resumed_by_a_human(there: House) -> None:
    await there.add("hugo", kind=MemberKind.HUMAN)
    alice, bob, hugo = await there.join("alice"), await there.join("bob"), await there.join("hugo")

    async def chat() -> None:
        for _ in range(40):
            ping = await alice.send("@bob", "ping")
            assert await bob.claim(ping.id) is not None
            pong = await bob.send("@alice", "pong")
            assert await alice.claim(pong.id) is not None

    with pytest.raises(HubRefused) as caught:
        await chat()
    assert caught.value.code is Code.LOOP_DETECTED
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "ping")
    assert caught.value.code is Code.THREAD_PAUSED
    (pause,) = await hugo.pauses()
    assert pause.thread == "@alice+@bob"
    with pytest.raises(HubRefused) as caught:
        await alice.pauses()
    assert caught.value.code is Code.FORBIDDEN
    await hugo.resume_thread("@alice+@bob")
    assert await hugo.pauses() == ()
    await alice.send("@bob", "ping")


# Reading


async def test_members_and_channels_are_listed(there: House) -> None:
    alice = await there.join("alice")
    await alice.subscribe("dev")
    members = {member.name: member for member in await alice.members()}
    assert set(members) == {"alice", "bob", "carol"}
    assert members["alice"].sessions == ("tieline",)
    assert members["bob"].sessions == ()
    channels = {channel.name: channel.subscribers for channel in await alice.channels()}
    assert channels == {"dev": ("alice",), "general": ("alice", "bob", "carol")}


async def test_history_shows_what_the_member_may_see_newest_first(there: House) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    await alice.send("@bob", "one")
    await bob.send("@alice", "two")
    await carol.send("@bob", "three")
    await alice.send("*", "four")
    assert [message.body for message in await alice.history()] == ["four", "two", "one"]
    assert [message.body for message in await alice.history("bob")] == ["two", "one"]
    assert [message.body for message in await bob.history(limit=2)] == ["four", "three"]
    newest = (await bob.history(limit=1))[0]
    assert [message.body for message in await bob.history(before=newest.offset)] == ["three", "two", "one"]


async def test_receipts_are_for_sender_and_recipients_alone(there: House) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    sent = await alice.send("@bob", "hello")
    assert len(await alice.receipts(sent.id)) == len(await bob.receipts(sent.id)) == 1
    for asking in (carol.receipts(sent.id), carol.follow(sent.id)):
        with pytest.raises(HubRefused) as caught:
            await asking
        assert caught.value.code is Code.UNKNOWN_MESSAGE


async def test_a_state_that_there_is_not_cannot_be_followed(there: House) -> None:
    alice = await there.join("alice")
    sent = await alice.send("@bob", "hello")
    with pytest.raises(HubRefused) as caught:
        await alice.follow(sent.id, until="finished")
    assert caught.value.code is Code.INVALID_REQUEST


async def test_the_log_is_read_in_pages_by_those_who_may(there: House) -> None:
    await there.add("auditor", permissions=("log.read",))
    alice, auditor = await there.join("alice"), await there.join("auditor")
    for number in range(5):
        await alice.send("@bob", str(number))
    rows: list[LogRowView] = []
    position = 0
    while (page := await auditor.read_log(start=position, limit=3)).rows:
        rows += page.rows
        position = page.next
    assert [row.offset for row in rows] == list(range(len(rows)))
    events = [json.loads(row.event)["event"] for row in rows]
    assert events.count("send") == 5
    assert events.count("register") == 4
    assert all(len(row.hash) == 64 for row in rows)
    with pytest.raises(HubRefused) as caught:
        await auditor.read_log("secrets")
    assert caught.value.code is Code.UNKNOWN_LOG


async def test_activity_is_recorded_in_a_log_of_its_own(there: House) -> None:
    await there.add("auditor", permissions=("log.read",))
    alice, auditor = await there.join("alice"), await there.join("auditor")
    assert await alice.record_activity({"kind": "llm", "tokens": 3}, {"kind": "http"}) == 2
    page = await auditor.read_log("activity")
    assert [json.loads(row.event) for row in page.rows] == [{"kind": "llm", "tokens": 3}, {"kind": "http"}]
    assert page.next == 2


async def test_values_become_the_documented_json(there: House) -> None:
    alice = await there.join("alice")
    await alice.send("@bob", "hello")
    (message,) = json.loads(to_json(await alice.history()))
    assert message["from"] == "alice"


# When it ends


async def test_everything_waiting_hears_that_the_hub_is_gone(there: House) -> None:
    bob = await there.join("bob", receive=True)

    async def follow() -> None:
        async for _ in bob.progress():
            pass

    waiting = [asyncio.ensure_future(take(bob, 1)), asyncio.ensure_future(follow())]
    await bob.members()
    await there.hub.stop()
    async with asyncio.timeout(10):
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, HubRefused)
            assert outcome.code is Code.SHUTTING_DOWN
    with pytest.raises(HubRefused):
        await bob.send("@alice", "hello")


async def test_a_connection_that_breaks_ends_what_waits_with_disconnected(there: House) -> None:
    bob = await there.join("bob", receive=True)
    waiting = asyncio.ensure_future(take(bob, 1))
    await bob.members()
    bob.connection_lost("the cable was cut")
    with pytest.raises(Disconnected, match="cable"):
        await waiting
    with pytest.raises(Disconnected):
        await bob.members()


async def test_asking_again_for_deliveries_after_the_end_says_again_that_it_ended(there: House) -> None:
    bob = await there.join("bob", receive=True)
    await bob.close()
    for _ in range(2):
        with pytest.raises(Disconnected):
            await take(bob, 1)
        async with asyncio.timeout(10):
            with pytest.raises(Disconnected):
                async for _ in bob.progress():
                    pass


async def test_a_closed_client_answers_nothing_more(there: House) -> None:
    alice = await there.join("alice")
    await alice.close()
    await alice.close()
    with pytest.raises(Disconnected, match="closed"):
        await alice.send("@bob", "hello")


async def test_closing_sends_what_is_left(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    async with bob:
        bob.ack((await take(bob, 1))[0])
    await reached(alice, sent.id, "acked")


async def test_a_request_that_is_given_up_does_not_confuse_the_next(there: House) -> None:
    alice = await there.join("alice")
    asking = asyncio.ensure_future(alice.members())
    await asyncio.sleep(0)
    asking.cancel()
    assert len(await alice.channels()) == 1
    assert len(await alice.members()) == 3


async def test_what_is_no_batch_from_the_hub_ends_the_session(there: House) -> None:
    alice = await there.join("alice")
    alice.receive_batch(b"garbage")
    with pytest.raises(Disconnected, match="not a batch"):
        await alice.members()


# Finding the hub


async def test_the_environment_says_where_and_who(there: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIELINE_URL", there.running.http)
    monkeypatch.setenv("TIELINE_TOKEN", there.tokens["alice"])
    async with await connect() as alice:
        assert alice.welcome is not None
        assert alice.welcome.member == "alice"
    monkeypatch.delenv("TIELINE_URL")
    monkeypatch.delenv("TIELINE_TOKEN")
    monkeypatch.setenv("TIELINE_HOME", str(there.home))
    monkeypatch.setenv("TIELINE_AGENT", "bob")
    async with await connect() as bob:
        assert bob.welcome is not None
        assert bob.welcome.member == "bob"


async def test_on_the_machine_of_the_hub_its_key_is_enough_to_be_a_member(there: House) -> None:
    async with await connect(home=there.home, member="alice") as alice:
        assert (await alice.send("@bob", "hello")).recipients == 1
    with pytest.raises(HubRefused) as caught:
        await connect(home=there.home, member="alicia")
    assert caught.value.code is Code.UNKNOWN_MEMBER
    assert caught.value.near == ("alice",)


async def test_a_token_does_not_open_another_member(there: House) -> None:
    with pytest.raises(HubRefused) as caught:
        await connect(home=there.home, member="bob", token=there.tokens["alice"])
    assert caught.value.code is Code.UNAUTHORIZED


async def test_where_no_hub_is_the_caller_is_told(folder: Path) -> None:
    with pytest.raises(HubUnreachable, match="no hub is running"):
        await connect(home=folder)
    with pytest.raises(HubUnreachable, match="no hub answers"):
        await connect(url="http://127.0.0.1:1", token="x")


async def test_sessions_are_seen_by_others_while_they_last(there: House) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    names = {member.name: member for member in await alice.members()}
    assert names["bob"].sessions == ("tieline",)
    await bob.close()

    gone = False

    async def look() -> None:
        nonlocal gone
        while not gone:
            gone = not next(member for member in await alice.members() if member.name == "bob").sessions

    looking = asyncio.ensure_future(look())
    await until(lambda: gone)
    await looking
