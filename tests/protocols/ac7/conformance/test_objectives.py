"""Tests of objectives and their events on streams: one for each sentence of the protocol's own text."""

from pathlib import Path
from typing import Any

import pytest

from tests.protocols.ac7.teams import Json, Reader, Seat, Team, team

OVERSIGHT = ("objectives.create", "objectives.cancel", "objectives.reassign", "objectives.watch")


class Work:
    """Test helper: an objective, and the open stream of each member."""

    def __init__(self, crew: Team, seats: dict[str, Seat], made: Json) -> None:
        self.crew = crew
        self.seats = seats
        self.id: str = made["id"]
        self.path = f"/objectives/{self.id}"
        self.streams: dict[str, Reader] = {}

    async def do(self, who: str, method: str, end: str = "", **body: Any) -> Json:
        """Change the objective as member `who`. `end` is added to its path. Return the answer."""
        changed: Json = await self.seats[who].do(method, self.path + end, **body)
        return changed

    async def heard(self, who: str) -> Json:
        """Wait for the next message on the stream of member `who`, which must be about the objective. Return it."""
        message = await self.streams[who].next()
        assert message["to"] is None
        assert message["level"] == "info"
        assert message["data"]["kind"] == "objective"
        assert message["data"]["thread"] == f"obj:{self.id}"
        kind = message["data"]["event"]["kind"]
        assert message["body"].startswith(f"[objective {kind}] {self.id}\n")
        return message

    async def told(self, payload: Json, actor: str, *names: str) -> None:
        """Check that all these members get the same next event, with this payload, from `actor`."""
        heard = [await self.heard(name) for name in names]
        assert [message["data"]["event"] for message in heard] == [payload] * len(names)
        assert {message["from"] for message in heard} == {actor}
        assert len({message["id"] for message in heard}) == 1, "one message, for everybody"


async def given(crew: Team, *watchers: str) -> Work:
    """Let boss create an objective for ann, and open all streams. Kim manages members, and eve has no part in it."""
    seats = {
        "boss": await crew.seat("boss", *OVERSIGHT),
        "kim": await crew.seat("kim", "members.manage"),
        **{name: await crew.seat(name) for name in ("ann", "bob", "wes", "eve")},
    }
    streams = {
        name: await crew.open(seat, "websocket" if name in {"kim", "wes"} else "sse") for name, seat in seats.items()
    }
    made = await seats["boss"].do(
        "POST", "/objectives", title="T", outcome="O", body="B", assignee="ann", watchers=list(watchers)
    )
    work = Work(crew, seats, made)
    work.streams = streams
    return work


THREAD = ("ann", "boss", "wes", "kim")
"""Members of the objective's thread: assignee, originator, watcher, and a manager of members."""


async def begun(crew: Team) -> tuple[Work, Json]:
    """Create an objective with a watcher, and read its first events on all streams.

    Return it, with the keys that every event has.
    """
    work = await given(crew, "wes")
    same = {"objectiveId": work.id}
    assigned = {**same, "title": "T", "outcome": "O", "originator": "boss", "watchers": ["wes"]}
    await work.told({"kind": "assigned", **assigned}, "boss", *THREAD)
    await work.told({"kind": "watcher_added", **same, "name": "wes"}, "boss", *THREAD)
    return work, same


async def test_assigned_says_objective_id_title_outcome_originator_and_watchers(crew: Team) -> None:
    await begun(crew)


async def test_blocked_says_objective_id_and_block_reason(crew: Team) -> None:
    work, same = await begun(crew)
    assert (await work.do("ann", "PATCH", status="blocked", blockReason="no disk"))["status"] == "blocked"
    await work.told({"kind": "blocked", **same, "blockReason": "no disk"}, "ann", *THREAD)


async def test_unblocked_says_objective_id(crew: Team) -> None:
    work, same = await begun(crew)
    await work.do("ann", "PATCH", status="blocked", blockReason="no disk")
    assert (await work.do("ann", "PATCH", status="active"))["blockReason"] is None
    for name in THREAD:
        await work.heard(name)
    await work.told({"kind": "unblocked", **same}, "ann", *THREAD)


async def test_completed_says_objective_id_and_result(crew: Team) -> None:
    work, same = await begun(crew)
    done = await work.do("ann", "POST", "/complete", result="done it")
    assert (done["status"], done["result"], done["completedAt"] >= done["createdAt"]) == ("done", "done it", True)
    await work.told({"kind": "completed", **same, "result": "done it"}, "ann", *THREAD)


@pytest.mark.parametrize("reason", ["not wanted", None])
async def test_cancelled_says_objective_id_and_reason(crew: Team, reason: str | None) -> None:
    work, same = await begun(crew)
    assert (await work.do("boss", "POST", "/cancel", **({"reason": reason} if reason else {})))["status"] == "cancelled"
    await work.told({"kind": "cancelled", **same, "reason": reason}, "boss", *THREAD)


@pytest.mark.parametrize("note", ["a note", None])
async def test_reassigned_says_objective_id_from_and_to_assignee_and_note(crew: Team, note: str | None) -> None:
    work, same = await begun(crew)
    moved = await work.do("boss", "POST", "/reassign", to="bob", **({"note": note} if note else {}))
    assert moved["assignee"] == "bob"
    payload = {"kind": "reassigned", **same, "fromAssignee": "ann", "toAssignee": "bob", "note": note}
    # Its new assignee hears of it, and so does the old one, for the last time.
    await work.told(payload, "boss", *THREAD, "bob")
    await work.do("bob", "POST", "/complete", result="r")
    await work.told({"kind": "completed", **same, "result": "r"}, "bob", "bob", "boss", "wes", "kim")
    await work.seats["bob"].push("nothing else came", to="ann")
    assert (await work.streams["ann"].next())["body"] == "nothing else came"


