"""Tests of activity: one for each sentence of the protocol's own text. Other tests are in `test_activity_routes`."""

from pathlib import Path

import pytest

from tests.protocols.ac7.teams import Json, Seat, Team, team
from tests.stores.postgres_server import in_files

KINDS = pytest.mark.parametrize("kind", ["sse", "websocket"])


def opened(ts: int) -> Json:
    """Return an activity event: the member began to work on an objective."""
    return {"kind": "objective_open", "ts": ts, "objectiveId": "obj-1-1"}


def closed(ts: int) -> Json:
    """Return an activity event: the member stopped working on an objective."""
    return {"kind": "objective_close", "ts": ts, "objectiveId": "obj-1-1", "result": "done"}


def exchange(ts: int) -> Json:
    """Return an activity event: a call of a model."""
    said = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    request = {"model": "m", "maxTokens": 10, "temperature": 0.5, "system": "s", "messages": said, "tools": None}
    usage = {"inputTokens": 5, "outputTokens": 7, "cacheCreationInputTokens": None, "cacheReadInputTokens": None}
    response = {"stopReason": "end_turn", "stopSequence": None, "messages": said, "usage": usage, "status": 200}
    times = {"startedAt": ts, "endedAt": ts + 5}
    entry = {"kind": "anthropic_messages", **times, "request": request, "response": response}
    return {"kind": "llm_exchange", "ts": ts, "duration": 5, "entry": entry}


def opaque(ts: int) -> Json:
    """Return an activity event: an HTTP request that is not a call of a model."""
    entry = {
        "kind": "opaque_http",
        "startedAt": ts,
        "endedAt": ts + 5,
        "host": "example.test",
        "method": "GET",
        "url": "https://example.test/a?b=c",
        "status": None,
        "requestHeaders": {"accept": "*/*"},
        "responseHeaders": {},
        "requestBodyPreview": None,
        "responseBodyPreview": "x",
    }
    return {"kind": "opaque_http", "ts": ts, "duration": 5, "entry": entry}


async def upload(seat: Seat, *events: Json) -> None:
    """Upload activity events of a member. All must be accepted."""
    reply = await seat.do("POST", f"/members/{seat.name}/activity", 201, events=events)
    assert reply == {"accepted": len(events)}


async def kept(seat: Seat, name: str, query: str = "") -> list[Json]:
    """Return the stored activity of a member, oldest first. `query` is the query part of the path."""
    rows: list[Json] = (await seat.get(f"/members/{name}/activity{query}"))["activity"]
    return rows[::-1]


@KINDS
async def test_activity_events_are_markers_exchanges_and_opaque_records_and_come_as_they_were_uploaded(
    crew: Team, kind: str
) -> None:
    ann = await crew.seat("ann")
    stream = await crew.follow(ann, "/members/ann/activity/stream", kind)
    events = [opened(1), exchange(2), opaque(3), closed(4)]
    await upload(ann, *events)
    rows = [await stream.row() for _ in events]
    assert [row["event"] for row in rows] == events
    assert await kept(ann, "ann") == rows


@in_files
async def test_activity_is_append_only_and_time_range_queryable(folder: Path) -> None:
    home = folder / "home"
    async with team(home) as crew:
        ann = await crew.seat("ann")
        await upload(ann, opened(10), exchange(20))
        first = await kept(ann, "ann")
        # Earlier than what is there, and later: neither changes it.
        await upload(ann, opaque(5), closed(30))
        rows = await kept(ann, "ann")
        assert [row for row in rows if row in first] == first
        assert [row["event"]["ts"] for row in rows] == [5, 10, 20, 30]
    async with team(home) as again:
        ann.url = again.url
        assert await kept(ann, "ann") == rows, "it is there after a restart"
        times = {"?from=10&to=20": [10, 20], "?from=11&to=19": [], "?to=5": [5], "?from=30": [30]}
        for query, expected in times.items():
            assert [row["event"]["ts"] for row in await kept(ann, "ann", query)] == expected
    assert {path.name for path in home.glob("*activity*")}, "in a file of its own"


@KINDS
async def test_activity_events_never_reach_a_channel_stream(crew: Team, kind: str) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "activity.read", "members.manage")
    streams = [await crew.open(seat, kind) for seat in (ann, boss)]
    await upload(ann, opened(1), exchange(2), closed(3))
    await ann.push("a message", to="boss")
    assert [(await stream.next())["body"] for stream in streams] == ["a message"] * 2
    for seat in (ann, boss):
        assert await seat.said() == ["a message"], "nor is it in the history"
    assert [row["event"]["ts"] for row in await kept(boss, "ann")] == [1, 2, 3], "nor are messages in the activity"


@KINDS
async def test_activity_is_visible_to_self_and_members_with_activity_read_each_seeing_the_same(
    crew: Team, kind: str
) -> None:
    ann, eve, bob = await crew.seat("ann"), await crew.seat("eve", "activity.read"), await crew.seat("bob")
    path = "/members/ann/activity/stream"
    streams = [await crew.follow(seat, path, kind) for seat in (ann, eve)]
    own = await crew.follow(bob, "/members/bob/activity/stream", kind)
    await upload(ann, opened(1))
    await upload(bob, opened(2))
    rows = [await stream.row() for stream in streams]
    assert rows[0] == rows[1]
    assert (await own.row())["event"]["ts"] == 2, "of others it sees nothing"
    assert await kept(ann, "ann") == await kept(eve, "ann") == rows[:1]
    assert await bob.refused(403, "GET", "/members/ann/activity")
    assert await bob.refused(403, "GET", path)
