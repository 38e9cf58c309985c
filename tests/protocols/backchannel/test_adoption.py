"""A spool that a hub has adopted, with local agents that know nothing of the hub."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.cli.hub_process import HubProcess, run_cli, wait_until
from tests.protocols.backchannel.raw import Raw
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import WAIT_SECONDS, House, bodies, house, silent, take, until
from tieline.client import Client, connect
from tieline.contract.member import MemberKind
from tieline.protocols.agent_channels import ChannelClient
from tieline.protocols.backchannel import Spool, adoption
from tieline.protocols.backchannel.notices import Notices
from tieline.protocols.backchannel.upkeep import check
from tieline.server.config import Backchannel
from tieline.server.hub import Options, RunningHub

ROOT = Path(__file__).resolve().parents[3]
ROOM = "the room's token"

Condition = Callable[[], Awaitable[bool]]


async def eventually(condition: Condition) -> None:
    """Wait until a question is answered with yes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


class Town:
    """A hub with its spool. Bob and ben are on the hub's own protocol; lea and lou are local."""

    def __init__(self, there: House, raw: Raw) -> None:
        self.there = there
        self.raw = raw

    async def local(self, name: str, *channels: str) -> None:
        """Make a local agent, and wait until the hub knows it."""
        self.raw.init(name, *channels)
        await self.known(name)

    async def known(self, name: str) -> None:
        operator = await self.there.operator()

        async def is_there() -> bool:
            return any(member.name == name and "spool" in member.sessions for member in await operator.members())

        await eventually(is_there)

    async def join(self, name: str, *, receive: bool = True) -> Client:
        """Make a member with a token, and wait until it can be written to from the spool."""
        await self.there.add(name)
        await until(lambda: self.raw.record(name) is not None)
        return await self.there.join(name, receive=receive)

    async def as_local(self, name: str, *, receive: bool = False) -> Client:
        """A session of a local agent on the hub's own protocol, by the key of the home."""
        return self.there.keep(await connect(home=self.there.home, member=name, receive=receive))

    async def unread(self, name: str, *expected: str) -> None:
        """Wait until just this is unread."""

        def there() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return sorted(message["body"] for message in self.raw.inbox(name)) == sorted(expected)
            return False

        await until(there)

    async def state(self, client: Client, message_id: str, member: str, state: str) -> Any:
        """Wait until a delivery has come so far; returns its last step."""
        found: list[Any] = []

        async def is_so() -> bool:
            receipts = await client.receipts(message_id)
            found.extend(each.steps[-1] for each in receipts if each.member == member and each.state == state)
            return bool(found)

        await eventually(is_so)
        return found[-1]

    async def history(self, name: str, peer: str | None = None) -> list[Any]:
        """What a member can read of what was said, newest first."""
        client = await self.as_local(name)
        return list(await client.history(peer=peer))

    def quiet(self) -> bool:
        """Whether nothing of the hub's is under way in the spool."""
        folders = (self.raw.root / "spool").glob("*/hub")
        names = {path.name for folder in folders for path in folder.iterdir()}
        return names <= {"mailbox.json", "placed"}


@contextlib.asynccontextmanager
async def town(home: Path, **options: Any) -> AsyncIterator[Town]:
    raw = Raw(home / "spool-home")
    home.mkdir(exist_ok=True)
    if not (home / "tieline.toml").exists():
        (home / "tieline.toml").write_text(f'[backchannel]\nroom_token = "{ROOM}"\n')
    async with house(home, **options) as there:
        yield Town(there, raw)


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[Town]:
    async with town(folder) as there:
        yield there


async def process(raw: Raw, *args: str) -> Any:
    """The foreign program as a process of its own."""
    command = (sys.executable, "-m", "tests.protocols.backchannel.raw", str(raw.root), *args)
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


# From the spool into the hub, and back.