async def test_watcher_added_says_objective_id_and_name(crew: Team) -> None:
    work, same = await begun(crew)
    assert (await work.do("boss", "POST", "/watchers", add=["bob"]))["watchers"] == ["wes", "bob"]
    await work.told({"kind": "watcher_added", **same, "name": "bob"}, "boss", *THREAD, "bob")


async def test_watcher_removed_says_objective_id_and_name(crew: Team) -> None:
    work, same = await begun(crew)
    assert (await work.do("boss", "POST", "/watchers", remove=["wes"]))["watchers"] == []
    # A removed watcher hears of the removal, and of nothing after it.
    await work.told({"kind": "watcher_removed", **same, "name": "wes"}, "boss", *THREAD)
    await work.do("ann", "POST", "/complete", result="r")
    await work.told({"kind": "completed", **same, "result": "r"}, "ann", "ann", "boss", "kim")
    await work.seats["bob"].push("nothing else came", to="wes")
    assert (await work.streams["wes"].next())["body"] == "nothing else came"


async def test_state_transitions_arrive_on_the_assignees_stream_with_the_objectives_thread(crew: Team) -> None:
    work, _ = await begun(crew)
    await work.do("ann", "PATCH", status="blocked", blockReason="b")
    await work.do("ann", "POST", "/complete", result="r")
    kinds = [(await work.heard("ann"))["data"]["event"]["kind"] for _ in range(2)]
    assert kinds == ["blocked", "completed"], "and its own doing is not kept from it"


async def test_each_event_carries_enough_information_to_react_without_a_view(crew: Team) -> None:
    work = await given(crew)
    body = (await work.heard("ann"))["body"].split("\n")
    said = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in body[1:]}
    assert said == {
        "title": "T",
        "outcome": "O",
        "assignee": "ann",
        "originator": "boss",
        "status": "active",
        "body": "B",
    }


async def test_whoever_has_no_part_in_an_objective_hears_nothing_of_it(crew: Team) -> None:
    work, _ = await begun(crew)
    await work.do("ann", "POST", "/discuss", body="psst")
    await work.do("ann", "POST", "/complete", result="r")
    for name in ("eve", "bob"):
        seat = work.seats[name]
        assert await seat.said() == []
        await seat.push("nothing else came", to=name)
        assert (await work.streams[name].next())["body"] == "nothing else came"
        assert (await seat.get("/objectives"))["objectives"] == []


async def test_what_is_discussed_goes_to_the_same_thread(crew: Team) -> None:
    work, _ = await begun(crew)
    said = await work.do("wes", "POST", "/discuss", body="nearly there", title="t")
    assert (said["data"], said["from"], said["to"], said["title"]) == ({"thread": f"obj:{work.id}"}, "wes", None, "t")
    for name in THREAD:
        assert await work.streams[name].next() == said


async def test_the_event_log_is_append_only_and_has_an_entry_for_each_event(crew: Team) -> None:
    work, _ = await begun(crew)
    seen: list[Json] = []
    for who, method, end, body in (
        ("ann", "PATCH", "", {"status": "blocked", "blockReason": "b"}),
        ("ann", "PATCH", "", {"status": "active"}),
        ("boss", "POST", "/reassign", {"to": "bob"}),
        ("boss", "POST", "/watchers", {"add": ["ann"], "remove": ["wes"]}),
        ("bob", "POST", "/complete", {"result": "r"}),
    ):
        await work.do(who, method, end, **body)
        events = (await work.seats["boss"].get(work.path))["events"]
        assert events[: len(seen)] == seen, "what was there is as it was"
        assert len(events) > len(seen)
        seen = events
    assert [event["kind"] for event in seen] == [
        "assigned",
        "watcher_added",
        "blocked",
        "unblocked",
        "reassigned",
        "watcher_added",
        "watcher_removed",
        "completed",
    ]
    assert await work.seats["bob"].refused(409, "POST", f"{work.path}/complete", {"result": "again"})
    assert await work.seats["boss"].refused(409, "POST", f"{work.path}/cancel", {})
    assert (await work.seats["boss"].get(work.path))["events"] == seen


async def test_state_event_log_and_messages_are_there_together_after_a_restart(folder: Path) -> None:
    home = folder / "home"
    async with team(home) as crew:
        work, _ = await begun(crew)
        await work.do("ann", "PATCH", status="blocked", blockReason="b")
        await work.do("boss", "POST", "/reassign", to="bob", note="n")
        await work.do("bob", "POST", "/complete", result="r")
        before = await work.seats["boss"].get(work.path)
        heard = {name: await work.seats[name].history() for name in (*THREAD, "bob", "eve")}
        seats = work.seats
    async with team(home) as again:
        for seat in seats.values():
            seat.url = again.url
        assert await seats["boss"].get(work.path) == before
        assert {name: await seats[name].history() for name in heard} == heard
        events = [(event["kind"], event["actor"], event["ts"]) for event in before["events"]]
        said = [message for message in heard["boss"] if message["data"].get("kind") == "objective"]
        assert [(one["data"]["event"]["kind"], one["from"], one["ts"]) for one in said] == events
