"""Tests of the four kinds of thread, one for each sentence of the protocol: who gets a message, and who does not.

To show that a member gets nothing, a test sends a later message to this member alone, which must be the next on its
stream.
"""

from typing import Any

from tests.protocols.ac7.teams import Reader, Seat, Team


async def only(stream: Reader, seat: Seat, sender: Seat, *expected: str) -> None:
    """Check that a stream has exactly these messages. To see its end, `sender` sends one more message to `seat`."""
    await sender.push("nothing else came", to=seat.name)
    bodies = [(await stream.next())["body"] for _ in range(len(expected) + 1)]
    assert bodies == [*expected, "nothing else came"]


async def test_without_a_thread_or_with_chan_general_every_team_member_receives_it(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    streams = {seat: await crew.open(seat) for seat in (ann, bob, eve)}
    omitted = await ann.push("omitted")
    tagged = await ann.push("tagged", data={"thread": "chan:general"})
    assert (omitted["delivery"], tagged["delivery"]) == ({"live": 3, "targets": 3},) * 2
    assert (omitted["message"]["data"], tagged["message"]["data"]) == ({}, {"thread": "chan:general"})
    for seat, stream in streams.items():
        await only(stream, seat, seat, "omitted", "tagged")
        assert (await seat.said("?channel=general")) == ["omitted", "tagged"]


async def test_chan_goes_to_members_of_the_named_channel(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    thread = {"thread": f"chan:{channel['id']}"}
    await bob.do("POST", "/channels/dev/members")
    streams = {seat: await crew.open(seat) for seat in (ann, bob, eve)}
    result = await ann.push("for dev", data=thread)
    assert result["delivery"] == {"live": 2, "targets": 2}
    assert result["message"]["data"] == thread
    for seat in (ann, bob):
        await only(streams[seat], seat, seat, "for dev")
        assert await seat.said("?channel=dev") == ["for dev"]
    await only(streams[eve], eve, eve)
    assert await eve.said() == ["nothing else came"]
    assert await eve.refused(403, "GET", "/history?channel=dev")
    assert await eve.refused(403, "POST", "/push", {"body": "x", "data": thread})


async def test_obj_goes_to_originator_assignee_watchers_and_members_with_members_manage(crew: Team) -> None:
    boss, ann = await crew.seat("boss", "objectives.create"), await crew.seat("ann")
    wes, kim, eve = await crew.seat("wes"), await crew.seat("kim", "members.manage"), await crew.seat("eve")
    lead = await crew.seat("lead", "team.manage", "objectives.cancel", "objectives.reassign", "activity.read")
    made = await boss.do("POST", "/objectives", title="T", outcome="O", assignee="ann", watchers=["wes"])
    inside, outside = (boss, ann, wes, kim), (eve, lead)
    streams = {seat: await crew.open(seat) for seat in (*inside, *outside)}
    thread = f"obj:{made['id']}"
    for seat in inside:
        result = await seat.push(f"by {seat.name}", data={"thread": thread})
        assert result["delivery"] == {"live": 4, "targets": 4}
        assert result["message"]["data"] == {"thread": thread}
    for seat in inside:
        await only(streams[seat], seat, seat, *(f"by {each.name}" for each in inside))
    for seat in outside:
        await seat.refused(404, "POST", "/push", {"body": "x", "data": {"thread": thread}})
        await only(streams[seat], seat, seat)
        assert await seat.said() == ["nothing else came"]


async def test_a_dm_goes_to_the_named_member_only_and_matches_its_sender_and_its_recipient(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    kim = await crew.seat("kim", "members.manage", "team.manage", "activity.read")
    streams = {seat: await crew.open(seat) for seat in (ann, bob, eve, kim)}
    assert (await ann.push("between us", to="bob"))["delivery"] == {"live": 2, "targets": 1}
    for seat in (ann, bob):
        await only(streams[seat], seat, seat, "between us")
    for seat in (eve, kim):
        await only(streams[seat], seat, seat)
        assert await seat.said() == ["nothing else came"]
        assert await seat.said("?with=ann") == []
    assert await ann.said("?with=bob") == await bob.said("?with=ann") == ["between us"]


async def test_to_set_together_with_a_channel_is_checked_by_the_channel_and_delivered_as_a_dm(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    await eve.do("POST", "/channels/dev/members")
    both: dict[str, Any] = {"to": "bob", "data": {"thread": f"chan:{channel['id']}"}}
    stream, member = await crew.open(bob), await crew.open(eve)
    assert await bob.refused(403, "POST", "/push", {"body": "x", **both})
    assert (await ann.push("as a dm", **both))["delivery"] == {"live": 1, "targets": 1}
    await only(stream, bob, bob, "as a dm")
    await only(member, eve, eve)
    await ann.do("DELETE", "/channels/dev")
    assert await ann.refused(410, "POST", "/push", {"body": "x", **both})


async def test_every_member_is_a_member_of_general_and_nobody_appears_in_a_row_for_it(crew: Team) -> None:
    ann = await crew.seat("ann")
    assert await ann.said("?channel=general") == []
    await ann.push("before bob")
    bob = await crew.seat("bob")
    await ann.push("with bob")
    shown = await bob.get("/channels/general")
    assert shown["members"] == []
    (general,) = (await bob.get("/channels"))["channels"]
    assert (general["id"], general["slug"], general["createdBy"]) == ("general", "general", "__system__")
    assert (general["joined"], general["memberCount"]) == (True, 2)
    assert "with bob" in await bob.said("?channel=general"), "it is a member without having joined"
    for method, path, body in (
        ("DELETE", "/channels/general", None),
        ("PATCH", "/channels/general", {"slug": "other"}),
        ("DELETE", "/channels/general/members/bob", None),
    ):
        reply = await bob.ask(method, path, body)
        assert reply.status in {403, 409}, (method, path, reply)


async def test_a_channel_routes_by_its_member_list_as_it_is_when_something_is_said(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    thread = {"thread": f"chan:{channel['id']}"}
    stream = await crew.open(bob)
    await ann.push("without him", data=thread)
    await ann.do("POST", "/channels/dev/members", member="bob")
    await ann.push("with him", data=thread)
    await bob.do("DELETE", "/channels/dev/members/bob")
    await ann.push("without him again", data=thread)
    await only(stream, bob, bob, "with him")
    assert await bob.refused(403, "POST", "/push", {"body": "x", "data": thread})


async def test_a_channel_keeps_its_thread_when_it_is_renamed_and_is_gone_when_it_is_archived(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    await bob.do("POST", "/channels/dev/members")
    thread = {"thread": f"chan:{channel['id']}"}
    await ann.push("before", data=thread)
    assert await bob.refused(403, "PATCH", "/channels/dev", {"slug": "devs"})
    assert (await ann.do("PATCH", "/channels/dev", slug="devs"))["id"] == channel["id"]
    assert (await ann.push("after", data=thread))["message"]["data"] == thread
    assert await bob.said(f"?channel={channel['id']}") == await bob.said("?channel=devs") == ["before", "after"]
    assert await bob.refused(403, "DELETE", "/channels/devs")
    assert (await ann.do("DELETE", "/channels/devs"))["archivedAt"] > 0
    assert await bob.refused(410, "POST", "/push", {"body": "x", "data": thread})


async def test_there_are_four_legal_threads_and_no_fifth(crew: Team) -> None:
    ann = await crew.seat("ann")
    for thread, status in (("nonsense", 400), (5, 400), ("dm", 400), ("", 400), ("chan:none", 404), ("obj:none", 404)):
        assert await ann.refused(status, "POST", "/push", {"body": "x", "data": {"thread": thread}})
    assert await ann.refused(404, "POST", "/push", {"body": "x", "to": "nobody"}) == "no such agent: nobody"
    assert await ann.said() == []
