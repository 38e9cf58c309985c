"""Objectives on the wire: who may do what, what each event says, and on whose streams it comes."""

from typing import Any

from tests.protocols.ac7.teams import Reader, Team

ALL = ("members.manage", "objectives.create", "objectives.cancel", "objectives.reassign", "objectives.watch")


async def happening(stream: Reader) -> dict[str, Any]:
    """The next lifecycle event of a stream."""
    message = await stream.next()
    assert (message["to"], message["data"]["kind"]) == (None, "objective")
    assert message["data"]["thread"] == f"obj:{message['data']['objective_id']}"
    event: dict[str, Any] = message["data"]["event"]
    assert message["body"].startswith(f"[objective {event['kind']}] {event['objectiveId']}")
    return event


async def test_each_transition_arrives_on_the_streams_of_the_thread_with_its_payload(crew: Team) -> None:
    boss, ann, wes = await crew.seat("boss", *ALL), await crew.seat("ann"), await crew.seat("wes")
    streams = [await crew.open(seat) for seat in (boss, ann, wes)]
    outside = await crew.seat("zoe")
    made = await boss.do("POST", "/objectives", title="T", outcome="O", assignee="ann", watchers=["wes"])
    path = f"/objectives/{made['id']}"
    assert (made["status"], made["originator"], made["watchers"], made["attachments"]) == (
        "active",
        "boss",
        ["wes"],
        [],
    )
    await ann.do("PATCH", path, status="blocked", blockReason="no disk")
    await ann.do("PATCH", path, status="active")
    said = await ann.do("POST", f"{path}/discuss", body="nearly there")
    assert said["data"] == {"thread": f"obj:{made['id']}"}
    await ann.do("POST", f"{path}/complete", result="done it")
    same = {"objectiveId": made["id"]}
    for stream in streams:
        assigned = await happening(stream)
        assert assigned == {
            "kind": "assigned",
            **same,
            "title": "T",
            "outcome": "O",
            "originator": "boss",
            "watchers": ["wes"],
        }
        assert await happening(stream) == {"kind": "watcher_added", **same, "name": "wes"}
        assert await happening(stream) == {"kind": "blocked", **same, "blockReason": "no disk"}
        assert await happening(stream) == {"kind": "unblocked", **same}
        assert await stream.next() == said
        assert await happening(stream) == {"kind": "completed", **same, "result": "done it"}
    seen = await wes.get(path)
    kinds = [event["kind"] for event in seen["events"]]
    assert kinds == ["assigned", "watcher_added", "blocked", "unblocked", "completed"]
    assert await ann.refused(409, "POST", f"{path}/complete", {"result": "again"})
    unknown = await outside.refused(404, "GET", "/objectives/obj-none-1")
    assert (await outside.refused(404, "GET", path)).replace(made["id"], "obj-none-1") == unknown
    assert (await outside.get("/objectives"))["objectives"] == []
    assert await outside.said() == []


async def test_reassigning_cancelling_and_watching_need_their_permissions(crew: Team) -> None:
    boss, ann, bob = await crew.seat("boss", *ALL), await crew.seat("ann"), await crew.seat("bob")
    assert await ann.refused(403, "POST", "/objectives", {"title": "T", "outcome": "O", "assignee": "bob"})
    assert await boss.refused(400, "POST", "/objectives", {"title": "T", "outcome": "O", "assignee": "none"})
    made = await boss.do("POST", "/objectives", title="T", outcome="O", assignee="ann")
    path = f"/objectives/{made['id']}"
    assert await ann.refused(403, "POST", f"{path}/reassign", {"to": "bob"})
    assert await ann.refused(400, "PATCH", path, {"status": "blocked"})
    stream = await crew.open(ann)
    assert (await boss.do("POST", f"{path}/reassign", to="bob", note="n"))["assignee"] == "bob"
    event = await happening(stream)
    assert (event["fromAssignee"], event["toAssignee"], event["note"]) == ("ann", "bob", "n")
    assert await ann.refused(404, "GET", path)
    assert (await boss.do("POST", f"{path}/watchers", add=["ann"]))["watchers"] == ["ann"]
    assert (await boss.do("POST", f"{path}/watchers", remove=["ann"]))["watchers"] == []
    assert await boss.refused(400, "POST", f"{path}/watchers", {})
    assert (await boss.do("POST", f"{path}/cancel"))["status"] == "cancelled"
    assert [one["id"] for one in (await bob.get("/objectives?status=cancelled"))["objectives"]] == [made["id"]]
    assert await bob.refused(400, "GET", "/objectives?status=lost")
