"""Tests of redaction: who may redact, what is left of a message, and what an audit says."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.core.doubles import START_MS, BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import Redacted
from tieline.contract.hub import MessageRedacted
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Attachment, Content, Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Activity, History, Recorded, Redaction
from tieline.contract.target import to_member
from tieline.core.audit import verify
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import open_for_reading
from tieline.stores.sqlite.inspection import open_inspection

SECRET = "hunter2-is-the-password"


@pytest.fixture
def harness(tmp_path: Path) -> BrokerHarness:
    """Fixture: a broker on a store of files, with the members alice and bob."""
    made = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    made.add("alice")
    made.add("bob")
    return made


def leak(harness: BrokerHarness, body: str = SECRET, **fields: object) -> MessageId:
    """Let alice send bob a secret, in the data and perhaps elsewhere. Return the id of the message."""
    content = Content(target=to_member("bob"), body=body, title=body, data={"key": SECRET}, topic="t", **fields)  # type: ignore[arg-type]
    return harness.expect(Accepted, c.Send(harness.attach("alice"), content=content, wire_id="w")).message_id


def redact(harness: BrokerHarness, message_id: MessageId) -> Redaction:
    return harness.expect(Redaction, c.Redact(harness.operator, message_id=message_id, reason="a password"))


def test_only_the_operator_redacts_and_only_with_a_reason(harness: BrokerHarness) -> None:
    leaked = leak(harness)
    alice = harness.attach("alice")
    assert harness.refused(c.Redact(alice, message_id=leaked, reason="mine")).code is Code.FORBIDDEN
    for reason in ("", "  ", "x" * 100_000):
        refused = harness.refused(c.Redact(harness.operator, message_id=leaked, reason=reason))
        assert refused.code is Code.INVALID_REQUEST
    unknown = c.Redact(harness.operator, message_id=MessageId("x"), reason="a password")
    assert harness.refused(unknown).code is Code.UNKNOWN_MESSAGE
    assert redact(harness, leaked) == Redaction("operator", START_MS)


def test_a_second_redaction_repeats_the_notice_and_adds_no_row(harness: BrokerHarness) -> None:
    leaked = leak(harness, attachments=(Attachment("/alice/secret.txt"),))
    redact(harness, leaked)
    (change,) = harness.outcome.changes
    assert isinstance(change, MessageRedacted)
    # As after a crash: nothing but the log knows of the redaction.
    harness.crash()
    harness.pass_ms(5000)
    end = end_of_log(harness)
    repeated = harness.expect(Redaction, c.Redact(harness.attach(None), message_id=leaked, reason="something else"))
    assert repeated == Redaction("operator", START_MS, again=True)
    assert harness.outcome.changes == [msgspec.structs.replace(change, repeats_ms=START_MS)]
    assert end_of_log(harness) == end


def test_a_message_is_not_redacted_twice_in_one_batch(harness: BrokerHarness) -> None:
    command = c.Redact(harness.operator, message_id=leak(harness), reason="a password", erased=True)
    first, second = harness.ask_all(command, command)
    assert first == Redaction("operator", START_MS)
    assert isinstance(second, Refusal)
    assert "redact it again" in second.message
    assert harness.expect(Redaction, command).again


def test_a_message_that_looks_like_a_note_is_redacted_too(harness: BrokerHarness) -> None:
    first = end_of_log(harness)
    redact(harness, forge(harness, "x"))
    rows_of_a_message = end_of_log(harness) - first - 1
    # The sender guesses the row about the redaction of another message.
    guessed = end_of_log(harness) + 5 * rows_of_a_message
    forged = [forge(harness, row) for row in ("x", 0, 10**9, guessed)]
    redact(harness, forge(harness, "x"))
    for message_id in forged:
        assert not redact(harness, message_id).again
        assert redact(harness, message_id).again


def forge(harness: BrokerHarness, row: int | str) -> MessageId:
    """Let alice send bob a secret in a message with the data of a note. Return the id of the message."""
    content = Content(target=to_member(MemberName("bob")), body=SECRET, data={"event": "redacted", "row": row})
    return harness.expect(Accepted, c.Send(harness.attach("alice"), content=content)).message_id


def end_of_log(harness: BrokerHarness) -> int:
    """Return the offset of the next row of the log."""
    return harness.broker.store.read_log(0, 1)[1]


def test_a_note_with_name_and_reason_is_all_that_is_left(harness: BrokerHarness) -> None:
    leaked = leak(harness, attachments=(Attachment("/alice/secret.txt"),), notes=(SECRET,))
    redact(harness, leaked)
    (change,) = harness.outcome.changes
    assert isinstance(change, MessageRedacted)
    assert change.attachments == ("/alice/secret.txt",)
    (delivery,) = harness.fetch(harness.attach("bob"))
    assert delivery.message == change.message
    content = delivery.message.content
    assert content.body == "redacted by operator: a password"
    assert SECRET not in msgspec.json.encode(content).decode()
    assert (content.topic, content.title, content.attachments, content.notes) == ("t", None, (), ())
    assert delivery.message.signature is Signature.NONE
    event = harness.events()[-1]
    assert isinstance(event, Redacted)
    assert (event.id, event.offset, event.by, event.reason) == (
        leaked, delivery.message.offset, "operator", "a password",
    )  # fmt: skip


def test_it_survives_a_restart_and_deliveries_go_on(harness: BrokerHarness) -> None:
    redact(harness, leak(harness))
    harness.crash()
    harness.send(harness.attach("alice"), "@bob", "and now?")
    bob = harness.attach("bob")
    assert harness.bodies(bob) == ["redacted by operator: a password", "and now?"]
    harness.advance(bob, 1)
    history = harness.expect(History, c.ReadHistory(bob))
    assert [message.content.body for message in history.messages] == ["and now?", "redacted by operator: a password"]


def test_the_chain_holds_and_tells_a_redaction_from_a_forgery(harness: BrokerHarness, tmp_path: Path) -> None:
    leaked, other = leak(harness), harness.send(harness.attach("alice"), "@bob", "something else").message_id
    redact(harness, leaked)
    harness.broker.close()
    inspection = open_inspection(tmp_path)
    assert verify(inspection).intact
    inspection.close()
    store = SqliteStore(tmp_path, synchronous="OFF")
    note = store._main.execute("SELECT content FROM message WHERE id = ?", (leaked,)).get
    for message_id, forged in ((other, note), (leaked, note.replace(b"operator", b"somebody"))):
        with store._main:
            before = store._main.execute("SELECT content FROM message WHERE id = ?", (message_id,)).get
            store._main.execute("UPDATE message SET content = ? WHERE id = ?", (forged, message_id))
        inspection = open_inspection(tmp_path)
        (finding,) = verify(inspection).findings
        assert str(message_id) in finding.what
        inspection.close()
        with store._main:
            store._main.execute("UPDATE message SET content = ? WHERE id = ?", (before, message_id))
    store.close()


def test_no_file_of_the_store_has_the_text_any_more(harness: BrokerHarness, tmp_path: Path) -> None:
    alice = harness.attach("alice")
    for number in range(50):
        harness.send(alice, "@bob", f"before {number} " * 50)
    leaked = leak(harness)
    large = harness.send(alice, "@bob", f"{SECRET} " * 5000).message_id
    for number in range(50):
        harness.send(alice, "@bob", f"after {number} " * 50)
    assert files_with_it(tmp_path)
    redact(harness, leaked)
    redact(harness, large)
    assert files_with_it(tmp_path) == []
    assert (tmp_path / "tieline.db-wal").stat().st_size == 0


def test_a_reader_delays_the_erasure_and_does_not_prevent_it(harness: BrokerHarness, tmp_path: Path) -> None:
    leaked = leak(harness)
    inspection = open_inspection(tmp_path)
    assert list(inspection.messages())
    redact(harness, leaked)
    assert "write-ahead log" in harness.broker.store.trouble
    inspection.close()
    harness.broker.store.retry()
    assert harness.broker.store.trouble == ""
    assert files_with_it(tmp_path) == []


def files_with_it(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*.db*")) if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def activity(harness: BrokerHarness, tmp_path: Path) -> Iterator[SqliteActivity]:
    """Fixture: the store of the harness's journal, in files."""
    harness.journal._store.close()
    store = SqliteActivity(tmp_path, synchronous="OFF")
    harness.journal._store = store
    harness.journal.restore()
    yield store
    store.close()


