"""Tests of races and failures in a spool that a hub has adopted."""

import asyncio
import json
import shutil
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.protocols.backchannel.adopted_spools import AdoptedSpool, adopted_spool, eventually
from tests.protocols.backchannel.raw import Raw
from tests.server.hubs import WAIT_SECONDS, bodies, options_of, running_hub, silent, take, until
from tieline.contract import command as c
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Claimed, Reply
from tieline.core.evidence import EvidenceRules
from tieline.protocols.backchannel import adoption, local_inbox, view
from tieline.protocols.backchannel.folder_watch import FolderWatch
from tieline.protocols.backchannel.local_inbox import LocalInbox
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.hub import RunningHub
from tieline.server.local_hub import LocalHub
from tieline.wire.prefix_ids import to_prefix_id

# Races.


@pytest.mark.parametrize("how", ["claim", "ack"])
async def test_a_delivery_settled_at_the_hub_is_gone_from_the_spool(place: AdoptedSpool, how: str) -> None:
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


async def test_a_delivery_taken_from_the_spool_cannot_be_claimed_at_the_hub(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = await bob.send("@lea", "hello")
    await place.unread("lea", "hello")
    lea = await place.as_local("lea")
    assert place.raw.take("lea", to_prefix_id(sent.id)) is not None
    assert await lea.claim(sent.id) is None
    await place.state(bob, sent.id, "lea", "acked")


@pytest.mark.slow
async def test_a_message_whose_time_has_passed_is_gone_from_the_spool(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = await bob.send("@lea", "quick", ttl_ms=300)
    await place.unread("lea", "quick")
    await place.unread("lea")
    await place.state(bob, sent.id, "lea", "expired")
    await until(place.quiet)


@pytest.mark.slow
async def test_twenty_who_race_for_the_messages_of_a_local_agent_get_each_exactly_once(place: AdoptedSpool) -> None:
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


async def test_a_file_that_is_being_written_during_a_redaction_gets_the_note(
    place: AdoptedSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    encoding, redacted = threading.Event(), threading.Event()

    def received_late(message: Message, ids: MessageIds) -> dict[str, object]:
        document = view.received(message, ids)
        encoding.set()
        assert redacted.wait(WAIT_SECONDS)
        return document

    monkeypatch.setattr(local_inbox, "received", received_late)
    sent = await bob.send("@lea", "a leaked password")
    await until(encoding.is_set)
    operator = await place.there.operator()
    await operator.redact(sent.id, "a password")
    # The notice comes before the answer to this.
    await operator.members()
    redacted.set()
    await place.unread("lea", "redacted by operator: a password")


# Failures.


async def test_what_cannot_be_read_is_passed_over_and_told_of_once(place: AdoptedSpool) -> None:
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


async def test_a_message_that_the_hub_does_not_accept_is_kept_aside(place: AdoptedSpool) -> None:
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
    async with adopted_spool(folder) as place:
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


async def test_a_mailbox_that_cannot_be_written_to_is_tried_again(
    place: AdoptedSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.protocols.backchannel.local_agent._RETRY_SECONDS", 0.05)
    bob = await place.join("bob")
    await place.local("lea")
    place.raw.new("lea").rmdir()
    place.raw.new("lea").write_text("in the way")
    with capture_logs() as logs:
        await bob.send("@lea", "hello")
        await until(lambda: any(log["event"] == "messages cannot be written to the spool" for log in logs))
        place.raw.new("lea").unlink()
        await place.unread("lea", "hello")


async def test_a_message_that_cannot_be_put_back_into_a_mailbox_is_put_back_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption.Adoption.__init__, "__kwdefaults__", {"rescan_seconds": 0.1})
    # The hub reserves the delivery and does not settle it.
    monkeypatch.setattr(EvidenceRules, "claim", lambda *_: Claimed(None))
    reserve = LocalInbox.reserve

    def reserve_and_obstruct(inbox: LocalInbox, message: Message, key: int) -> bool | None:
        reserved = reserve(inbox, message, key)
        inbox.mailbox.new.rmdir()
        inbox.mailbox.new.write_text("in the way")
        return reserved

    monkeypatch.setattr(LocalInbox, "reserve", reserve_and_obstruct)
    async with adopted_spool(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        sent = await bob.send("@lea", "hello")
        await place.unread("lea", "hello")
        lea = await place.as_local("lea")
        with capture_logs() as logs:
            assert await lea.claim(sent.id) is None
            await until(lambda: any(log["event"].startswith("a message could not be put back") for log in logs))
            place.raw.new("lea").unlink()
            await place.unread("lea", "hello")
            await until(place.quiet)


async def test_a_local_agent_receives_after_the_hub_failed_to_read_what_a_former_hub_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "_TROUBLE_SECONDS", 0.05)
    async with adopted_spool(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        # Once a delivery was shown, the mailbox is marked as this member's: what is left in it is looked at.
        await bob.send("@lea", "before")
        await place.unread("lea", "before")
        await until(place.quiet)
        token = place.there.tokens["bob"]
    left = place.raw.root / "spool" / "lea" / "hub" / "m.2.staged"
    left.write_bytes(b"half of it")
    ask, failures = LocalHub.ask, [Refusal(Code.STORE_FAILED, "not now"), Refusal(Code.INTERNAL_ERROR, "a bug")]

    async def ask_or_fail(local_hub: LocalHub, command: c.AnsweredBy[Reply]) -> Reply:
        return failures.pop() if failures and isinstance(command, c.Fetch) else await ask(local_hub, command)

    monkeypatch.setattr(LocalHub, "ask", ask_or_fail)
    async with adopted_spool(folder) as place:
        place.there.tokens["bob"] = token
        bob = await place.there.join("bob")
        await bob.send("@lea", "hello")
        await place.unread("lea", "before", "hello")
        assert failures == []
        await until(place.quiet)


@pytest.mark.slow
async def test_a_mailbox_that_somebody_deletes_is_made_anew_with_what_is_unread_in_the_hub(place: AdoptedSpool) -> None:
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


async def test_two_files_of_one_id_that_say_different_things_are_not_one_message(place: AdoptedSpool) -> None:
    bob = await place.join("bob")
    await place.local("lea")
    sent = place.raw.send("lea", "@bob", "the first")
    await take(bob, 1)
    with capture_logs():
        place.raw.put("bob", {**sent, "body": "the second"})
        refused = place.raw.root / "spool" / "bob" / "refused" / f"{sent['id']}.wire_id_reused.json"
        await until(refused.exists)


@pytest.mark.slow
async def test_without_a_folder_watch_the_spool_is_looked_at_from_time_to_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderWatch, "start", lambda _: None)
    monkeypatch.setattr(adoption.Adoption.__init__, "__kwdefaults__", {"rescan_seconds": 0.2})
    async with adopted_spool(folder) as place:
        bob = await place.join("bob")
        await place.local("lea")
        place.raw.send("lea", "@bob", "hello")
        assert bodies(await take(bob, 1)) == ["hello"]
        sent = await bob.send("@lea", "hello")
        await asyncio.to_thread(place.raw.wait, "lea", 1)
        await place.state(bob, sent.id, "lea", "acked")


async def test_a_spool_has_one_hub_at_a_time(folder: Path) -> None:
    spool = folder / "spool"
    async with running_hub(folder / "one", spool=spool) as there:
        assert there.running.places["spool"] == str(spool)
        hub = RunningHub(options_of(folder / "two", spool=spool))
        with pytest.raises(adoption.SpoolAdopted, match="another hub has adopted"):
            await hub.start()
    async with running_hub(folder / "two", spool=spool) as there:
        assert there.running.places["spool"] == str(spool)


async def test_a_spool_that_is_found_and_cannot_be_adopted_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKCHANNEL_HOME", str(folder / "spool"))
    async with running_hub(folder / "one") as there:
        assert there.running.places["spool"] == str(folder / "spool")
        with capture_logs():
            async with running_hub(folder / "two") as second:
                assert second.running.places["spool"] is None


async def test_the_records_of_a_former_hub_are_cleared_and_its_unread_messages_stay(folder: Path) -> None:
    spool = folder / "spool"
    async with running_hub(folder / "one", spool=spool) as there:
        await there.add("bob", "ben")
        await until(lambda: set(Raw(spool).agents()) == {"bob", "ben"})
    Raw(spool).send("lea", "@ben", "unread")
    async with running_hub(folder / "two", spool=spool):
        await until(lambda: Raw(spool).agents() == {})
    assert [message["body"] for message in Raw(spool).inbox("ben")] == ["unread"]
    assert not (spool / "spool" / "bob").exists()


@pytest.mark.slow
async def test_thousands_of_files_do_not_make_anybody_wait(place: AdoptedSpool) -> None:
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
    assert BackchannelSettings().spool_path is None
    assert BackchannelSettings(spool="~/mail").spool_path == Path.home() / "mail"
