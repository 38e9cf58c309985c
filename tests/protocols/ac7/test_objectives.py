"""Tests of the rights to objectives in ac7's routes. `conformance` tests the sentences of the protocol itself."""

from typing import Any

from tests.protocols.ac7.teams import Reader, Team

ALL = ("members.manage", "objectives.create", "objectives.cancel", "objectives.reassign", "objectives.watch")


async def happening(stream: Reader) -> dict[str, Any]:
    """Wait for the next message of a stream, which must be about an objective. Return its event."""
    message = await stream.next()
    assert (message["to"], message["data"]["kind"]) == (None, "objective")
    assert message["data"]["thread"] == f"obj:{message['data']['objective_id']}"
    event: dict[str, Any] = message["data"]["event"]
    assert message["body"].startswith(f"[objective {event['kind']}] {event['objectiveId']}")
    return event


async def test_a_forwarder_that_drops_objects_still_tells_its_agent_what_happened(crew: Team) -> None:
    boss, ann = await crew.seat("boss", *ALL), await crew.seat("ann")
    stream = await crew.open(ann)
    made = await boss.do("POST", "/objectives", title="T", outcome="O", assignee="ann")
    await ann.do("PATCH", f"/objectives/{made['id']}", status="blocked", blockReason="b")
    await ann.do("POST", f"/objectives/{made['id']}/complete", result="r")
    for event, status in (("assigned", "active"), ("blocked", "blocked"), ("completed", "done")):
        data = (await stream.next())["data"]
        carried = {key: value for key, value in data.items() if isinstance(value, str | int | bool)}
        assert (carried["objective_event"], carried["objective_status"]) == (event, status)
        assert data["event"]["kind"] == event


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
