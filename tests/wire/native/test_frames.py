"""Tests of the frames of the hub's own protocol: decoding reverses encoding, and invalid batches raise."""

import json
import re
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract import channel as ch
from tieline.contract import message as m
from tieline.contract import objective as o
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.delivery import Delivery, Receipt, State, Step
from tieline.contract.event import LogRow
from tieline.contract.identifiers import ChannelName, MemberName, MessageId
from tieline.contract.member import InvitationView, Member, MemberKind, Presence, TokenView
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.reader import LogState, Reader
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY, to_member
from tieline.wire.json_text import VALUES_MAX
from tieline.wire.native import activity, derived
from tieline.wire.native import frames as f
from tieline.wire.native.content import content_of, encode_message
from tieline.wire.native.document import document
from tieline.wire.native.frame import parse_state

MESSAGE = f.Message(
    id="m1",
    offset=7,
    sender="alice",
    target="@bob",
    body="hello",
    sent_at_ms=1,
    protocol="tieline",
    data={"x": [1, {"y": None}]},
    title="a title",
    level=m.Level.ERROR,
    priority=m.Priority.URGENT,
    kind=m.Kind.STATUS,
    topic="t",
    scope="src/",
    thread="th",
    reply_to="m0",
    refs=("a", "b"),
    attachments=(m.Attachment("p", "n", 3, "text/plain"),),
    ttl_ms=1000,
    wire_id="w1",
    notes=("cut short",),
    verified=False,
    hops=2,
    cause="m0",
    supersedes="m0",
)
BARE = f.Message(id="m2", offset=8, sender="bob", target="*", body="x", sent_at_ms=2, protocol="agent-channels")
ITEM = f.Item(3, 2, "offered", MESSAGE)
RECEIPT = f.ReceiptView("bob", "acked", (f.StepView("pending", 1), f.StepView("acked", 2, "s", "tieline", "ack")))
SEND = f.Send(
    2,
    "@bob",
    "hello",
    {"x": 1},
    "a title",
    m.Level.DEBUG,
    m.Priority.URGENT,
    m.Kind.EVENT,
    "t",
    "src/",
    "th",
    "m0",
    ("a",),
    (m.Attachment("p"),),
    5,
    "w1",
    True,
    "m0",
)

DONE_BY_BOB = f.ActivityView(7, "bob", "llm", 1, 2, {"kind": "llm", "n": [1]})
IN_DEV = ch.ChannelMember(MemberName("bob"), ch.Role.ADMIN, 3)
INVITATION = InvitationView("i1", "bob", "alice", 1, 5, 2, ("cy",))
TOKEN = TokenView("t1", "laptop", "alice", 1, None, 2)
OBJECTIVE = f.ObjectiveView(
    "obj-1",
    "t",
    "o",
    "b",
    "blocked",
    "bob",
    "alice",
    ("cy",),
    1,
    2,
    None,
    None,
    "stuck",
    (m.Attachment("p"),),
    ("block",),
)
HAPPENINGS: list[o.AnyHappening] = [
    o.Assigned("t", "o", "bob", ("cy",)),
    o.Blocked("r"),
    o.Unblocked(),
    o.Completed("r"),
    o.Cancelled("r"),
    o.Reassigned("bob", "cy", "n"),
    o.WatcherAdded("cy"),
    o.WatcherRemoved("cy"),
]
REACH = Reach((Leg(Way.PUSH, 60_000), Leg(Way.NOTIFY, 0)), 5000, "ops")
STORY = [f.ObjectiveEventView(1, 2, "alice", what) for what in HAPPENINGS]

LOG = LogState(log="main", epoch="5f", kept_from=2, end=9)
READER = Reader(name="lake", log="main", position=3, by="ada", at_ms=5, missed=1, missed_first=2, missed_last=2)

