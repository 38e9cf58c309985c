"""Tests that a member outside a thread learns nothing of it, from errors, counts, lists or history.

A hidden resource gets the same answer, byte for byte, as one that never existed. Only the requested name is in the
answer, so both names have the same length here.
"""

import json
from typing import Any

from tests.protocols.ac7.teams import Json, Reply, Seat, Team

OVERSIGHT = ("objectives.create", "objectives.cancel", "objectives.reassign", "objectives.watch")
READS = (
    "/history",
    "/history?with=ann",
    "/history?channel=general",
    "/history?limit=1",
    "/briefing",
    "/members",
    "/team",
    "/channels",
    "/channels/dev",
    "/objectives",
    "/objectives?assignee=ann",
    "/objectives?status=done",
)
"""Requests of a member that do not name anything hidden from the member."""

CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "", None),
    ("PATCH", "", {"status": "blocked", "blockReason": "b"}),
    ("PATCH", "", {"blockReason": "b"}),
    ("PATCH", "", {"status": "nonsense"}),
    ("POST", "/complete", {"result": "r"}),
    ("POST", "/complete", {}),
    ("POST", "/cancel", {}),
    ("POST", "/reassign", {"to": "eve"}),
    ("POST", "/reassign", {"to": "nobody"}),
    ("POST", "/watchers", {"add": ["eve"]}),
    ("POST", "/watchers", {}),
    ("POST", "/discuss", {"body": "x"}),
)
"""Requests about an objective, as (method, end of the path, body)."""


def other(objective_id: str) -> str:
    """Return an id of the same form that does not exist."""
    start, time, serial = objective_id.split("-")
    return "-".join((start, ("0" if time[0] != "0" else "1") + time[1:], serial))


