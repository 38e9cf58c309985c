"""Tests of a spool that a hub has adopted: messages between its agents and the hub's members."""

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hub_process import HubProcess, run_cli, wait_until
from tests.protocols.backchannel.adopted_spools import ROOM, AdoptedSpool, adopted_spool, eventually, process
from tests.protocols.backchannel.raw import Raw
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import WAIT_SECONDS, bodies, running_hub, silent, take, until
from tieline.contract.member import Member
from tieline.protocols.agent_channels import ChannelClient
from tieline.protocols.backchannel.adoption import Adoption
from tieline.protocols.backchannel.spool import Spool
from tieline.wire.prefix_ids import to_prefix_id

# From the spool into the hub, and back.


@pytest.mark.slow
async def test_a_local_program_writes_to_a_member_on_the_hub_and_reads_its_answer(place: AdoptedSpool) -> None:
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
        "id": to_prefix_id(answer.id),
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


async def test_all_that_a_file_says_reaches_the_member(place: AdoptedSpool) -> None:
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


async def test_what_backchannel_has_no_key_for_is_in_the_file_under_one_more(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    await bob.send("@lea", "hello", title="Greeting", data={"n": 1})
    (read,) = await asyncio.to_thread(place.raw.wait, "lea", 1)
    assert read["tieline"] == {"title": "Greeting", "data": {"n": 1}}


@pytest.mark.slow
async def test_files_that_came_while_the_hub_was_down_are_taken_in_in_the_order_of_their_time(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        await place.join("bob")
        await place.local("lea")
        token = place.there.tokens["bob"]
    numbers = list(range(300))
    for number in sorted(numbers, key=lambda each: each * 7919 % 300):
        place.raw.send("lea", "@bob", str(number), ts=f"2026-06-12T12:00:{number // 10:02}.{number % 10:03}Z")
    async with adopted_spool(folder) as place:
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob", receive=True, window=1000)
        assert bodies(await take(bob, 300)) == [str(number) for number in numbers]
        await until(place.quiet)


async def test_a_message_that_waits_when_the_hub_stops_is_there_and_can_be_taken_meanwhile(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        sent = [await bob.send("@lea", body) for body in ("one", "two", "three")]
        await place.unread("lea", "one", "two", "three")
        token = place.there.tokens["bob"]
    assert place.raw.take("lea", to_prefix_id(sent[1].id)) is not None
    async with adopted_spool(folder) as place:
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob")
        await place.state(bob, sent[1].id, "lea", "acked")
        await place.unread("lea", "one", "three")
        assert (await bob.receipts(sent[0].id))[0].state == "offered"


async def test_a_message_for_a_local_agent_that_was_sent_without_a_spool_comes_when_there_is_one(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        token = place.there.tokens["bob"]
    async with adopted_spool(folder, adopt=False) as place:
        assert place.there.running.places["spool"] is None
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob")
        await bob.send("@lea", "hello")
    async with adopted_spool(folder) as place:
        await place.unread("lea", "hello")


async def test_a_member_of_another_protocol_is_reached_from_the_spool(place: AdoptedSpool) -> None:
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


@pytest.mark.slow
async def test_members_that_come_together_are_given_their_mailboxes_together(
    place: AdoptedSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []
    admit = Adoption._admit

    async def counted(adoption: Adoption, members: Sequence[Member]) -> None:
        rounds.append(len(members))
        await admit(adoption, members)

    monkeypatch.setattr(Adoption, "_admit", counted)
    operator = await place.there.operator()
    await asyncio.gather(*(operator.add_member(f"bulk-{number}") for number in range(300)))
    await until(lambda: len(place.raw.agents()) == 300)
    assert sum(rounds) == 300
    assert len(rounds) <= 30, "a round of questions and threads for many"
    place.raw.init("lea")
    place.raw.send("lea", "@bulk-7", "found")
    await until(lambda: place.raw.names("bulk-7") == [])


# Between local agents.


async def test_what_one_local_agent_writes_to_another_is_recorded_and_left_there(place: AdoptedSpool) -> None:
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


async def test_what_is_for_a_local_agent_is_never_held_and_what_it_says_is(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    operator = await place.there.operator()
    await operator.pause_thread("@bob+@lea")
    sent = await bob.send("@lea", "hello")
    assert not sent.held
    await place.unread("lea", "hello")
    place.raw.drain("lea")
    await place.state(bob, sent.id, "lea", "acked")
    place.raw.send("lea", "@bob", "thanks")
    await until(lambda: place.raw.names("bob") == [])
    assert (await bob.inbox()).held == 1
    await operator.resume_thread("@bob+@lea")
    assert bodies(await take(bob, 1)) == ["thanks"]


async def test_what_was_held_before_a_spool_was_adopted_is_in_it_then(folder: Path) -> None:
    async with adopted_spool(folder) as place:
        bob, carol = await place.join("bob"), await place.join("carol")
        await place.local("lea")
        tokens = dict(place.there.tokens)
    async with adopted_spool(folder, adopt=False) as place:
        place.there.tokens.update(tokens)
        bob, carol = await place.there.join("bob"), await place.there.join("carol")
        await (await place.there.operator()).pause_thread("@bob+@lea")
        assert (await bob.send("@lea", "held")).held
        await carol.send("@lea", "hello")
    async with adopted_spool(folder) as place:
        await place.unread("lea", "held", "hello")


async def test_a_message_that_a_reader_puts_back_is_not_recorded_again_and_stays_for_the_next_reader(
    place: AdoptedSpool,
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


async def test_a_local_agents_message_to_a_channel_reaches_each_subscriber_once_on_every_side(
    place: AdoptedSpool,
) -> None:
    bob, ben = await place.join("bob"), await place.join("ben")
    for client in (bob, ben):
        await client.subscribe("dev")
    await place.local("lea", "#dev")
    await place.local("lou", "#dev")
    heard: list[str] = []
    async with ChannelClient(Path(str(place.there.running.places["channels_dir"])) / "dev.sock") as listener:
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


async def test_a_members_message_to_a_channel_reaches_local_subscribers_as_files(place: AdoptedSpool) -> None:
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
    assert (place.raw.inbox("lea")[0]["to"], place.raw.inbox("lea")[0]["id"]) == ("#dev", to_prefix_id(sent.id))
    assert bodies(await take(ben, 1)) == ["hello"]
    assert place.raw.inbox("lou") == []


async def test_a_copy_that_comes_late_goes_to_its_owner_alone(place: AdoptedSpool) -> None:
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
    async with adopted_spool(folder) as place:
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
    async with adopted_spool(folder) as place:
        lea = await place.as_local("lea")
        await eventually(lambda: hub_says("art", "new"))


# Finding the spool, and the command line.


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
    async with running_hub(folder / "home", home_named=named) as there:
        assert there.running.places["spool"] == str(folder / found)


async def test_the_configuration_can_name_the_spool_or_want_none(folder: Path) -> None:
    (folder / "tieline.toml").write_text(f'[backchannel]\nspool = "{folder / "there"}"\n')
    async with running_hub(folder) as there:
        assert there.running.places["spool"] == str(folder / "there")
    (folder / "tieline.toml").write_text("[backchannel]\nadopt = false\n")
    async with running_hub(folder) as there:
        assert there.running.places["spool"] is None
    async with running_hub(folder, spool=folder / "named") as there:
        assert there.running.places["spool"] == str(folder / "named")


async def test_an_option_adopts_a_spool_although_the_relay_is_not_spoken(folder: Path) -> None:
    async with running_hub(folder, backchannel=False, spool=folder / "named") as there:
        assert there.running.places["spool"] == str(folder / "named")
        assert there.hub.servers["backchannel"].http is None
    async with running_hub(folder, backchannel=False) as there:
        assert there.running.places["spool"] is None


@pytest.mark.slow
def test_the_command_line_names_a_spool_or_wants_none(tmp_path: Path) -> None:
    spool = tmp_path / "mail"
    with HubProcess("--spool", str(spool)) as hub:
        assert hub.running.places["spool"] == str(spool)
        wait_until(lambda: f"spool     {spool}" in hub.stdout, "the spool to be printed")
        second = run_cli(tmp_path / "two", "serve", "--http", "127.0.0.1:0", "--spool", str(spool))
        assert second.returncode == 1
        assert "another hub has adopted the spool" in second.stderr
        assert "Traceback" not in second.stderr
    with HubProcess("--no-spool") as hub:
        assert hub.running.places["spool"] is None
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
        assert raw.take("lea", to_prefix_id(ids[1])) is None
        assert raw.take("lea", to_prefix_id(ids[0])) is not None
        drained = hub.cli("drain", "--as", "lea").stdout
        assert "three" in drained
        assert not any(word in drained for word in ("one", "two"))
        assert raw.names("lea") == []
        assert hub.cli("send", "@bob", "hello", "--as", "lea").returncode == 0
        assert hub.cli("drain", "--as", "bob").stdout.count("hello") == 1