CLIENT_FRAMES: list[f.ClientFrame] = [
    f.Hello(),
    f.Hello(token="t", key="k", member="bob", receive=True, window=3),
    f.Send(1, "#dev", "x"),
    SEND,
    f.Ack(((1, 2), (5, 5))),
    f.See(((1, 1),), "tool call"),
    f.Discard(34, ((1, 2),), "too old"),
    f.Claim(3, "m1"),
    f.Fetch(4, 10, 20),
    f.Follow(5, "m1", "seen"),
    f.Subscribe(6, "dev"),
    f.Unsubscribe(7, "dev"),
    f.PauseThread(8, "th"),
    f.ResumeThread(8, "th"),
    f.AddMember(9, "bob", MemberKind.HUMAN, ("log.read",), "a token of one's own"),
    f.RemoveMember(10, "bob"),
    f.RotateToken(11, "bob"),
    f.Retoken(11, "bob", "a shared token"),
    f.ListMembers(12),
    f.ListChannels(13),
    f.ReadReceipts(14, "m1"),
    f.ReadHistory(15, "bob", 9, 10),
    f.ReadHistory(15, after=3, everything=True),
    f.Redact(15, "1-1", "a password"),
    f.Search(15, "red fox", "bob", "#dev", 1, 2, 3, 4),
    f.FollowAll(16, 7, True),
    f.ReadLog(16, "activity", 3, 4),
    f.ListReaders(16),
    f.AdvanceReader(16, "lake", 7, "activity", "5f", True),
    f.ForgetReader(16, "lake"),
    f.RecordActivity(17, ({"kind": "llm"}, {})),
    f.ReadActivity(18, "bob", 1, 2, ("llm",), 3),
    f.FollowActivity(19, "bob"),
    f.CreateChannel(20, "dev"),
    f.ChangeChannel(21, "dev", ch.Rename(ChannelName("design"))),
    f.ChangeChannel(21, "dev", ch.Archive()),
    f.ChangeChannel(21, "dev", ch.Enter()),
    f.ChangeChannel(21, "dev", ch.Admit(MemberName("bob"), ch.Role.ADMIN)),
    f.ChangeChannel(21, "dev", ch.Dismiss(MemberName("bob"))),
    f.ViewChannel(22, "dev"),
    f.CreateObjective(23, "t", "o", "bob", "b", ("cy",), (m.Attachment("p"),)),
    f.ChangeObjective(24, "obj-1", o.Block("r")),
    f.ChangeObjective(24, "obj-1", o.Unblock()),
    f.ChangeObjective(24, "obj-1", o.Complete("r")),
    f.ChangeObjective(24, "obj-1", o.Cancel()),
    f.ChangeObjective(24, "obj-1", o.Reassign(MemberName("cy"), "n")),
    f.ChangeObjective(24, "obj-1", o.Watch((MemberName("cy"),), (MemberName("bob"),))),
    f.ListObjectives(25, (o.Status.DONE,), "bob", "obj-1", 3),
    f.ViewObjective(26, "obj-1", 5),
    f.UpdateMember(27, "bob", ("log.read",), "t", "d", "i"),
    f.SetReach(35, "bob"),
    f.SetReach(35, "bob", REACH),
    f.SetBusy(28, busy=False),
    f.IssueToken(29, "bob", "laptop", 5, "a token of one's own"),
    f.ListTokens(30, "bob"),
    f.Invite(36, "bob", 5, 2, kind=MemberKind.HUMAN),
    f.ListInvitations(37),
    f.RevokeInvitation(38, "i1"),
    f.RevokeToken(31, "bob", "t1"),
    f.ReadTeam(32),
    f.ListPauses(31),
    f.ReadStuck(31, 5, 7),
    f.AllowThread(32, "thread:t", 5),
    f.UpdateTeam(33, "n", "d", "c", {"lead": ("team.manage",), "old": None}),
    f.UpdateTeam(30, aliases={"lead": "bob", "old": None}),
]
HUB_FRAMES: list[f.HubFrame] = [
    f.Welcome(1, "s", "bob", "bob", 256, 1024),
    f.Welcome(1, "s", "operator", None, 1, 1024),
    f.Deliver(1, 2, MESSAGE),
    f.Deliver(2, 3, BARE),
    f.Progress("m1", "bob", "acked", 5),
    f.Progress("m1", "bob", "offered", 5, "hook"),
    f.Accepted(1, "m1", 7, 2),
    f.Accepted(1, "m1", 7, 2, duplicate=True),
    f.Refused(Code.UNKNOWN_MEMBER, "no", 4, ("bob",)),
    f.Refused(Code.SHUTTING_DOWN, "later"),
    f.Claimed(2, ITEM),
    f.Claimed(3),
    f.Inbox(4, (ITEM,), 3, complete=False),
    f.Receipts(5, "m1", (RECEIPT,)),
    f.Issued(6, "bob", "tie_x"),
    f.Roster(7, (f.MemberView("bob", "agent", ("log.read",), ("tieline",), 3, 1, None),)),
    f.ChannelList(8, (f.ChannelView("dev", ("bob",)),)),
    f.History(9, (MESSAGE, BARE)),
    f.Said(9, (BARE, MESSAGE)),
    f.Redaction(9, "operator", 1, again=True),
    f.Log(10, (f.LogRowView(0, 1, "{}", "ab"), f.LogRowView(1, 1, "{}")), 2),
    f.Readers(16, (LOG,), (READER,)),
    f.ReaderState(16, READER, LOG),
    f.Recorded(11, 2),
    f.Done(12),
    f.ActivityRows(13, (DONE_BY_BOB,)),
    f.Did((DONE_BY_BOB,), 3),
    f.Channel(14, f.ChannelView("dev", ("bob",), "c1", "bob", 1, 2, (IN_DEV,))),
    f.Objective(15, OBJECTIVE),
    f.ObjectiveList(16, (OBJECTIVE,), complete=True),
    f.ObjectiveStory(17, OBJECTIVE, tuple(STORY), complete=False),
    f.MemberState(18, f.MemberFile("bob", "agent", ("log.read",), "t", "d", "i", 1)),
    f.ReachState(22, "bob", REACH),
    f.TokenIssued(19, "bob", "tie_x", TOKEN),
    f.TokenList(20, (TOKEN,)),
    f.Invited(23, "tie_x", INVITATION),
    f.InvitationList(24, (INVITATION,)),
    f.TeamState(21, f.TeamView("n", "d", "c", {"lead": ("team.manage",)})),
    f.StuckList(22, (f.StuckView("m1", 7, "alice", "@bob", "hi", 5, "bob", "pending"),), ()),
    f.PauseList(22, (f.PauseView("@alice+@bob", 5, "", 2, "held: why"),)),
]


