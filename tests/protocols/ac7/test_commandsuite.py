"""Tests of CommandSuite's runners with the hub, by a test double that sends and reads like version 0.7.1.

No registry has the packages of CommandSuite, so its real clients are not run here. The requests were read in its
source.
"""

import re

import pytest
from msgspec.structs import replace

from tests.protocols.ac7.teams import EventReader, Json, Reply, Seat, Team
from tests.protocols.ac7.test_activity_routes import exchange, http, opened

EVENTS: list[Json] = [
    {"kind": "session_start", "ts": 1, "runner": "claude", "runnerVersion": "0.7.1", "captureTier": "full"},
    {"kind": "user_prompt", "ts": 2, "text": "do it", "promptId": "p-1", "agent": "claude"},
    {"kind": "tool_action", "ts": 3, "toolName": "Bash", "durationMs": 1.5, "input": {"a": 1}, "isError": False},
    {
        "kind": "context_control",
        "ts": 4,
        "requestId": "r-1",
        "verb": "compact",
        "outcome": "applied",
        "requestedBy": "boss",
    },
    {
        "kind": "session_end",
        "ts": 5,
        "runner": "claude",
        "reason": "exit",
        "exitCode": 0,
        "durationMs": 12,
        "capture": {"enqueued": 4, "uploaded": 4, "dropped": 0},
    },
]


KNOWN = {event["kind"] for event in EVENTS} | {"objective_open", "objective_close", "llm_exchange"}


class Runner(Seat):
    """Test client: a member for which a runner of CommandSuite acts."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        kept = {name: value for name, value in super().headers.items() if name != "x-ac7-protocol"}
        return {**kept, "x-csuite-protocol": "2", "x-csuite-runner-version": "0.7.1"}

    def read(self, method: str, path: str, reply: Reply) -> None:
        """Check that an answer has the form of ac7.

        The runner's own kinds of events and its device code are allowed.
        """
        if method == "GET" and path.partition("?")[0].endswith("/activity") and reply.status == 200:
            assert {row["event"]["kind"] for row in reply.value["activity"]} <= KNOWN
        else:
            # Only the prefix of a device code differs.
            super().read(method, path, replace(reply, text=reply.text.replace('"csuite-dc_', '"ac7-dc_')))


async def runner(crew: Team, name: str, *permissions: str) -> Runner:
    seat = await crew.seat(name, *permissions)
    return Runner(seat.url, seat.name, seat.token)


async def kinds(seat: Seat, name: str, query: str = "") -> list[str]:
    rows = (await seat.get(f"/members/{name}/activity{query}"))["activity"]
    return [row["event"]["kind"] for row in rows][::-1]


async def test_a_runner_of_commandsuite_reads_its_instructions(crew: Team) -> None:
    ann = await runner(crew, "ann")
    read = await ann.get("/instructions")
    assert read == {**await ann.get("/briefing"), "toolSources": []}


async def test_a_device_of_commandsuite_gets_a_code_that_its_program_takes(crew: Team) -> None:
    device, boss = Runner(crew.url), await crew.seat("boss", "members.manage")
    started = (await device.ask("POST", "/enroll", {"labelHint": "a runner"})).value
    assert re.fullmatch(r"csuite-dc_[A-Za-z0-9_-]{40,64}", started["deviceCode"])
    older = (await crew.stranger.ask("POST", "/enroll", {})).value
    assert re.fullmatch(r"ac7-dc_[A-Za-z0-9_-]{40,64}", older["deviceCode"])
    await boss.do("POST", "/enroll/approve", mode="bind", userCode=started["userCode"], memberName="boss")
    fetched = await device.do("POST", "/enroll/poll", deviceCode=started["deviceCode"])
    assert fetched["member"]["name"] == "boss"


@pytest.mark.parametrize(
    ("form", "busy"),
    [
        ({"state": "working"}, True),
        ({"state": "blocked"}, True),
        ({"state": "idle"}, False),
        ({"state": "idle", "busy": True}, True),
        ({"state": "working", "busy": False}, False),
    ],
)
async def test_a_runner_of_commandsuite_reports_what_its_agent_does(crew: Team, form: Json, busy: bool) -> None:
    ann = await runner(crew, "ann")
    assert (await ann.ask("POST", "/presence/activity", form)).status == 204
    (shown,) = (await ann.get("/roster"))["connected"]
    assert shown.get("busy", False) is busy
    assert await ann.refused(400, "POST", "/presence/activity", {"state": "asleep"})


async def test_an_upload_of_a_commandsuite_runner_is_kept_with_kinds_that_nobody_knows(crew: Team) -> None:
    ann = await runner(crew, "ann")
    strange = {"kind": "of_next_year", "ts": 6, "anything": [1]}
    turn = {**exchange(7), "agent": "claude", "querySource": "main"}
    uploaded = await ann.do("POST", "/members/ann/activity", 201, events=[*EVENTS, strange, turn])
    assert uploaded == {"accepted": 7}
    rows = (await ann.get("/members/ann/activity"))["activity"]
    assert [row["event"] for row in rows][::-1] == [*EVENTS, turn]
    operator = await crew.there.operator()
    assert "of_next_year" in str(await operator.read_log("activity"))


async def test_each_reader_of_activity_is_shown_only_the_kinds_that_it_knows(crew: Team) -> None:
    ann = await runner(crew, "ann")
    older = Seat(ann.url, ann.name, ann.token)
    new, old = [await crew.follow(seat, "/members/ann/activity/stream") for seat in (ann, older)]
    await ann.do("POST", "/members/ann/activity", 201, events=[*EVENTS, opened(6), http(7), exchange(8)])
    mine = [*(event["kind"] for event in EVENTS), "objective_open", "llm_exchange"]
    assert await kinds(ann, "ann") == mine
    assert await kinds(older, "ann") == ["objective_open", "opaque_http", "llm_exchange"]
    assert await kinds(ann, "ann", "?kind=tool_action&kind=user_prompt") == ["user_prompt", "tool_action"]
    assert await ann.refused(400, "GET", "/members/ann/activity?kind=opaque_http")
    assert await older.refused(400, "GET", "/members/ann/activity?kind=tool_action")
    assert isinstance(new, EventReader)
    assert [(await new.line()).partition('"kind":"')[2].partition('"')[0] for _ in mine] == mine
    assert [(await old.row())["event"]["kind"] for _ in range(3)] == ["objective_open", "opaque_http", "llm_exchange"]


async def test_an_event_that_readers_would_reject_is_refused_with_its_number(crew: Team) -> None:
    ann = await runner(crew, "ann")
    wrong = {"kind": "context_control", "ts": 1, "requestId": "r", "verb": "burn", "outcome": "x", "requestedBy": "b"}
    assert "event 1" in await ann.refused(400, "POST", "/members/ann/activity", {"events": [opened(1), wrong]})