async def test_a_local_program_writes_to_a_member_on_the_hub_and_reads_its_answer(place: Town) -> None:
    bob = await place.join("bob")
    await process(place.raw, "init", "lea")
    sent = await process(place.raw, "send", "lea", "@bob", "are you there?")
    (heard,) = await take(bob, 1, ack=True)
    assert (heard.message.sender, heard.message.target, heard.message.body) == ("lea", "@bob", "are you there?")
    assert (heard.message.protocol, heard.message.wire_id) == ("spool", sent["id"])
    assert not heard.message.verified, "a file proves nothing"
    await until(lambda: place.raw.names("bob") == [])
    await place.known("lea")
    answer = await bob.send("@lea", "yes", thread=sent["id"], scope="github.com/org/repo", refs=("a.py",))
    (read,) = await process(place.raw, "wait", "lea", "1")
    assert read == {
        "id": answer.id,
        "from": "bob",
        "to": "@lea",
        "body": "yes",
        "priority": "normal",
        "scope": "github.com/org/repo",
        "thread": sent["id"],
        "refs": ["a.py"],
        "ts": read["ts"],
    }
    step = await place.state(bob, answer.id, "lea", "acked")
    assert (step.protocol, step.evidence) == ("spool", "taken from the spool")


async def test_all_that_a_file_says_reaches_the_member(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    thread = str(uuid.uuid4())
    place.raw.send(
        "lea", "bob", "look", priority="urgent", scope="repo", thread=thread, refs=["x", "y"], extra={"a": 1}
    )
    place.raw.send("lea", "@bob", "later", priority="low")
    first, second = (delivery.message for delivery in await take(bob, 2))
    assert (first.priority, first.scope, first.thread, first.reply_to) == ("urgent", "repo", thread, thread)
    assert first.refs == ("x", "y")
    assert first.notes == ()
    assert (second.priority, second.notes) == ("normal", ("priority low",))


async def test_what_backchannel_has_no_key_for_is_in_the_file_under_one_more(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await bob.send("@lea", "hello", title="Greeting", data={"n": 1})
    (read,) = await asyncio.to_thread(place.raw.wait, "lea", 1)
    assert read["tieline"] == {"title": "Greeting", "data": {"n": 1}}


async def test_files_that_came_while_the_hub_was_down_are_taken_in_in_the_order_of_their_time(folder: Path) -> None:
    async with town(folder) as place:
        await place.join("bob")
        await place.local("lea")
        token = place.there.tokens["bob"]
    numbers = list(range(300))
    for number in sorted(numbers, key=lambda each: each * 7919 % 300):
        place.raw.send("lea", "@bob", str(number), ts=f"2026-06-12T12:00:{number // 10:02}.{number % 10:03}Z")
    async with town(folder) as place:
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob", receive=True, window=1000)
        assert bodies(await take(bob, 300)) == [str(number) for number in numbers]
        await until(place.quiet)


async def test_a_message_that_waits_when_the_hub_stops_is_there_and_can_be_taken_meanwhile(folder: Path) -> None:
    async with town(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        sent = [await bob.send("@lea", body) for body in ("one", "two", "three")]
        await place.unread("lea", "one", "two", "three")
        token = place.there.tokens["bob"]
    assert place.raw.take("lea", sent[1].id) is not None
    async with town(folder) as place:
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob")
        await place.state(bob, sent[1].id, "lea", "acked")
        await place.unread("lea", "one", "three")
        assert (await bob.receipts(sent[0].id))[0].state == "offered"


async def test_a_message_for_a_local_agent_that_was_sent_without_a_spool_comes_when_there_is_one(folder: Path) -> None:
    async with town(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        token = place.there.tokens["bob"]
    async with town(folder, adopt=False) as place:
        assert place.there.running.spool is None
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob")
        await bob.send("@lea", "hello")
    async with town(folder) as place:
        await place.unread("lea", "hello")


async def test_a_member_of_another_protocol_is_reached_from_the_spool(place: Town) -> None:
    lobby = Agent(place.there.running.http, ROOM)
    bob = Agent(lobby.url, (await lobby.register("bob"))["token"], "bob")
    await place.local("lea")
    await until(lambda: place.raw.record("bob") is not None)
    place.raw.send("lea", "@bob", "over HTTP")

    async def has_it() -> bool:
        return await bob.bodies() == ["over HTTP"]

    await eventually(has_it)
    (unread,) = await bob.inbox()
    assert unread["tieline"] == {"verified": False}
    await bob.send("@lea", "and back")
    await place.unread("lea", "and back")


# Between local agents.


async def test_what_one_local_agent_writes_to_another_is_recorded_and_left_there(place: Town) -> None:
    await place.local("lea")
    await place.local("lou")
    sent = place.raw.send("lea", "@lou", "between us")
    operator = await place.there.operator()

    async def recorded() -> list[Any]:
        return [message for message in await operator.history() if message.body == "between us"]

    async def is_recorded() -> bool:
        return bool(await recorded())

    await eventually(is_recorded)
    (message,) = await recorded()
    assert (message.sender, message.wire_id, message.verified) == ("lea", sent["id"], False)
    await place.unread("lou", "between us")
    assert (await operator.receipts(message.id))[0].state in ("pending", "offered")
    (taken,) = place.raw.drain("lou")
    assert taken == sent, "byte for byte what lea wrote"
    step = await place.state(operator, message.id, "lou", "acked")
    assert step.evidence == "taken from the spool"
    assert len(await recorded()) == 1


async def test_a_message_that_a_reader_puts_back_is_not_recorded_again_and_stays_for_the_next_reader(
    place: Town,
) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await place.local("lou")
    answer = await bob.send("@lea", "from the hub")
    place.raw.send("lou", "@lea", "from next door")
    await place.unread("lea", "from the hub", "from next door")
    spool = Spool(place.raw.root)
    with spool.claims("lea") as claims:
        for message in spool.inbox("lea"):
            assert claims.claim(message.id) is not None
        await place.state(bob, answer.id, "lea", "acked")
    await place.unread("lea", "from the hub", "from next door")
    place.raw.send("lou", "@bob", "a mark")
    assert bodies(await take(bob, 1)) == ["a mark"]
    said = [message.body for message in await place.history("lea")]
    assert Counter(said) == {"from the hub": 1, "from next door": 1}
    assert len(place.raw.drain("lea")) == 2


# Channels.


async def test_a_local_agents_message_to_a_channel_reaches_each_subscriber_once_on_every_side(place: Town) -> None:
    bob, ben = await place.join("bob"), await place.join("ben")
    for client in (bob, ben):
        await client.subscribe("dev")
    await place.local("lea", "#dev")
    await place.local("lou", "#dev")
    heard: list[str] = []
    async with ChannelClient(Path(str(place.there.running.channels_dir)) / "dev.sock") as listener:
        heard_next = aiter(listener)
        await until(lambda: all("#dev" in record["subscriptions"] for record in place.raw.agents().values()))
        for number in range(5):
            place.raw.send("lea", "#dev", f"all {number}")
        expected = [f"all {number}" for number in range(5)]
        assert bodies(await take(bob, 5, ack=True)) == expected
        assert bodies(await take(ben, 5, ack=True)) == expected
        assert sorted(message["body"] for message in await asyncio.to_thread(place.raw.wait, "lou", 5)) == expected
        async with asyncio.timeout(WAIT_SECONDS):
            while len(heard) < 5:
                heard.append((await anext(heard_next)).msg)
            place.raw.send("lea", "#dev", "a mark")
            heard.append((await anext(heard_next)).msg)
    assert heard == [*expected, "a mark"], "at the channel's socket each is heard once"
    assert bodies(await take(bob, 1)) == ["a mark"]
    await silent(bob)
    in_channel = [message.body for message in await place.history("bob", "#dev")]
    assert sorted(in_channel) == sorted(["a mark", *expected]), "one message each, whoever received it"


async def test_a_members_message_to_a_channel_reaches_local_subscribers_as_files(place: Town) -> None:
    bob, ben = await place.join("bob"), await place.join("ben")
    for client in (bob, ben):
        await client.subscribe("dev")
    await place.local("lea", "#dev")
    await place.local("lou")

    async def joined() -> bool:
        return any(channel.name == "dev" and "lea" in channel.subscribers for channel in await bob.channels())

    await eventually(joined)
    sent = await bob.send("#dev", "hello")
    await place.unread("lea", "hello")
    assert (place.raw.inbox("lea")[0]["to"], place.raw.inbox("lea")[0]["id"]) == ("#dev", sent.id)
    assert bodies(await take(ben, 1)) == ["hello"]
    assert place.raw.inbox("lou") == []


async def test_a_copy_that_comes_late_goes_to_its_owner_alone(place: Town) -> None:
    bob, ben = await place.join("bob"), await place.join("ben")
    for client in (bob, ben):
        await client.subscribe("dev")
    message = {"id": str(uuid.uuid4()), "from": "lea", "to": "#dev", "body": "hello", "ts": "2026-06-12T12:00:00.000Z"}
    await place.local("lea")
    place.raw.put("bob", message)
    (first,) = await take(bob, 1)
    place.raw.put("ben", message)
    (second,) = await take(ben, 1)
    assert (first.message.target, first.message.notes) == ("#dev", ())
    assert (second.message.target, second.message.notes) == ("@ben", ("addressed to #dev",))
    place.raw.put("ben", message)
    place.raw.put("bob", message)
    await until(lambda: place.raw.names("ben") == place.raw.names("bob") == [])
    place.raw.send("lea", "@ben", "a mark")
    assert bodies(await take(ben, 1)) == ["a mark"], "the same file again is nothing new"
    await silent(bob)


async def test_subscriptions_are_the_same_in_the_hub_and_in_records(folder: Path) -> None:
    async with town(folder) as place:
        bob = await place.join("bob")
        await place.local("lea", "#dev", "#no such channel", "#general")
        lea = await place.as_local("lea")

        async def hub_says(*expected: str) -> bool:
            channels = [channel.name for channel in await lea.channels() if "lea" in channel.subscribers]
            return sorted(channels) == sorted([*expected, "general"])

        def record_says(name: str, *expected: str) -> bool:
            with contextlib.suppress(ValueError):
                return (place.raw.record(name) or {}).get("subscriptions") == list(expected)
            return False

        await bob.subscribe("ops")
        await until(lambda: record_says("bob", "#general", "#ops"))
        await bob.unsubscribe("ops")
        await until(lambda: record_says("bob", "#general"))
        await eventually(lambda: hub_says("dev"))
        place.raw.init("lea", "#ops")
        await eventually(lambda: hub_says("dev", "ops"))
        await lea.subscribe("art")
        await until(lambda: record_says("lea", "#dev", "#no such channel", "#general", "#ops", "#art"))
        await lea.unsubscribe("dev")
        await until(lambda: record_says("lea", "#no such channel", "#general", "#ops", "#art"))
        record = place.raw.record("bob")
        assert record is not None
        place.raw.write_record({**record, "subscriptions": ["#mine"]})
        await until(lambda: record_says("bob", "#general"))
    record = place.raw.record("lea")
    assert record is not None
    place.raw.write_record({**record, "subscriptions": ["#art", "#new"]})
    async with town(folder) as place:
        lea = await place.as_local("lea")
        await eventually(lambda: hub_says("art", "new"))


# Who is who.


async def test_every_member_has_a_record_without_a_token_and_a_mailbox(place: Town) -> None:
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


async def test_a_local_agent_is_a_local_member_and_present(place: Town) -> None:
    await place.local("lea")
    bob = await place.join("bob")
    (lea,) = [member for member in await bob.members() if member.name == "lea"]
    assert lea.sessions == ("spool",)
    await bob.send("*", "everybody")
    await place.unread("lea", "everybody")
    assert place.raw.inbox("lea")[0]["to"] == "#general"


async def test_a_local_agent_is_local_after_a_restart_and_a_member_of_the_hub_is_not(folder: Path) -> None:
    async with town(folder) as place:
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
    async with town(folder) as place:
        async with await connect(home=folder) as operator:
            members = {member.name: member for member in await operator.members()}
        assert members["lea"].sessions == ("spool",)
        assert members["bob"].sessions == ()


async def test_the_name_of_a_token_is_refused_in_a_file_that_is_kept_and_audited(place: Town) -> None:
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


async def test_a_name_that_nobody_has_is_shown_as_a_stranger_in_the_spool(place: Town) -> None:
    bob = await place.join("bob")
    place.raw.send("ghost", "@bob", "boo")
    (heard,) = await take(bob, 1)
    assert (heard.message.sender, heard.message.verified) == ("ghost@spool", False)


async def test_a_file_in_a_local_agents_mailbox_under_the_name_of_a_token_is_left_there_and_not_recorded(
    place: Town,
) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    with capture_logs() as logs:
        place.raw.send("bob", "@lea", "forged")
        await until(lambda: any(log["event"] == "a file in the spool is refused" for log in logs))
    await place.unread("lea", "forged")
    assert await bob.history() == ()


async def test_a_local_name_that_gets_a_token_is_local_no_more_and_keeps_what_it_had(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    kept = await bob.send("@lea", "kept")
    place.raw.send("lea", "@lea", "note to self")
    own = await place.as_local("lea")

    async def recorded() -> bool:
        return len((await own.inbox()).items) == 2

    await eventually(recorded)
    await place.unread("lea", "kept", "note to self")
    lobby = Agent(place.there.running.http, ROOM)
    lea = Agent(lobby.url, (await lobby.register("lea"))["token"], "lea")
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


async def test_records_whose_names_no_member_can_have_are_left_alone_and_told_of_once(place: Town) -> None:
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


async def test_a_local_agent_that_is_removed_at_the_hub_is_gone_with_its_record(place: Town) -> None:
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


async def test_a_record_that_somebody_deletes_comes_back_because_its_member_is_there(place: Town) -> None:
    await place.local("lea", "#dev")
    await place.join("bob")
    await until(place.quiet)
    for name in ("lea", "bob"):
        (place.raw.root / "agents" / f"{name}.json").unlink()
    await until(lambda: set(place.raw.agents()) == {"lea", "bob"})


# Who is first.


@pytest.mark.parametrize("how", ["claim", "ack"])
async def test_a_delivery_settled_at_the_hub_is_gone_from_the_spool(place: Town, how: str) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await place.local("lou")
    await bob.send("@lea", "from the hub")
    await place.unread("lea", "from the hub")
    place.raw.send("lou", "@lea", "from next door")
    lea = await place.as_local("lea", receive=True)
    for delivery in await take(lea, 2):
        if how == "claim":
            assert await lea.claim(delivery.message.id) is not None
        else:
            lea.ack(delivery)
    await place.unread("lea")
    await until(place.quiet)
    assert (await lea.inbox()).items == ()


async def test_a_delivery_taken_from_the_spool_cannot_be_claimed_at_the_hub(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = await bob.send("@lea", "hello")
    await place.unread("lea", "hello")
    lea = await place.as_local("lea")
    assert place.raw.take("lea", sent.id) is not None
    assert await lea.claim(sent.id) is None
    await place.state(bob, sent.id, "lea", "acked")


async def test_a_message_whose_time_has_passed_is_gone_from_the_spool(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = await bob.send("@lea", "quick", ttl_ms=300)
    await place.unread("lea", "quick")
    await place.unread("lea")
    await place.state(bob, sent.id, "lea", "expired")
    await until(place.quiet)


@pytest.mark.slow
async def test_twenty_who_race_for_the_messages_of_a_local_agent_get_each_exactly_once(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await place.local("lou")
    expected = [f"hub {number}" for number in range(200)] + [f"lou {number}" for number in range(200)]
    await asyncio.gather(*(bob.send("@lea", body) for body in expected[:200]))
    for body in expected[200:]:
        place.raw.send("lou", "@lea", body)
    operator = await place.as_local("lea")

    async def all_known() -> bool:
        return len((await operator.inbox(limit=1000)).items) == 400

    await eventually(all_known)
    got: list[str] = []

    async def by_claim() -> None:
        client = await place.as_local("lea")
        for item in reversed((await client.inbox(limit=1000)).items):
            won = await client.claim(item.message.id)
            if won is not None:
                got.append(won.message.body)

    async def by_rename() -> None:
        def drain() -> list[str]:
            return [message["body"] for message in place.raw.drain("lea")]

        while drained := await asyncio.to_thread(drain):
            got.extend(drained)

    await asyncio.gather(*(by_claim() for _ in range(10)), *(by_rename() for _ in range(10)))
    got += [message["body"] for message in place.raw.drain("lea")]
    assert Counter(got) == Counter(expected)
    await until(place.quiet)

    async def none_left() -> bool:
        return (await operator.inbox()).items == ()

    await eventually(none_left)


# What goes wrong.


async def test_what_cannot_be_read_is_passed_over_and_told_of_once(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    with capture_logs() as logs:
        for name, text in (("half", '{"id": "'), ("empty", ""), ("other", json.dumps({"id": "x", "from": "lea"}))):
            del name
            (place.raw.new("bob") / f"{uuid.uuid4()}.json").write_text(text)
        (place.raw.new("bob") / "notes.txt").write_text("mine")
        for number in range(3):
            place.raw.send("lea", "@bob", f"mark {number}")
            await take(bob, 1)
    assert sum(log["event"] == "a file in the spool is passed over" for log in logs) == 3
    assert len(place.raw.names("bob")) == 4


async def test_a_message_that_the_hub_does_not_accept_is_kept_aside(place: Town) -> None:
    await place.join("bob")
    await place.local("lea")
    with capture_logs():
        sent = place.raw.send("lea", "@bob", "")
        refused = place.raw.root / "spool" / "bob" / "refused" / f"{sent['id']}.invalid_message.json"
        await until(refused.exists)


async def test_a_file_waits_for_a_recipient_with_too_much_unread_and_keeps_nobody_else_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.protocols.backchannel.intake._LATER_SECONDS", 0.1)
    (folder / "tieline.toml").write_text("[limits]\nbacklog_max = 1\n")
    async with town(folder) as place:
        bob, ben = await place.join("bob", receive=False), await place.join("ben")
        for client in (bob, ben):
            await client.subscribe("dev")
        await place.local("lea")
        await until(lambda: "#dev" in place.raw.agents()["ben"]["subscriptions"])
        place.raw.send("lea", "@bob", "first")

        async def full() -> bool:
            return len((await bob.inbox()).items) == 1

        await eventually(full)
        place.raw.send("lea", "#dev", "second")
        assert bodies(await take(ben, 1, ack=True)) == ["second"]
        await until(lambda: len(place.raw.names("bob")) == 1)
        (waiting,) = (await bob.inbox()).items
        assert await bob.claim(waiting.message.id) is not None
        await eventually(full)
        assert (await bob.inbox()).items[0].message.body == "second"
        await silent(ben)


async def test_a_mailbox_that_cannot_be_written_to_is_tried_again(place: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.protocols.backchannel.resident._RETRY_SECONDS", 0.05)
    bob = await place.join("bob")
    await place.local("lea")
    place.raw.new("lea").rmdir()
    place.raw.new("lea").write_text("in the way")
    with capture_logs() as logs:
        await bob.send("@lea", "hello")
        await until(lambda: any(log["event"] == "messages cannot be written to the spool" for log in logs))
        place.raw.new("lea").unlink()
        await place.unread("lea", "hello")


async def test_a_mailbox_that_somebody_deletes_is_made_anew_with_what_is_unread_in_the_hub(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await bob.send("@lea", "hello")
    await place.unread("lea", "hello")
    await until(place.quiet)
    for name in ("bob", "lea"):
        shutil.rmtree(place.raw.root / "spool" / name)
    await place.unread("lea", "hello")
    await until((place.raw.root / "spool" / "bob" / "hub" / "mailbox.json").exists)
    place.raw.send("lea", "@bob", "hello")
    assert bodies(await take(bob, 1)) == ["hello"]


async def test_two_files_of_one_id_that_say_different_things_are_not_one_message(place: Town) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = place.raw.send("lea", "@bob", "the first")
    await take(bob, 1)
    with capture_logs():
        place.raw.put("bob", {**sent, "body": "the second"})
        refused = place.raw.root / "spool" / "bob" / "refused" / f"{sent['id']}.wire_id_reused.json"
        await until(refused.exists)


async def test_without_notices_the_spool_is_looked_at_from_time_to_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notices, "start", lambda _: None)
    async with town(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        place.raw.send("lea", "@bob", "hello")
        assert bodies(await take(bob, 1)) == ["hello"]
        sent = await bob.send("@lea", "hello")
        await asyncio.to_thread(place.raw.wait, "lea", 1)
        await place.state(bob, sent.id, "lea", "acked")


async def test_a_spool_has_one_hub_at_a_time(folder: Path) -> None:
    spool = folder / "spool"
    async with house(folder / "one", spool=spool) as there:
        assert there.running.spool == str(spool)
        hub = RunningHub(Options(home=folder / "two", http="127.0.0.1:0", spool=spool))
        with pytest.raises(adoption.SpoolAdopted, match="another hub has adopted"):
            await hub.start()
    async with house(folder / "two", spool=spool) as there:
        assert there.running.spool == str(spool)


async def test_a_spool_that_is_found_and_cannot_be_adopted_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKCHANNEL_HOME", str(folder / "spool"))
    async with house(folder / "one") as there:
        assert there.running.spool == str(folder / "spool")
        with capture_logs():
            async with house(folder / "two") as second:
                assert second.running.spool is None


async def test_the_records_of_a_former_hub_are_cleared_and_its_unread_messages_stay(folder: Path) -> None:
    spool = folder / "spool"
    async with house(folder / "one", spool=spool) as there:
        await there.add("bob", "ben")
        await until(lambda: set(Raw(spool).agents()) == {"bob", "ben"})
    Raw(spool).send("lea", "@ben", "unread")
    async with house(folder / "two", spool=spool):
        await until(lambda: Raw(spool).agents() == {})
    assert [message["body"] for message in Raw(spool).inbox("ben")] == ["unread"]
    assert not (spool / "spool" / "bob").exists()


async def test_thousands_of_files_do_not_make_anybody_wait(place: Town) -> None:
    bob, ben = await place.join("bob", receive=False), await place.join("ben")
    await place.local("lea")
    longest = 0.0

    async def talk() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while (await bob.inbox(limit=1, after=1999)).items == ():
            start = loop.time()
            await ben.members()
            longest = max(longest, loop.time() - start)

    def write() -> None:
        for number in range(2000):
            place.raw.send("lea", "@bob", str(number))

    async with asyncio.timeout(40):
        await asyncio.gather(talk(), asyncio.to_thread(write))
    assert longest < 2.0


def test_the_spool_of_the_configuration_is_a_path() -> None:
    assert Backchannel().spool_path is None
    assert Backchannel(spool="~/mail").spool_path == Path.home() / "mail"


# Which spool, and the command line.


@pytest.mark.parametrize(
    ("variable", "named", "found"),
    [(None, True, "home/spool-home"), ("mail", True, "mail"), ("mail", False, "mail"), (None, False, ".backchannel")],
)
async def test_a_spool_that_nobody_names_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, found: str, *, named: bool
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    if variable is not None:
        monkeypatch.setenv("BACKCHANNEL_HOME", str(folder / variable))
    async with house(folder / "home", home_named=named) as there:
        assert there.running.spool == str(folder / found)


async def test_the_configuration_can_name_the_spool_or_want_none(folder: Path) -> None:
    (folder / "tieline.toml").write_text(f'[backchannel]\nspool = "{folder / "there"}"\n')
    async with house(folder) as there:
        assert there.running.spool == str(folder / "there")
    (folder / "tieline.toml").write_text("[backchannel]\nadopt = false\n")
    async with house(folder) as there:
        assert there.running.spool is None
    async with house(folder, spool=folder / "named") as there:
        assert there.running.spool == str(folder / "named")


@pytest.mark.slow
def test_the_command_line_names_a_spool_or_wants_none(tmp_path: Path) -> None:
    spool = tmp_path / "mail"
    with HubProcess("--spool", str(spool)) as hub:
        assert hub.running.spool == str(spool)
        assert f"spool     {spool}" in hub.stdout
        second = run_cli(tmp_path / "two", "serve", "--http", "127.0.0.1:0", "--spool", str(spool))
        assert second.returncode == 1
        assert "another hub has adopted the spool" in second.stderr
        assert "Traceback" not in second.stderr
    with HubProcess("--no-spool") as hub:
        assert hub.running.spool is None
    both = run_cli(tmp_path / "two", "serve", "--spool", str(spool), "--no-spool")
    assert both.returncode == 2


@pytest.mark.slow
def test_commands_use_the_hub_that_runs_and_compete_with_local_readers() -> None:
    with HubProcess() as hub:
        raw = Raw(hub.home / "spool-home")
        raw.init("lea")
        hub.add_members("bob")
        wait_until(lambda: raw.record("bob") is not None, "a record for bob")
        wait_until(lambda: hub.session_count("lea") == 1, "lea in the hub")
        ids = hub.send("bob", "@lea", "one", "two", "three")
        wait_until(lambda: len(raw.names("lea")) == 3, "three files")
        assert "two" in hub.cli("take", ids[1], "--as", "lea").stdout
        assert raw.take("lea", ids[1]) is None
        assert raw.take("lea", ids[0]) is not None
        drained = hub.cli("drain", "--as", "lea").stdout
        assert "three" in drained
        assert not any(word in drained for word in ("one", "two"))
        assert raw.names("lea") == []
        assert hub.cli("send", "@bob", "hello", "--as", "lea").returncode == 0
        assert hub.cli("drain", "--as", "bob").stdout.count("hello") == 1