@pytest.mark.usefixtures("activity")
@pytest.mark.parametrize("body", [SECRET, "see the data"])
def test_activity_that_quotes_the_message_is_erased(harness: BrokerHarness, tmp_path: Path, body: str) -> None:
    bob = harness.attach("bob")
    quoting = {"kind": "tool", "ts": 5, "result": msgspec.json.encode({"body": f'"{SECRET}"\n'}).decode()}
    events = ({"kind": "tool", "ts": 4, "said": f"I got {SECRET}"}, quoting, {"kind": "tool", "ts": 6, "n": 1})
    harness.expect(Recorded, c.RecordActivity(bob, events=events))
    harness.journal.commit()
    assert files_with_it(tmp_path)
    redact(harness, leak(harness, body=body))
    harness.journal.commit()
    rows = harness.expect(Activity, c.ReadActivity(bob, member=harness.roster()["bob"].member.name)).rows
    assert [msgspec.json.decode(row.event) for row in rows] == [
        {"kind": "tool", "ts": 6, "n": 1},
        *({"kind": "tool", "ts": ts, "redacted": "redacted by operator: a password"} for ts in (5, 4)),
    ]
    assert files_with_it(tmp_path) == []


@pytest.mark.parametrize("dump", [json.dumps, lambda value: msgspec.json.encode(value).decode()])
@pytest.mark.usefixtures("activity")
def test_a_quote_is_erased_whichever_way_its_letters_are_written(harness: BrokerHarness, dump: Any) -> None:
    secret = 'grüße "aus" 東京 🔑'
    bob = harness.attach("bob")
    harness.expect(Recorded, c.RecordActivity(bob, events=({"kind": "tool", "result": dump({"body": secret})},)))
    redact(harness, leak(harness, body=secret))
    (row,) = harness.expect(Activity, c.ReadActivity(bob, member=harness.roster()["bob"].member.name)).rows
    assert "redacted" in msgspec.json.decode(row.event)


def test_the_log_of_activity_is_emptied_after_a_reader_and_after_a_crash(
    harness: BrokerHarness, activity: SqliteActivity, tmp_path: Path
) -> None:
    bob = harness.attach("bob")
    harness.expect(Recorded, c.RecordActivity(bob, events=({"kind": "tool", "said": f"I got {SECRET}"},)))
    reader = open_for_reading(tmp_path / ACTIVITY_FILE)
    reader.execute("BEGIN; SELECT count(*) FROM activity").fetchall()
    redact(harness, leak(harness))
    # The main database has the message itself no more.
    assert files_with_it(tmp_path) == [f"{ACTIVITY_FILE}-wal"]
    assert harness.journal.erasing
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path, crashed, ignore=shutil.ignore_patterns("crashed"))
    reader.close()
    harness.journal.retry()
    assert not harness.journal.erasing
    assert files_with_it(tmp_path) == []
    store = SqliteActivity(crashed, synchronous="OFF")
    assert store.erasing
    store.retry()
    assert files_with_it(crashed) == []
    store.close()
