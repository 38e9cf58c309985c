"""Tests of activity through the HTTP routes: it is uploaded, read by time and kind, and followed as a stream.

It never appears on a stream of messages.
"""

import asyncio
import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from tests.protocols.ac7.teams import EventReader, Json, Seat, SocketReader, Team
from tieline.contract.redaction import REDACTED
from tieline.wire.json_text import VALUES_MAX

KINDS = pytest.mark.parametrize("kind", ["sse", "websocket"])


def opened(ts: int, objective: str = "obj-1") -> Json:
    return {"kind": "objective_open", "ts": ts, "objectiveId": objective}


def exchange(ts: int, text: str = "hello", **more: Any) -> Json:
    """Return an activity event: a call of a model at the time `ts`."""
    said = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    request = {"model": "m", "maxTokens": 10, "temperature": None, "system": None, "messages": said, "tools": None}
    usage = {"inputTokens": 5, "outputTokens": 7, "cacheCreationInputTokens": None, "cacheReadInputTokens": None}
    response: Json = {"stopReason": "end_turn", "stopSequence": None, "messages": [], "usage": usage, "status": 200}
    entry = {
        "kind": "anthropic_messages",
        "startedAt": ts,
        "endedAt": ts + 5,
        "request": request,
        "response": response,
    }
    return {"kind": "llm_exchange", "ts": ts, "duration": 5, "entry": {**entry, **more}}


def http(ts: int, **headers: str) -> Json:
    """Return an activity event: an HTTP request, not to a model, at the time `ts`."""
    entry = {
        "kind": "opaque_http",
        "startedAt": ts,
        "endedAt": ts,
        "host": "example.test",
        "method": "GET",
        "url": "https://example.test/",
        "status": 200,
        "requestHeaders": headers,
        "responseHeaders": {},
        "requestBodyPreview": None,
        "responseBodyPreview": None,
    }
    return {"kind": "opaque_http", "ts": ts, "duration": 0, "entry": entry}


async def upload(seat: Seat, *events: Json) -> int:
    accepted: int = (await seat.do("POST", f"/members/{seat.name}/activity", 201, events=events))["accepted"]
    return accepted


async def activity(seat: Seat, name: str, query: str = "") -> list[Json]:
    rows: list[Json] = (await seat.get(f"/members/{name}/activity{query}"))["activity"]
    return rows


async def test_what_an_agent_did_is_kept_and_read_by_time_and_kind_newest_first(crew: Team) -> None:
    ann = await crew.seat("ann")
    closed = {"kind": "objective_close", "ts": 40, "objectiveId": "obj-1", "result": "done"}
    assert await upload(ann, opened(10), exchange(20), http(30), closed) == 4
    rows = await activity(ann, "ann")
    assert [row["event"]["ts"] for row in rows] == [40, 30, 20, 10]
    assert {(row["memberName"], *sorted(row)) for row in rows} == {("ann", "createdAt", "event", "id", "memberName")}
    assert rows[2]["event"] == exchange(20)
    assert [row["event"]["ts"] for row in await activity(ann, "ann", "?from=20&to=30")] == [30, 20]
    assert [row["event"]["ts"] for row in await activity(ann, "ann", "?kind=llm_exchange&kind=objective_open")] == [
        20,
        10,
    ]
    assert [row["event"]["ts"] for row in await activity(ann, "ann", "?limit=1")] == [40]
    for query in ("?kind=other", "?from=yesterday", "?to=-1"):
        assert await ann.refused(400, "GET", f"/members/ann/activity{query}")


async def test_an_upload_has_one_to_five_hundred_events_and_is_kept_whole_or_not_at_all(crew: Team) -> None:
    ann = await crew.seat("ann")
    wrong: list[Any] = [
        [],
        [opened(1)] * 501,
        [opened(1), {"kind": "unknown"}],
        [opened(1), {"kind": "", "ts": 1}],
        [opened(1), {"ts": 1}],
        [opened(1), {"kind": "objective_close", "ts": 1, "objectiveId": "x", "result": "bored"}],
        [exchange(1, kind="other")],
        [opened(-1)],
        ["text"],
        "text",
    ]
    for events in wrong:
        text = await ann.refused(400, "POST", "/members/ann/activity", {"events": events})
        assert text.startswith("invalid activity payload")
    assert await ann.refused(400, "POST", "/members/ann/activity", b"{")
    assert await activity(ann, "ann") == []
    assert await upload(ann, *[opened(number) for number in range(500)]) == 500
    assert len(await activity(ann, "ann", "?limit=5000")) == 500