@pytest.mark.parametrize("frame", CLIENT_FRAMES, ids=lambda frame: type(frame).__name__)
def test_every_frame_of_a_client_round_trips(frame: f.ClientFrame) -> None:
    assert f.decode_client_batch(f.encode_batch([frame, frame])) == [frame, frame]


@pytest.mark.parametrize("frame", HUB_FRAMES, ids=lambda frame: type(frame).__name__)
def test_every_frame_of_the_hub_round_trips(frame: f.HubFrame) -> None:
    assert f.decode_hub_batch(f.encode_batch([frame, frame])) == [frame, frame]


def test_the_examples_above_leave_no_frame_out() -> None:
    assert {type(frame) for frame in CLIENT_FRAMES} == set(typing.get_args(f.ClientFrame))
    assert {type(frame) for frame in HUB_FRAMES} == set(typing.get_args(f.HubFrame))


def test_the_document_describes_every_frame_and_names_nothing_that_it_does_not_describe() -> None:
    made = document()
    schemas = made["components"]["schemas"]
    for name, union in (("ClientFrame", f.ClientFrame), ("HubFrame", f.HubFrame)):
        kinds = [schemas[one["$ref"].rpartition("/")[2]] for one in schemas[name]["oneOf"]]
        assert [kind["properties"]["t"]["enum"] for kind in kinds] == [
            [kind.__struct_config__.tag] for kind in typing.get_args(union)
        ]
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(made)))
    assert named <= set(schemas)


def test_tags_are_unique_in_each_direction() -> None:
    for union in (f.ClientFrame, f.HubFrame):
        tags = [kind.__struct_config__.tag for kind in typing.get_args(union)]
        assert len(set(tags)) == len(tags)


