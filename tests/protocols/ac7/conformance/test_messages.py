"""Tests of messages, one for each sentence of the protocol: their shape, and their way from a push to every stream."""

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.protocols.ac7.conformance.shapes.messages import Message
from tests.protocols.ac7.teams import Json, Seat, Team, team

KINDS = pytest.mark.parametrize("kind", ["sse", "websocket"])
LEVELS = ("debug", "info", "notice", "warning", "error", "critical")
KEYS = set(Message.__struct_encode_fields__)
WRONG: tuple[Any, ...] = (
    [],
    {},
    {"body": ""},
    {"body": 5},
    {"body": "x" * 65_537},
    {"body": "x", "title": "t" * 201},
    {"body": "x", "level": "loud"},
    {"body": "x", "data": []},
    {"body": "x", "to": "no such name!"},
    {"body": "x", "to": ""},
    {"body": "x", "attachments": {}},
    {"body": "x", "attachments": [{"path": "/a/b", "name": "b", "size": 1, "mimeType": "t"}] * 65},
)

# The shape.


async def test_an_event_has_a_sender_a_target_a_body_a_timestamp_a_thread_and_a_bag_of_meta_fields(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    stream = await crew.open(ann)
    before = time.time_ns() // 1_000_000
    thread = f"chan:{channel['id']}"
    await ann.push("said", title="a title", data={"thread": thread, "ticket": 7})
    message = await stream.next()
    assert (message["from"], message["to"], message["body"], message["title"]) == ("ann", None, "said", "a title")
    assert message["data"] == {"thread": thread, "ticket": 7}
    assert before <= message["ts"] <= time.time_ns() // 1_000_000
    await bob.push("to her", to="ann")
    assert (await stream.next())["to"] == "ann"


async def test_all_nine_keys_are_there_however_little_was_said(crew: Team) -> None:
    ann = await crew.seat("ann")
    message = (await ann.push("x"))["message"]
    assert set(message) == KEYS
    assert len(KEYS) == 9
    left_out = {key: message[key] for key in ("to", "title", "level", "data", "attachments")}
    assert left_out == {"to": None, "title": None, "level": "info", "data": {}, "attachments": []}
    nulls = {"to": None, "title": None, "data": None, "attachments": None}
    explicit = (await ann.push("x", **nulls))["message"]
    assert {key: explicit[key] for key in left_out} == left_out


async def test_the_level_is_one_of_six_and_arrives_as_it_was_given(crew: Team) -> None:
    ann = await crew.seat("ann")
    for level in LEVELS:
        assert (await ann.push("x", level=level))["message"]["level"] == level
    assert [message["level"] for message in await ann.history()] == list(LEVELS)
    assert await ann.refused(400, "POST", "/push", {"body": "x", "level": "fatal"})


async def test_from_is_always_stamped_by_the_broker_based_on_who_authenticated_the_request(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    stream = await crew.open(eve)
    for seat in (ann, bob, eve):
        await seat.push("who am I")
        assert (await stream.next())["from"] == seat.name


async def test_push_payloads_cannot_override_from(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    result = await ann.push("hello", **{"from": "bob", "to": "bob", "data": {"from": "bob"}})
    assert result["message"]["from"] == "ann"
    assert (await bob.history())[-1]["from"] == "ann"


async def test_to_is_null_for_broadcasts_and_a_member_name_for_dms(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    stream = await crew.open(bob)
    await ann.push("to all")
    await ann.push("to one", to="bob")
    assert [(await stream.next())["to"] for _ in range(2)] == [None, "bob"]


async def test_the_broker_strips_its_reserved_keys_so_that_a_push_cannot_spoof_from_thread_ts_or_msg_id(
    crew: Team,
) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    forged = {"from": "bob", "ts": 1, "msg_id": "x", "level": "critical", "tieline": {"verified": False}}
    stream = await crew.open(bob)
    result = await ann.push("hello", to="bob", data={**forged, "other": True})
    assert result["message"]["data"] == {"other": True}
    assert await stream.next() == result["message"]
    # A thread that was not checked is nothing that a message could claim to be in.
    assert await ann.refused(404, "POST", "/push", {"body": "x", "to": "bob", "data": {"thread": "chan:none"}})
    assert (await bob.history())[-1]["data"] == {"other": True}


async def test_everything_else_in_data_flows_through_verbatim(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    data: dict[str, Any] = {
        "empty": {},
        "list": [1, -2.5, 1e-7, True, None, "", [[]]],
        "deep": {"a": {"b": {"c": [{"d": "e"}]}}},
        "text": '</channel> "quoted" \\ \u0000 \u2028 \N{SNOWMAN} \N{PILE OF POO}',
        "From": "not reserved",
        "data.from": "nor this",
        "": "a key of no letters",
        "large": 2**53 - 1,
    }
    stream = await crew.open(bob)
    result = await ann.push("x", to="bob", data=data)
    assert result["message"]["data"] == data
    assert (await stream.next())["data"] == data
    assert (await bob.history())[-1]["data"] == data


async def test_attachments_is_always_an_array_and_empty_when_there_are_no_files(crew: Team) -> None:
    ann = await crew.seat("ann")
    stream = await crew.open(ann)
    ways: tuple[Json, ...] = ({}, {"attachments": None}, {"attachments": []})
    for fields in ways:
        assert (await ann.push("x", **fields))["message"]["attachments"] == []
        assert (await stream.next())["attachments"] == []
    assert all(message["attachments"] == [] for message in await ann.history())


# From a push to the streams.


async def test_the_system_is_push_not_poll_and_events_arrive_within_milliseconds(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    stream = await crew.open(bob)
    taken = []
    for number in range(20):
        started = time.monotonic()
        await ann.push(str(number), to="bob")
        assert (await stream.next())["body"] == str(number)
        taken.append(time.monotonic() - started)
    # Far more than it takes, and far less than any polling would.
    assert median(taken) < 1


async def test_a_push_is_validated_against_the_schema(crew: Team) -> None:
    ann = await crew.seat("ann")
    for wrong in WRONG:
        assert (await ann.refused(400, "POST", "/push", wrong)).startswith("invalid push payload"), wrong
    assert await ann.said() == [], "nothing of it was kept"
    longest = await ann.push("x" * 65_536, title="t" * 200)
    assert len(longest["message"]["body"]) == 65_536


async def test_a_push_is_written_to_the_event_log_which_is_queryable_by_history(folder: Path) -> None:
    home = folder / "home"
    async with team(home) as crew:
        ann, bob = await crew.seat("ann"), await crew.seat("bob")
        said = [(await ann.push(f"m{number}", to="bob"))["message"] for number in range(5)]
        tokens = crew.there.tokens
    async with team(home) as again:
        for name in ("ann", "bob"):
            seat = ann if name == "ann" else bob
            seat.url, seat.token = again.url, tokens[name]
            assert await seat.history() == said, "what was accepted is there after a restart, in its order"


@KINDS
async def test_fanout_pushes_the_frame_to_every_live_subscriber_of_each_recipient(crew: Team, kind: str) -> None:
    seats = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    # Opened last, the second stream of ann tells the first that it is online.
    streams = [await crew.open(seat, kind) for seat in (*seats, seats[0])]
    assert (await streams[0].next())["title"] == "ac7 session online"
    for number in range(3):
        result = await seats[number].push(f"to all {number}")
        assert result["delivery"] == {"live": 4, "targets": 3}
    for stream in streams:
        assert [(await stream.next())["body"] for _ in range(3)] == [f"to all {number}" for number in range(3)]


@KINDS
async def test_a_dm_or_broadcast_is_delivered_back_to_the_senders_own_stream_too(crew: Team, kind: str) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    laptop, other = await crew.open(ann, kind), await crew.open(bob, kind)
    direct = await ann.push("hello", to="bob", title="a title", level="warning", data={"k": [1]})
    assert direct["delivery"] == {"live": 2, "targets": 1}
    broadcast = await ann.push("hello all")
    for stream in (laptop, other):
        assert await stream.next() == direct["message"]
        assert await stream.next() == broadcast["message"]
    assert (await bob.history())[-2:] == [direct["message"], broadcast["message"]]


async def test_a_message_is_the_same_on_both_kinds_of_stream_and_in_the_history(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    streams = [await crew.open(ann, "sse"), await crew.open(bob, "websocket")]
    for fields in ({"to": "bob"}, {}, {"data": {"thread": "chan:general", "k": 1}}):
        pushed = (await ann.push("same", **fields))["message"]
        assert [await stream.next() for stream in streams] == [pushed, pushed]
        assert (await ann.history())[-1] == (await bob.history())[-1] == pushed


@pytest.mark.slow
@KINDS
async def test_what_members_say_to_each_other_at_once_is_on_the_streams_of_both_in_log_order(
    crew: Team, kind: str
) -> None:
    seats = [await crew.seat("ann"), await crew.seat("bob")]
    streams = [await crew.open(seat, kind) for seat in seats]

    async def lane(seat: Seat, other: Seat, number: int) -> None:
        for index in range(10):
            # To the other, to both, and to oneself.
            await seat.push(f"{seat.name} {number} {index}", to=(other.name, None, seat.name)[index % 3])

    ann, bob = seats
    lanes = [lane(seat, other, number) for seat, other in ((ann, bob), (bob, ann)) for number in range(10)]
    await asyncio.gather(*lanes)
    for seat, stream in zip(seats, streams, strict=True):
        expected = [message["id"] for message in await seat.history("?limit=1000") if message["from"] != "ac7"]
        assert [(await stream.next())["id"] for _ in expected] == expected
        assert len(expected) == 10 * (10 + 7)
