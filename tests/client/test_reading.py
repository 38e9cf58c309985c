"""Tests of the SDK's functions that read members, channels, history, receipts and logs."""

import json
from pathlib import Path

import pytest

from tests.server.hubs import HubHarness, running_hub
from tieline.client import HubRefused, Leg, LogRowView, Reach, Way
from tieline.contract.refusal import Code
from tieline.wire.native.client import to_json


async def test_members_and_channels_are_listed(there: HubHarness) -> None:
    alice = await there.join("alice")
    await alice.subscribe("dev")
    members = {member.name: member for member in await alice.members()}
    assert set(members) == {"alice", "bob", "carol"}
    assert members["alice"].sessions == ("tieline",)
    assert members["bob"].sessions == ()
    channels = {channel.name: channel.subscribers for channel in await alice.channels()}
    assert channels == {"dev": ("alice",), "general": ("alice", "bob", "carol")}


async def test_history_shows_what_the_member_may_see_newest_first(there: HubHarness) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    await alice.send("@bob", "one")
    await bob.send("@alice", "two")
    await carol.send("@bob", "three")
    await alice.send("*", "four")
    assert [message.body for message in await alice.history()] == ["four", "two", "one"]
    assert [message.body for message in await alice.history("bob")] == ["two", "one"]
    assert [message.body for message in await bob.history(limit=2)] == ["four", "three"]
    newest = (await bob.history(limit=1))[0]
    assert [message.body for message in await bob.history(before=newest.offset)] == ["three", "two", "one"]


async def test_receipts_are_for_sender_and_recipients_alone(there: HubHarness) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    sent = await alice.send("@bob", "hello")
    assert len(await alice.receipts(sent.id)) == len(await bob.receipts(sent.id)) == 1
    for asking in (carol.receipts(sent.id), carol.follow(sent.id)):
        with pytest.raises(HubRefused) as caught:
            await asking
        assert caught.value.code is Code.UNKNOWN_MESSAGE


async def test_a_state_that_there_is_not_cannot_be_followed(there: HubHarness) -> None:
    alice = await there.join("alice")
    sent = await alice.send("@bob", "hello")
    with pytest.raises(HubRefused) as caught:
        await alice.follow(sent.id, until="finished")
    assert caught.value.code is Code.INVALID_REQUEST


async def test_the_log_is_read_in_pages_by_those_who_may(there: HubHarness) -> None:
    await there.add("auditor", permissions=("log.read",))
    alice, auditor = await there.join("alice"), await there.join("auditor")
    for number in range(5):
        await alice.send("@bob", str(number))
    rows: list[LogRowView] = []
    position = 0
    while (page := await auditor.read_log(start=position, limit=3)).rows:
        rows += page.rows
        position = page.next
    assert [row.offset for row in rows] == list(range(len(rows)))
    events = [json.loads(row.event)["event"] for row in rows]
    assert events.count("send") == 5
    assert events.count("register") == 4
    assert all(len(row.hash) == 64 for row in rows)
    with pytest.raises(HubRefused) as caught:
        await auditor.read_log("secrets")
    assert caught.value.code is Code.UNKNOWN_LOG


async def test_activity_is_recorded_in_a_log_of_its_own(there: HubHarness) -> None:
    await there.add("auditor", permissions=("log.read",))
    alice, auditor = await there.join("alice"), await there.join("auditor")
    assert await alice.record_activity({"kind": "llm", "tokens": 3}, {"kind": "http"}) == 2
    page = await auditor.read_log("activity")
    assert [json.loads(row.event) for row in page.rows] == [{"kind": "llm", "tokens": 3}, {"kind": "http"}]
    assert page.next == 2


async def test_values_become_the_documented_json(there: HubHarness) -> None:
    alice = await there.join("alice")
    await alice.send("@bob", "hello")
    (message,) = json.loads(to_json(await alice.history()))
    assert message["from"] == "alice"


async def test_receipts_of_many_recipients_are_read_page_by_page(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\nreceipts_max = 5\n")
    async with running_hub(folder, store="memory") as there:
        names = [f"m{number:02}" for number in range(12)]
        await there.add("alice", *names)
        alice = await there.join("alice")
        sent = await alice.send("*", "hello")
        assert [receipt.member for receipt in await alice.receipts(sent.id)] == names


async def test_readers_of_the_log_are_set_listed_and_forgotten(there: HubHarness) -> None:
    await there.add("auditor", permissions=("log.read",))
    auditor = await there.join("auditor")
    await auditor.send("@bob", "hello")
    state = await auditor.advance_reader("lake", 1)
    assert (state.reader.name, state.reader.position, state.log.log) == ("lake", 1, "main")
    assert [reader.name for reader in (await auditor.readers()).readers] == ["lake"]
    await auditor.forget_reader("lake")
    assert (await auditor.readers()).readers == ()


async def test_discarded_deliveries_and_ways_of_a_member(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    ways = Reach((Leg(Way.PUSH, 50_000), Leg(Way.HOOK, 60_000)))
    assert await bob.reach("bob", ways) == await bob.reach("bob") == ways
    sent = await alice.send("@bob", "too late")
    (item,) = (await bob.inbox()).items
    await bob.discard(item, reason="done already")
    await bob.discard(reason="no deliveries")
    (receipt,) = await alice.receipts(sent.id)
    assert (receipt.state, receipt.steps[-1].evidence) == ("expired", "discarded by bob: done already")