async def test_activity_is_for_oneself_and_who_has_activity_read(crew: Team) -> None:
    ann, bob, eve = await crew.seat("ann"), await crew.seat("bob"), await crew.seat("eve", "activity.read")
    await upload(ann, opened(1))
    assert len(await activity(eve, "ann")) == 1
    assert await bob.refused(403, "GET", "/members/ann/activity")
    assert await bob.refused(403, "GET", "/members/nobody/activity"), "nor does it learn who is not there"
    assert await activity(eve, "nobody") == [], "as the first server answers"
    assert await eve.refused(403, "POST", "/members/ann/activity", {"events": [opened(1)]})
    for path in ("/members/ann/activity/stream", "/members/nobody/activity/stream"):
        assert await bob.refused(403, "GET", path)
    assert await eve.refused(404, "GET", "/members/nobody/activity/stream")
    assert await crew.stranger.refused(401, "GET", "/members/ann/activity/stream")


async def test_secrets_are_taken_out_before_anything_is_kept(crew: Team) -> None:
    ann = await crew.seat("ann")
    await upload(ann, http(1, authorization="Bearer abcdefgh12345678"), exchange(2, "key sk-abcdefghijklmnopqrstuv"))
    said, asked = await activity(ann, "ann")
    assert asked["event"]["entry"]["requestHeaders"] == {"authorization": REDACTED}
    assert "abcdefgh" not in json.dumps([said, asked])


@KINDS
async def test_who_follows_a_member_sees_each_event_as_it_comes_and_messages_never(crew: Team, kind: str) -> None:
    ann, eve = await crew.seat("ann"), await crew.seat("eve", "activity.read")
    path = "/members/ann/activity/stream"
    stream = await crew.follow(eve, path, kind)
    messages = await crew.open(ann, kind)
    await eve.push("a message", to="ann")
    assert (await messages.next())["body"] == "a message"
    await upload(ann, opened(1), http(2))
    rows = [await stream.row() for _ in range(2)]
    assert rows == (await activity(eve, "ann"))[::-1]
    await eve.push("another message", to="ann")
    assert (await messages.next())["body"] == "another message", "activity is not among them"


async def test_a_follower_who_loses_the_permission_is_cut_off(crew: Team) -> None:
    await crew.seat("ann")
    eve, boss = await crew.seat("eve", "activity.read"), await crew.seat("boss", "members.manage")
    events = await crew.follow(eve, "/members/ann/activity/stream", "sse")
    socket = await crew.follow(eve, "/members/ann/activity/stream", "websocket")
    await boss.do("PATCH", "/members/eve", permissions=[])
    assert isinstance(events, EventReader)
    assert isinstance(socket, SocketReader)
    assert (await events.line()).startswith(": 1008")
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(socket.socket.recv(), 10)
    assert socket.socket.close_code == 1008


async def test_a_large_upload_reaches_its_followers_whole(crew: Team) -> None:
    ann = await crew.seat("ann")
    stream = await crew.follow(ann, "/members/ann/activity/stream", "websocket")
    await upload(ann, *[exchange(number, "x" * 300_000) for number in range(20)])
    assert [(await stream.row())["event"]["ts"] for _ in range(20)] == list(range(20))


async def test_an_upload_has_so_many_values_and_each_event_fewer(crew: Team) -> None:
    ann = await crew.seat("ann")

    def event(values: int) -> Json:
        return {"kind": "x", "ts": 1, "values": [0] * values}

    assert await upload(ann, event(VALUES_MAX // 2), event(VALUES_MAX // 2), event(VALUES_MAX // 2)) == 3
    for events in ([event(VALUES_MAX)], [event(VALUES_MAX - 10)] * 6):
        await ann.do("POST", "/members/ann/activity", 413, events=events)
