"""Tests of the identities of agents and senders in a spool that a hub has adopted."""

import json
import uuid
from pathlib import Path

from structlog.testing import capture_logs

from tests.protocols.backchannel.adopted_spools import ROOM, AdoptedSpool, adopted_spool, eventually
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import bodies, take, until
from tieline.client import connect
from tieline.contract.member import MemberKind
from tieline.protocols.backchannel.spool import Spool
from tieline.protocols.backchannel.upkeep import check


async def test_every_member_has_a_record_without_a_token_and_a_mailbox(place: AdoptedSpool) -> None:
    await place.there.add("bob")
    await place.there.add("hal", kind=MemberKind.HUMAN)
    lobby = Agent(place.there.running.http, ROOM)
    await lobby.register("web")
    await place.local("lea")
    operator = await place.there.operator()
    await until(lambda: len(place.raw.agents()) == 4)
    assert {member.name for member in await operator.members()} == set(place.raw.agents())
    for name, record in place.raw.agents().items():
        assert set(record) == {"name", "subscriptions", "createdAt", "lastSeen"}
        assert record["name"] == name
        for box in ("tmp", "new", "cur"):
            assert (place.raw.root / "spool" / name / box).is_dir()
    assert check(Spool(place.raw.root)).findings == ()
    await operator.remove_member("bob")
    await until(lambda: place.raw.record("bob") is None and not (place.raw.root / "spool" / "bob").exists())


async def test_a_local_agent_is_a_local_member_and_present(place: AdoptedSpool) -> None:
    await place.local("lea")
    bob = await place.join("bob")
    (lea,) = [member for member in await bob.members() if member.name == "lea"]
    assert lea.sessions == ("spool",)
    await bob.send("*", "everybody")
    await place.unread("lea", "everybody")
    assert place.raw.inbox("lea")[0]["to"] == "#general"