def plain(reply: Reply, name: str) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of an answer, without the requested name and without the time of day."""
    headers = {key: value for key, value in reply.headers.items() if key != "date"}
    return reply.status, headers, reply.text.replace(name, "*")


async def work(boss: Seat) -> str:
    """Let boss make an objective for ann. Return its id."""
    made: Json = await boss.do("POST", "/objectives", title="secret", outcome="hush", assignee="ann")
    return str(made["id"])


async def test_an_objective_of_others_is_answered_like_one_that_never_was(crew: Team) -> None:
    boss, ann = await crew.seat("boss", *OVERSIGHT), await crew.seat("ann")
    eve = await crew.seat("eve", "team.manage", "activity.read")
    there = await work(boss)
    for stands in ("open", "ended"):
        for method, end, body in CHANGES:
            asked = [(name, f"/objectives/{name}{end}") for name in (there, other(there))]
            answers = [plain(await eve.ask(method, path, body), name) for name, path in asked]
            assert answers[0] == answers[1], (stands, method, end, body)
            assert answers[0][0] in {400, 404}
        if stands == "open":
            await ann.do("POST", f"/objectives/{there}/complete", result="r")


async def test_a_push_to_an_objective_of_others_is_answered_like_one_to_none(crew: Team) -> None:
    boss, _, eve = await crew.seat("boss", *OVERSIGHT), await crew.seat("ann"), await crew.seat("eve")
    there = await work(boss)
    for to in (None, "boss"):
        answers = []
        for name in (there, other(there)):
            body = {"body": "x", "to": to, "data": {"thread": f"obj:{name}"}}
            status, headers, text = plain(await eve.ask("POST", "/push", body), name)
            # A direct message is sent; all that differs is which one it is.
            answers.append((status, headers if status != 200 else None, text if status != 200 else None))
        assert answers[0] == answers[1]


async def test_the_history_with_a_member_is_the_same_whether_it_speaks_with_others_or_never_was(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    await ann.push("secret", to="bob")
    await bob.push("secret too", to="ann")
    answers = [plain(await eve.ask("GET", f"/history?with={name}"), name) for name in ("ann", "bob", "non")]
    assert answers[0] == answers[1] == answers[2]


async def test_whatever_others_say_among_themselves_changes_nothing_that_a_member_can_read(crew: Team) -> None:
    boss, ann, eve = await crew.seat("boss", *OVERSIGHT), await crew.seat("ann"), await crew.seat("eve")
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    await boss.do("POST", "/channels/dev/members")
    await eve.push("hello all")
    before = {path: plain(await eve.ask("GET", path), "") for path in READS}
    count = [one["connected"] for one in (await eve.get("/roster"))["connected"]]
    there = await work(boss)
    await ann.do("POST", f"/objectives/{there}/discuss", body="secret")
    await ann.do("POST", f"/objectives/{there}/complete", result="secret")
    await ann.push("secret", to="boss")
    await boss.push("secret", to="ann")
    await ann.push("secret", data={"thread": f"chan:{channel['id']}"})
    assert {path: plain(await eve.ask("GET", path), "") for path in READS} == before
    assert [one["connected"] for one in (await eve.get("/roster"))["connected"]] == count
    # Nor is anything counted among those who are written to.
    assert (await eve.push("to all"))["delivery"] == {"live": 0, "targets": 3}


async def test_a_token_of_others_is_answered_like_one_that_never_was(crew: Team) -> None:
    ann, eve = await crew.seat("ann"), await crew.seat("eve")
    there: str = (await ann.do("POST", "/members/ann/tokens", 201))["info"]["id"]
    none = there[:-1] + ("0" if there[-1] != "0" else "1")
    for owner in ("ann", "eve"):
        answers = [plain(await eve.ask("DELETE", f"/members/{owner}/tokens/{name}"), name) for name in (there, none)]
        assert answers[0] == answers[1]
        assert answers[0][0] == {"ann": 403, "eve": 404}[owner]


async def test_what_is_said_in_a_channel_is_hidden_from_who_is_not_in_it_however_much_it_is(crew: Team) -> None:
    ann, eve = await crew.seat("ann"), await crew.seat("eve")
    empty = await ann.do("POST", "/channels", 201, slug="abc")
    full = await ann.do("POST", "/channels", 201, slug="xyz")
    for number in range(5):
        await ann.push(f"secret {number}", data={"thread": f"chan:{full['id']}"})
    for end in ("", "&limit=1", "&before=1"):
        answers = [
            plain(await eve.ask("GET", f"/history?channel={name['id']}{end}"), name["slug"]) for name in (empty, full)
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 403


async def test_a_file_of_others_is_answered_like_one_that_never_was(crew: Team) -> None:
    boss, _ = await crew.seat("boss", *OVERSIGHT), await crew.seat("ann")
    eve = await crew.seat("eve", *OVERSIGHT, "team.manage", "activity.read")
    await boss.ask("POST", "/fs/write?path=/boss/there", b"secret")
    await eve.ask("POST", "/fs/write?path=/eve/own", b"x")
    form: Json = {"title": "t", "outcome": "o", "assignee": "ann"}
    made = await boss.do("POST", "/objectives", **form, attachments=[{"path": "/boss/there"}])
    copy: str = made["attachments"][0]["path"]
    for there, none in (
        ("/boss/there", "/boss/never"),
        ("/boss/there", "/none/there"),
        (copy, copy[:-1] + "x"),
        (copy, copy.replace("there", "never")),
    ):
        asked: tuple[tuple[str, str, Any], ...] = (
            ("GET", "/fs/stat?path={}", None),
            ("GET", "/fs/ls?path={}", None),
            ("GET", "/fs/read{}", None),
            ("POST", "/fs/write?path={}", b"x"),
            ("POST", "/fs/write?path={}&collide=overwrite", b"x"),
            ("POST", "/fs/write?path={}/below", b"x"),
            ("DELETE", "/fs/rm?path={}", None),
            ("DELETE", "/fs/rm?path={}&recursive=true", None),
            ("POST", "/fs/mkdir", {"path": "{}"}),
            ("POST", "/fs/mv", {"from": "{}", "to": "/eve/moved"}),
            ("POST", "/fs/mv", {"from": "/eve/own", "to": "{}"}),
            ("POST", "/push", {"body": "x", "to": "ann", "attachments": [{"path": "{}"}]}),
            ("POST", "/objectives", {**form, "attachments": [{"path": "{}"}]}),
        )
        for method, path, body in asked:
            answers = []
            for name in (there, none):
                sent = json.loads(json.dumps(body).replace("{}", name)) if isinstance(body, dict) else body
                answers.append(plain(await eve.ask(method, path.replace("{}", name), sent), name))
            assert answers[0] == answers[1], (method, path, there, none)
            assert answers[0][0] == 403, (method, path, there, answers)
    assert (await eve.get("/fs/shared"))["entries"] == []


async def test_the_activity_of_others_is_answered_like_that_of_nobody(crew: Team) -> None:
    ann, eve = await crew.seat("ann"), await crew.seat("eve", "members.manage")
    event = {"kind": "objective_open", "ts": 1, "objectiveId": "obj-1-1"}
    await ann.do("POST", "/members/ann/activity", 201, events=[event])
    for method, end, body in (("GET", "", None), ("GET", "/stream", None), ("POST", "", {"events": [event]})):
        answers = [
            plain(await eve.ask(method, f"/members/{name}/activity{end}", body), name) for name in ("ann", "non")
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 403
