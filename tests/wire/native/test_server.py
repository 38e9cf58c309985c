"""Tests of one connection of the hub's own protocol with a fake hub: hello, order of answers, and bad input."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.hubs import until
from tests.wire.native.lines import ATTACHED, BOB, SESSION, Line, message
from tests.wire.native.test_frames import CLIENT_FRAMES, NOT_BATCHES
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.delivery import Delivery, State
from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey, ByToken
from tieline.contract.message import Message
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.refusal import Code, Refusal
from tieline.wire.native import frames as f
from tieline.wire.native.server import _ENCODED_BYTES_MAX, PROTOCOL, NativeConnection, _Encoded
from tieline.wire.session_pump import PAGE_BYTES

# Hello


def test_hello_with_a_token_attaches_as_the_member_of_the_token() -> None:
    line = Line()
    line.say(f.Hello(token="t", window=7))
    assert line.hub.submitted == [c.Attach(protocol=PROTOCOL, credential=ByToken("t"))]
    assert line.transport.frames == []
    line.hub.answer(ATTACHED)
    assert line.transport.frames == [f.Welcome(1, SESSION, "bob", "bob", 7, Limits().frame_bytes_max)]


def test_hello_with_the_key_of_the_home_says_which_member_it_is() -> None:
    line = Line()
    line.say(f.Hello(key="k", member="bob"))
    assert line.hub.submitted == [c.Attach(protocol=PROTOCOL, credential=ByHomeKey("k"), member=BOB)]


def test_a_token_counts_before_a_key() -> None:
    line = Line()
    line.say(f.Hello(token="t", key="k"))
    assert line.hub.submitted == [c.Attach(protocol=PROTOCOL, credential=ByToken("t"))]


@pytest.mark.parametrize(("asked", "given_window"), [(-5, 1), (0, 1), (256, 256), (10**9, Limits().window_max)])
def test_the_window_is_kept_within_its_limits(asked: int, given_window: int) -> None:
    line = Line()
    line.say(f.Hello(token="t", window=asked))
    line.hub.answer(ATTACHED)
    (welcome,) = line.transport.frames
    assert isinstance(welcome, f.Welcome)
    assert welcome.window == given_window


def test_any_other_first_frame_ends_the_connection() -> None:
    line = Line()
    line.say(f.ListMembers(1), f.Hello(token="t"))
    assert line.refused.code is Code.INVALID_REQUEST
    assert "hello" in line.refused.message
    assert line.hub.submitted == []


def test_another_version_ends_the_connection_and_says_which_is_spoken() -> None:
    line = Line()
    line.say(f.Hello(v=2, token="t"))
    assert line.refused.code is Code.INVALID_REQUEST
    assert "version 1" in line.refused.message
    assert line.hub.submitted == []


def test_hello_without_a_credential_ends_the_connection() -> None:
    line = Line()
    line.say(f.Hello(member="bob"))
    assert line.refused.code is Code.UNAUTHORIZED
    assert line.hub.submitted == []


def test_a_credential_that_the_hub_refuses_ends_the_connection_with_its_words() -> None:
    line = Line()
    line.say(f.Hello(key="k", member="bop"))
    line.hub.answer(Refusal(Code.UNKNOWN_MEMBER, "no member is called 'bop'", ("bob",)))
    assert (line.refused.code, line.refused.near) == (Code.UNKNOWN_MEMBER, ("bob",))


def test_a_second_hello_ends_the_connection() -> None:
    line = Line()
    line.greet()
    line.say(f.Hello(token="t"))
    assert line.refused.code is Code.INVALID_REQUEST
    assert line.hub.asked(c.Detach) == [c.Detach(SESSION)]


def test_only_a_member_receives() -> None:
    line = Line()
    line.say(f.Hello(key="k", receive=True))
    line.hub.answer(r.Attached(session=SESSION, member=None, speaker="operator"))
    assert line.refused.code is Code.INVALID_REQUEST
    assert line.hub.asked(c.Detach) == [c.Detach(SESSION)]


def test_what_follows_hello_waits_until_the_session_is_open() -> None:
    line = Line()
    line.say(f.Hello(token="t"), f.ListMembers(1))
    line.say(f.ListChannels(2))
    assert len(line.hub.submitted) == 1
    line.hub.answer(ATTACHED)
    assert line.hub.submitted[1:] == [c.ListMembers(SESSION), c.ListChannels(SESSION)]


def test_an_empty_batch_says_nothing_and_is_no_hello() -> None:
    line = Line()
    line.say()
    assert line.transport.blank == 1
    line.greet()
    line.say()
    assert line.transport.payloads == []
    assert line.transport.blank == 1
    assert not line.transport.closed


def test_a_client_that_hangs_up_before_it_is_welcomed_leaves_no_session() -> None:
    line = Line()
    line.say(f.Hello(token="t"), f.ListMembers(1))
    line.connection.connection_lost()
    line.hub.answer(ATTACHED)
    assert line.hub.submitted[1:] == [c.Detach(SESSION)]


# Requests and answers


REQUESTS = [frame for frame in CLIENT_FRAMES if not isinstance(frame, f.Hello)]


@pytest.mark.parametrize("request_frame", REQUESTS, ids=lambda frame: type(frame).__name__)
def test_every_request_becomes_a_command_of_its_session(request_frame: f.Request) -> None:
    line = Line()
    line.greet()
    line.say(request_frame)
    (command,) = line.hub.submitted[1:]
    assert getattr(command, "session", None) == SESSION


def test_requests_with_large_answers_wait_for_each_other_and_stop_reading() -> None:
    line = Line()
    line.greet()
    line.say(*(f.ReadHistory(n) for n in range(1, 6)), f.ListMembers(6))
    assert len(line.hub.asked(c.ReadHistory)) == 2
    assert not line.transport.reading
    line.say(f.ListChannels(7))
    for number in range(3, 6):
        line.hub.answer(r.History(()))
        assert len(line.hub.asked(c.ReadHistory)) == number
    line.hub.answer(r.History(()))
    assert not line.hub.asked(c.ListChannels), "one at a time behind the last of them"
    line.hub.answer(r.History(()))
    line.hub.answer(r.Roster(()))
    line.hub.answer(r.Channels(()))
    assert [getattr(frame, "n", None) for frame in line.transport.frames] == [1, 2, 3, 4, 5, 6, 7]
    assert line.transport.reading


def test_requests_with_large_answers_wait_while_the_wire_is_full() -> None:
    line = Line()
    line.greet()
    line.connection.pause_writing()
    assert not line.transport.reading
    line.say(f.ReadHistory(1))
    assert not line.hub.asked(c.ReadHistory)
    line.connection.resume_writing()
    assert len(line.hub.asked(c.ReadHistory)) == 1
    assert line.transport.reading


def test_the_key_of_the_home_counts_only_on_a_local_carrier() -> None:
    line = Line()
    line.connection = NativeConnection(line.hub, line.transport, local=False)
    line.say(f.Hello(key="the key", member="bob"))
    (refused,) = line.transport.frames
    assert isinstance(refused, f.Refused)
    assert refused.code is Code.UNAUTHORIZED
    assert line.transport.closed


async def test_a_connection_that_does_not_say_hello_in_time_is_hung_up_on() -> None:
    line = Line(Limits(hello_ms=1))
    line.connection.expect_hello()
    await until(lambda: line.transport.closed)
    (refused,) = line.transport.frames
    assert isinstance(refused, f.Refused)
    assert line.transport.aborted


def test_nothing_is_read_behind_hello_until_the_hub_knows_who_it_is() -> None:
    line = Line()
    line.say(f.Hello(token="t"))
    assert not line.transport.reading
    line.hub.answer(ATTACHED)
    assert line.transport.reading
    assert line.transport.owner == "bob"


async def test_a_connection_that_said_hello_is_left_in_peace() -> None:
    line = Line(Limits(hello_ms=1))
    line.connection.expect_hello()
    line.greet()
    late = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, late.set_result, None)
    await late
    assert not line.transport.closed


@pytest.mark.parametrize("name", ["", "x" * 129, "a/b", "system"])
def test_a_hello_for_a_name_that_nobody_can_have_is_refused_before_the_hub_is_asked(name: str) -> None:
    line = Line()
    line.say(f.Hello(token="t", member=name))
    assert not line.hub.submitted
    assert line.transport.closed


def test_a_channel_may_be_written_with_its_sign() -> None:
    line = Line()
    line.greet()
    line.say(f.Subscribe(1, "#dev"), f.Unsubscribe(2, "dev"))
    assert [getattr(command, "channel", None) for command in line.hub.submitted[1:]] == ["dev", "dev"]


def test_answers_repeat_the_numbers_and_keep_the_order_of_the_requests() -> None:
    line = Line()
    line.greet()
    line.say(f.ListMembers(7), f.Ack(((1, 1),)), f.Claim(3, "m1"))
    line.hub.answer(r.Roster(()))
    line.hub.answer(r.Done(), r.Claimed(None))
    assert line.transport.frames == [f.Roster(7, ()), f.Claimed(3)]


def test_a_refusal_that_needs_no_hub_waits_behind_what_was_asked_before_it() -> None:
    line = Line()
    line.greet()
    line.say(f.ListMembers(1), f.Send(2, "bob", "x"), f.Follow(3, "m1", "finished"), f.ListChannels(4))
    assert line.transport.frames == []
    line.hub.answer(r.Roster(()))
    line.hub.answer(r.Done())
    line.hub.answer(r.Done())
    line.hub.answer(r.Channels(()))
    first, second, third, fourth = line.transport.frames
    assert first == f.Roster(1, ())
    assert isinstance(second, f.Refused)
    assert (second.n, second.code) == (2, Code.INVALID_TARGET)
    assert isinstance(third, f.Refused)
    assert (third.n, third.code) == (3, Code.INVALID_REQUEST)
    assert fourth == f.ChannelList(4, ())
    assert not line.transport.closed


def test_a_refusal_of_the_hub_carries_code_number_and_near_names() -> None:
    line = Line()
    line.greet()
    line.say(f.Send(5, "@bop", "x"))
    line.hub.answer(Refusal(Code.UNKNOWN_MEMBER, "no", ("bob",)))
    assert line.transport.frames == [f.Refused(Code.UNKNOWN_MEMBER, "no", 5, ("bob",))]


def test_progress_is_told_as_it_happens() -> None:
    line = Line()
    line.greet()
    (listener, _) = line.hub.listening[SESSION]
    listener.progress(r.Progress(message_id=MessageId("m1"), member=BOB, state=State.ACKED, at_ms=9))
    assert line.transport.frames == [f.Progress("m1", "bob", "acked", 9)]


def test_when_the_hub_ends_the_session_the_client_hears_why_and_the_connection_closes() -> None:
    line = Line()
    line.greet()
    (listener, _) = line.hub.listening[SESSION]
    listener.end(Refusal(Code.UNAUTHORIZED, "bob was removed"))
    assert line.refused.message == "bob was removed"


def test_answers_that_come_after_hanging_up_are_dropped() -> None:
    line = Line()
    line.greet()
    line.say(f.ListMembers(1))
    line.connection.connection_lost()
    line.hub.answer(r.Roster(()))
    assert line.transport.frames == []


def test_too_many_unanswered_requests_pause_reading() -> None:
    line = Line(Limits(inflight_max=2))
    line.greet()
    line.say(*(f.Subscribe(n, "dev") for n in range(1, 6)))
    assert not line.transport.reading
    assert len(line.hub.asked(c.Subscribe)) == 2, "a batch is cut where there is no more room"
    line.say(f.Subscribe(6, "dev"))
    line.hub.answer(r.Done(), r.Done())
    assert len(line.hub.asked(c.Subscribe)) == 4
    line.hub.answer(r.Done(), r.Done())
    line.hub.answer(r.Done(), r.Done())
    assert [getattr(frame, "n", None) for frame in line.transport.frames] == [1, 2, 3, 4, 5, 6]
    assert line.transport.reading


def test_claims_wait_for_each_other_because_each_answer_holds_a_message() -> None:
    line = Line()
    line.greet()
    line.say(*(f.Claim(n, f"m{n}") for n in range(1, 201)))
    assert len(line.hub.asked(c.Claim)) == 64
    assert not line.transport.reading
    line.hub.answer(*[r.Claimed(None)] * 64)
    assert len(line.hub.asked(c.Claim)) == 128


# Deliveries


async def push(line: Line, messages: Sequence[Message]) -> None:
    (listener, member) = line.hub.listening[SESSION]
    assert member == BOB
    for said in messages:
        listener.offer(said, said.offset, said.offset)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_deliveries_are_pushed_in_one_batch_a_turn_and_noted_as_offered() -> None:
    line = Line()
    line.greet(f.Hello(token="t", receive=True))
    line.hub.answer(r.Fetched(deliveries=(), through=0, complete=True))
    await push(line, [message(1), message(2)])
    assert len(line.transport.payloads) == 1
    assert [frame.key for frame in line.transport.frames if isinstance(frame, f.Deliver)] == [1, 2]
    assert line.hub.asked(c.Offered) == [c.Offered(SESSION, first=1, last=2)]


async def test_an_acknowledgement_gives_credit_and_so_does_a_claim_that_was_won() -> None:
    line = Line()
    line.greet(f.Hello(token="t", receive=True, window=1))
    line.hub.answer(r.Fetched(deliveries=(), through=0, complete=True))
    await push(line, [message(1), message(2), message(3)])
    assert len(line.transport.frames) == 1
    line.say(f.Ack(((1, 1),)))
    line.hub.answer(r.Fetched(deliveries=(Delivery(2, 2, State.PENDING, message(2)),), through=2, complete=False))
    assert len(line.transport.frames) == 2
    line.say(f.Claim(9, "m2"))
    line.hub.answer(r.Claimed(Delivery(2, 2, State.OFFERED, message(2))))
    assert line.hub.asked(c.Fetch)[-1] == c.Fetch(SESSION, after=2, limit=1, bytes_max=PAGE_BYTES)


async def test_a_session_that_does_not_receive_is_pushed_nothing_when_it_acknowledges_or_claims() -> None:
    line = Line()
    line.greet()
    line.say(f.Ack(((1, 1),)), f.Claim(1, "m2"))
    line.hub.answer(r.Done(), r.Claimed(Delivery(2, 2, State.OFFERED, message(2))))
    line.connection.pause_writing()
    line.connection.resume_writing()
    assert line.hub.asked(c.Fetch) == []


async def test_many_large_deliveries_are_split_so_that_no_frame_is_larger_than_a_client_takes() -> None:
    line = Line()
    line.greet(f.Hello(token="t", receive=True))
    large = "x" * 6_000_000
    said = [message(key, large if key > 20 else "x", {"x": large} if key <= 20 else None) for key in range(1, 25)]
    page = tuple(Delivery(item.offset, item.offset, State.PENDING, item) for item in said)
    line.hub.answer(r.Fetched(deliveries=page, through=len(page), complete=True))
    assert [frame.key for frame in line.transport.frames if isinstance(frame, f.Deliver)] == list(range(1, 25))
    assert max(map(len, line.transport.payloads)) < Limits().frame_bytes_max


# Bad input


@pytest.mark.parametrize("payload", NOT_BATCHES.values(), ids=NOT_BATCHES.keys())
@pytest.mark.parametrize("greeted", [False, True], ids=["first", "later"])
def test_what_is_not_a_batch_is_refused_and_ends_the_connection(payload: bytes, *, greeted: bool) -> None:
    line = Line()
    if greeted:
        line.greet()
    line.connection.receive_batch(payload)
    assert line.refused.code is Code.INVALID_REQUEST
    assert line.hub.asked(c.Detach) == ([c.Detach(SESSION)] if greeted else [])


@given(st.lists(st.one_of(st.binary(max_size=60), st.text(max_size=60)), min_size=1, max_size=5))
def test_any_garbage_ends_in_a_refusal_and_never_in_an_exception(garbage: list[bytes | str]) -> None:
    line = Line()
    line.greet()
    for payload in garbage:
        if line.transport.closed:
            break
        line.connection.receive_batch(payload)
    assert line.transport.closed or all(f.decode_client_batch(payload) is not None for payload in garbage)


@given(st.binary(min_size=1, max_size=40), st.integers(0, 400))
def test_a_batch_with_bytes_changed_anywhere_is_read_or_refused(noise: bytes, at: int) -> None:
    line = Line()
    line.greet()
    whole = f.encode_batch([frame for frame in CLIENT_FRAMES if not isinstance(frame, f.Hello)])
    at %= len(whole)
    line.connection.receive_batch(whole[:at] + noise + whole[at + len(noise) :])
    if line.transport.closed:
        assert line.refused.code is Code.INVALID_REQUEST


def test_what_is_remembered_of_encoded_messages_is_bounded_by_its_size() -> None:
    encoded = _Encoded()
    first = message(0, "x" * 1_000_000)
    raw = encoded.encode(first)
    assert encoded.encode(first) is raw
    for offset in range(1, 20):
        encoded.encode(message(offset, "x" * 1_000_000))
        assert encoded._bytes <= _ENCODED_BYTES_MAX
        assert sum(len(memoryview(kept)) for _, kept in encoded._by_offset.values()) <= encoded._bytes
    assert encoded.encode(first) is not raw


# Activity


def _did(number: int) -> ActivityRow:
    return ActivityRow(number, BOB, "llm", 1, 2, b'{"n":%d}' % number)


def test_what_was_asked_with_an_upload_does_not_wait_for_it() -> None:
    line = Line()
    line.greet()
    line.say(f.Subscribe(1, "a"), f.RecordActivity(2, ({"n": 1},)), f.Subscribe(3, "b"), f.Subscribe(4, "c"))
    asked = [[type(command) for command in commands] for commands, _ in line.hub.open]
    assert asked == [[c.Subscribe], [c.RecordActivity], [c.Subscribe, c.Subscribe]]
    (record,) = line.hub.asked(c.RecordActivity)
    assert isinstance(record, c.RecordActivity)
    assert record.size == len(b'[{"n":1}]')


def test_following_begins_when_the_hub_allows_it() -> None:
    line = Line()
    line.greet()
    line.say(f.FollowActivity(1, "bob"), f.FollowActivity(2, "eve"))
    line.hub.answer(Refusal(Code.FORBIDDEN, "no"))
    assert line.hub.tails == {}
    line.hub.answer(r.Done())
    line.hub.tails[SESSION]([_did(1), _did(2)])
    *_, done, did = line.transport.frames
    assert done == f.Done(2)
    assert isinstance(did, f.Did)
    assert [row.event for row in did.rows] == [{"n": 1}, {"n": 2}]


def test_what_a_slow_client_missed_is_counted_and_told_with_the_next() -> None:
    line = Line()
    line.greet()
    line.say(f.FollowActivity(1, "bob"))
    line.hub.answer(r.Done())
    line.transport.payloads.clear()
    line.connection.pause_writing()
    line.hub.tails[SESSION]([_did(1), _did(2)])
    assert line.transport.frames == []
    line.connection.resume_writing()
    line.hub.tails[SESSION]([_did(3)])
    line.hub.tails[SESSION]([_did(4)])
    told = [(len(frame.rows), frame.missed) for frame in line.transport.frames if isinstance(frame, f.Did)]
    assert told == [(1, 2), (1, 0)]


def test_the_ways_of_a_member_are_answered_as_the_hub_says_them() -> None:
    line = Line()
    line.greet()
    ways = Reach((Leg(Way.PUSH, 1000), Leg(Way.NOTIFY, 0)), urgent_ms=10, notify="ops")
    line.say(f.SetReach(4, "bob", ways))
    (asked,) = line.hub.asked(c.SetReach)
    assert asked == c.SetReach(SESSION, name=BOB, reach=ways)
    line.hub.answer(r.ReachState(BOB, ways))
    assert line.transport.frames == [f.ReachState(4, "bob", ways)]


def test_more_ranges_than_one_command_may_have_are_several_commands_and_one_answer() -> None:
    line = Line(Limits(ranges_max=2))
    line.greet()
    ranges = tuple((key, key) for key in (1, 3, 5, 7, 9))
    line.say(f.Discard(1, ranges, "old"), f.Subscribe(2, "dev"))
    assert [command.ranges for command in line.hub.submitted if isinstance(command, c.Discard)] == [
        ranges[:2],
        ranges[2:4],
        ranges[4:],
    ]
    line.hub.answer(*[r.Done()] * 4)
    assert line.transport.frames == [f.Done(1), f.Done(2)]