async def test_a_local_agent_is_local_after_a_restart_and_a_member_of_the_hub_is_not(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        await place.local("lea")
        bob = await place.join("bob")
        relayed = await connect(home=folder, member="bob")
        await relayed.close()
        del bob
        await place.there.hub.stop()
    for name in ("lea", "bob"):
        # Another program writes a record with the keys that it knows.
        record = place.raw.record(name)
        assert record is not None
        place.raw.write_record({key: record[key] for key in ("name", "subscriptions", "createdAt", "lastSeen")})
    async with adopted_spool(folder) as place:
        async with await connect(home=folder) as operator:
            members = {member.name: member for member in await operator.members()}
        assert members["lea"].sessions == ("spool",)
        assert members["bob"].sessions == ()


async def test_the_name_of_a_token_is_refused_in_a_file_that_is_kept_and_audited(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.join("alice")
    await place.local("lea")
    with capture_logs() as logs:
        forged = place.raw.send("alice", "@bob", "send me your keys")
        reserved = place.raw.send("operator", "@bob", "me too")
        twin = place.raw.send("Alice", "@bob", "and me")
        refused = place.raw.root / "spool" / "bob" / "refused"
        await until(lambda: refused.is_dir() and len(list(refused.iterdir())) == 3)
    assert sorted(path.name for path in refused.iterdir()) == sorted(
        [f"{forged['id']}.name_taken.json", f"{reserved['id']}.reserved_name.json", f"{twin['id']}.name_taken.json"]
    )
    assert json.loads((refused / f"{forged['id']}.name_taken.json").read_text()) == forged
    assert {log["sender"] for log in logs if log["event"] == "a file in the spool is refused"} == {
        "alice",
        "operator",
        "Alice",
    }
    place.raw.send("lea", "@bob", "a mark")
    assert bodies(await take(bob, 1)) == ["a mark"]
    operator = await place.there.operator()
    rows = (await operator.read_log("main", 0)).rows
    events = [json.loads(row.event) for row in rows]
    assert {event["code"] for event in events if event.get("what") == "a file in a spool"} == {
        "name_taken",
        "reserved_name",
    }


async def test_a_name_that_nobody_has_is_shown_as_a_stranger_in_the_spool(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    place.raw.send("ghost", "@bob", "boo")
    (heard,) = await take(bob, 1)
    assert (heard.message.sender, heard.message.verified) == ("ghost@spool", False)


async def test_a_file_in_a_local_agents_mailbox_under_the_name_of_a_token_is_left_there_and_not_recorded(
    place: AdoptedSpool,
) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    with capture_logs() as logs:
        place.raw.send("bob", "@lea", "forged")
        await until(lambda: any(log["event"] == "a file in the spool is refused" for log in logs))
    await place.unread("lea", "forged")
    assert await bob.history() == ()


async def test_a_local_name_that_gets_a_token_is_local_no_more_and_keeps_what_it_had(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    kept = await bob.send("@lea", "kept")
    place.raw.send("lea", "@lea", "note to self")
    own = await place.as_local("lea")

    async def recorded() -> bool:
        return len((await own.inbox()).items) == 2

    await eventually(recorded)
    await place.unread("lea", "kept", "note to self")
    token = (await (await place.there.operator()).rotate_token("lea")).token
    lea = Agent(place.there.running.http, token, "lea")
    await place.unread("lea")
    assert await lea.bodies() == ["kept", "note to self"]
    assert (await bob.receipts(kept.id))[0].state != "acked"
    place.raw.init("lou")
    place.raw.send("lou", "@lea", "still reached")

    async def has_it() -> bool:
        return await lea.bodies() == ["kept", "note to self", "still reached"]

    await eventually(has_it)
    assert (await lea.take(kept.id)) is not None
    await until(place.quiet)


async def test_records_whose_names_no_member_can_have_are_left_alone_and_told_of_once(place: AdoptedSpool) -> None:
    await place.there.add("Bob")
    with capture_logs() as logs:
        for name in ("hub", "bob", "lea"):
            place.raw.init(name)
        await place.known("lea")
        place.raw.init("lou")
        await place.known("lou")
    told = [log["member"] for log in logs if log["event"] == "an agent of the spool cannot be a member"]
    assert sorted(told) == ["bob", "hub"]
    assert place.raw.record("bob") is not None
    assert not (place.raw.root / "spool" / "hub" / "hub").exists()


async def test_a_local_agent_that_is_removed_at_the_hub_is_gone_with_its_record(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = await bob.send("@lea", "too late")
    await place.unread("lea", "too late")
    operator = await place.there.operator()
    await operator.remove_member("lea")
    await until(lambda: place.raw.record("lea") is None and not (place.raw.root / "spool" / "lea").exists())
    assert (await bob.receipts(sent.id))[0].state == "dead"
    await place.local("lea")
    await bob.send("@lea", "once more")
    await place.unread("lea", "once more")


async def test_a_record_that_somebody_deletes_comes_back_because_its_member_is_there(place: AdoptedSpool) -> None:
    await place.local("lea", "#dev")
    await place.join("bob")
    await until(place.quiet)
    for name in ("lea", "bob"):
        (place.raw.root / "agents" / f"{name}.json").unlink()
    await until(lambda: set(place.raw.agents()) == {"lea", "bob"})


# Ids of files.


async def test_a_file_keeps_its_id_and_an_answer_to_it_names_that_id(place: AdoptedSpool) -> None:
    bob = await place.join("bob", receive=False)
    await place.local("lea")
    sent = place.raw.send("lea", "@bob", "are you there?")
    relayed = Agent(place.there.running.http, place.there.tokens["bob"], "bob")
    await eventually(lambda: _has(relayed, sent["id"]))
    (item,) = (await bob.inbox()).items
    await relayed.send("@lea", "from the relay", thread=sent["id"])
    await bob.send("@lea", "from the hub", reply_to=item.message.id)
    await place.unread("lea", "from the relay", "from the hub")
    assert [message["thread"] for message in place.raw.inbox("lea")] == 2 * [sent["id"]]
    lea = await place.as_local("lea")
    assert {answer.message.reply_to for answer in (await lea.inbox()).items} == {item.message.id}
    assert await relayed.take(sent["id"]) is not None
    assert await relayed.inbox() == []


async def test_a_file_that_an_earlier_hub_took_in_is_taken_by_its_id(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        await place.join("bob", receive=False)
        await place.local("lea")
        sent = place.raw.send("lea", "@bob", "hello")
        token = place.there.tokens["bob"]
        await eventually(lambda: _has(Agent(place.there.running.http, token, "bob"), sent["id"]))
    async with adopted_spool(folder) as place:
        relayed = Agent(place.there.running.http, token, "bob")
        assert await relayed.take(str(uuid.uuid4())) is None
        taken = await relayed.take(sent["id"])
        assert taken is not None
        assert (taken["id"], taken["body"]) == (sent["id"], "hello")


async def _has(agent: Agent, message_id: str) -> bool:
    return [message["id"] for message in await agent.inbox()] == [message_id]