def test_a_message_is_encoded_once_and_carried_raw_as_if_it_were_whole() -> None:
    content = m.Content(target=to_member(MemberName("bob")), body="hi", data={"x": 1}, refs=("r",))
    message = m.Message(
        id=MessageId("m1"), offset=1, sender="alice", protocol="tieline", sent_at_ms=5, content=content, hops=3
    )
    raw = f.RawDeliver(4, 2, encode_message(message))
    (decoded,) = f.decode_hub_batch(f.encode_batch([raw]))
    assert decoded == f.Deliver(4, 2, derived.view_message(message))


def test_what_a_member_did_is_carried_raw_as_if_it_were_whole_in_frames_of_a_size() -> None:
    rows = [ActivityRow(at, MemberName("bob"), "llm", 1, 2, b'{"n":%d}' % at) for at in range(5)]
    frames = list(activity.did_frames(rows, 3, 20))
    decoded = f.decode_hub_batch(f.encode_batch(frames))
    assert [(len(frame.rows), frame.missed) for frame in decoded if isinstance(frame, f.Did)] == [
        (2, 3),
        (2, 0),
        (1, 0),
    ]
    (answer,) = f.decode_hub_batch(f.encode_batch([activity.answer_of(4, r.Activity(tuple(rows[:1])))]))
    assert answer == f.ActivityRows(4, (f.ActivityView(0, "bob", "llm", 1, 2, {"n": 0}),))


def test_the_sender_is_called_from_on_the_wire() -> None:
    (decoded,) = msgspec.json.decode(f.encode_batch([f.Deliver(1, 1, BARE)]))
    assert decoded["t"] == "deliver"
    assert decoded["message"]["from"] == "bob"
    assert "sender" not in decoded["message"]


def test_what_says_nothing_is_left_out() -> None:
    assert f.encode_batch([f.Send(1, "*", "x")]) == b'[{"t":"send","n":1,"target":"*","body":"x"}]'


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 80))
def test_frames_are_split_into_batches_that_are_as_large_as_they_may_be(sizes: list[int], size_max: int) -> None:
    frames = [msgspec.json.encode("x" * size) for size in sizes]
    batches = [msgspec.json.decode(batch) for batch in f.split_batch(frames, size_max)]
    assert [item for batch in batches for item in batch] == ["x" * size for size in sizes]
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        encoded = len(msgspec.json.encode(batch))
        assert encoded <= size_max or len(batch) == 1
        if following is not None:
            assert encoded + 1 + len(msgspec.json.encode(following[0])) > size_max, "another one would have fitted"


def test_frames_are_split_into_batches_of_no_more_values_than_the_hub_takes() -> None:
    frames = [msgspec.json.encode(f.Send(number, "*", "a, b", {"a": [[]] * 1000})) for number in range(120)]
    batches = list(f.split_batch(frames, 2**25))
    assert len(batches) > 1
    read = [frame for batch in batches for frame in f.decode_client_batch(batch)]
    assert [frame.n for frame in read if isinstance(frame, f.Send)] == list(range(120))


@pytest.mark.parametrize("value", ["[]", "{}", "1", '""'])
def test_a_batch_of_very_many_values_is_refused_before_it_is_decoded(value: str) -> None:
    data = f"[{','.join([value] * (VALUES_MAX + 1))}]"
    many = f'[{{"t":"send","n":1,"target":"*","body":"x","data":{{"a":{data}}}}}]'
    for payload in (many, many.encode(), "[" + '{"t":"members","n":1},' * VALUES_MAX):
        with pytest.raises(f.BadBatch, match="values"):
            f.decode_client_batch(payload)


def test_a_body_may_have_as_many_commas_as_it_likes() -> None:
    body = ",[{" * VALUES_MAX
    (read,) = f.decode_client_batch(f.encode_batch([f.Send(1, "*", body)]).decode())
    assert isinstance(read, f.Send)
    assert read.body == body


def test_fields_that_a_newer_client_adds_are_passed_over() -> None:
    assert f.decode_client_batch(b'[{"t":"members","n":1,"colour":"red"}]') == [f.ListMembers(1)]


NOT_BATCHES: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"hello",
    "not an array": b'{"t":"members","n":1}',
    "an unknown type": b'[{"t":"dance","n":1}]',
    "a frame of the hub": b'[{"t":"welcome","v":1}]',
    "no type": b'[{"n":1}]',
    "a missing field": b'[{"t":"send","n":1,"target":"*"}]',
    "a field of another kind": b'[{"t":"members","n":"one"}]',
    "something that is no frame": b"[1]",
    "a cut end": b'[{"t":"members","n":1}',
    "two values": b"[] []",
    "no text": b'[{"t":"claim","n":1,"id":"\xff"}]',
    "half a surrogate pair": b'[{"t":"claim","n":1,"id":"\\ud800"}]',
    "a very deep one": b"[" * 100_000,
    "deep data": b'[{"t":"send","n":1,"target":"*","body":"x","data":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}]",
    "an offset beyond any log": b'[{"t":"read_log","n":1,"start":99999999999999999999}]',
    "an offset before any history": b'[{"t":"read_history","n":1,"before":-99999999999999999999}]',
    "a key beyond any inbox": b'[{"t":"fetch","n":1,"after":99999999999999999999}]',
    "a limit beyond any page": b'[{"t":"fetch","n":1,"limit":99999999999999999999}]',
}


@pytest.mark.parametrize("payload", NOT_BATCHES.values(), ids=NOT_BATCHES.keys())
def test_what_is_not_a_batch_is_called_so(payload: bytes) -> None:
    with pytest.raises(f.BadBatch):
        f.decode_client_batch(payload)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_garbage_is_a_batch_or_is_called_none(garbage: bytes | str) -> None:
    for decode in (f.decode_client_batch, f.decode_hub_batch):
        try:
            decoded: list[Any] = list(decode(garbage))
        except f.BadBatch:
            continue
        assert all(isinstance(frame, f.Frame) for frame in decoded)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([kind.__struct_config__.tag for kind in typing.get_args(f.ClientFrame)]),
    st.dictionaries(st.sampled_from(["n", "target", "body", "data", "keys", "id", "after", "events"]), json_values),
)
def test_a_frame_with_anything_in_its_fields_is_read_or_refused(tag: str, fields: dict[str, Any]) -> None:
    payload = msgspec.json.encode([{"t": tag, **fields}])
    try:
        decoded = f.decode_client_batch(payload)
    except f.BadBatch:
        return
    assert f.decode_client_batch(f.encode_batch(decoded)) == decoded


# Between frames and the contract


def test_a_send_becomes_content_with_every_part() -> None:
    content = content_of(SEND)
    assert isinstance(content, m.Content)
    for name in ("body", "data", "title", "level", "priority", "kind", "topic", "scope", "thread", "reply_to"):
        assert getattr(content, name) == getattr(SEND, name), name
    assert (content.refs, content.attachments, content.ttl_ms) == (SEND.refs, SEND.attachments, SEND.ttl_ms)
    assert content.target == to_member(MemberName("bob"))


def test_a_target_that_is_none_is_refused_before_the_hub_is_asked() -> None:
    refusal = content_of(f.Send(1, "bob", "x"))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_TARGET


def test_views_say_states_in_words() -> None:
    message = m.Message(
        id=MessageId("m"),
        offset=0,
        sender="a",
        protocol="p",
        sent_at_ms=0,
        content=m.Content(target=EVERYBODY, body="b"),
    )
    assert derived.view_delivery(Delivery(1, 2, State.SEEN, message)).state == "seen"
    receipt = derived.view_receipt(Receipt("bob", 1, State.ACKED, (Step(State.PENDING, 1), Step(State.ACKED, 2))))
    assert [step.state for step in receipt.steps] == ["pending", "acked"]
    assert (
        derived.view_log_row(LogRow(offset=1, at_ms=2, event=b'{"event":"send"}', hash="ab")).event
        == '{"event":"send"}'
    )
    presence = Presence(Member(MemberName("bob"), MemberKind.HUMAN), ("tieline",), 1, None)
    assert derived.view_presence(presence).kind == "human"


def test_a_state_is_known_by_its_word_and_no_other_word_is_a_state() -> None:
    assert [parse_state(state.word) for state in State] == list(State)
    refusal = parse_state("finished")
    assert isinstance(refusal, Refusal)
    assert "acked" in refusal.message
