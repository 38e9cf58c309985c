"""Tests of packed events: each is read as it was written, and no traffic makes the log larger than JSON would."""

import random
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.store.writer import Writer
from tests.core.doubles import content
from tieline.cli.doctor_log import GROWTH_BYTES_MAX, logs
from tieline.contract.chain import GENESIS, link
from tieline.contract.event import Acknowledged, AnyEvent, Delivered, Event, Sent
from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.core.ledger import encode_content
from tieline.core.store import DeliveryRoute, StoreError
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite import words as words_module
from tieline.stores.sqlite.inspection import open_inspection
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words, words_of

WORD_BYTES = 10
"""Bytes of the database for each word, in addition to its text."""

IDS = st.one_of(st.text(), st.uuids().map(str), st.uuids().map(lambda made: made.hex))
EVENTS = st.one_of(
    st.from_type(AnyEvent).map(  # type: ignore[arg-type]
        msgspec.json.encode
    ),
    st.builds(
        Sent,
        IDS,
        st.sampled_from(["ann", 'b"ob', ""]),
        st.sampled_from(["@ann", "#dev,", "*"]),
        st.integers(),
        st.one_of(st.text(), st.binary(min_size=32, max_size=32).map(bytes.hex)),
        IDS,
        IDS,
    ).map(msgspec.json.encode),
    st.builds(
        Acknowledged,
        st.sampled_from(["ann", "bob"]),
        st.integers(),
        st.lists(st.tuples(st.integers(), st.integers())).map(tuple),
        session=IDS,
        protocol=st.text(),
    ).map(msgspec.json.encode),
    st.binary(),
    st.binary().map(lambda end: b'{"event":"send","id":"' + end),
    st.binary().map(lambda end: b'{"event":"ack","keys":[[' + end + b"]]}"),
)


class Log:
    """Test helper: stores packed events as a hub does, in a database in memory."""

    def __init__(self) -> None:
        self.database = apsw.Connection(":memory:")
        self.database.execute("CREATE TABLE word (number INTEGER PRIMARY KEY, text BLOB NOT NULL)")
        self.words = Words(self.database)
        self.json_bytes = 0
        self.bytes = 0

    def add(self, event: bytes) -> bytes:
        """Return an event as it is stored, and check that every reader gets the event itself."""
        packed = self.words.pack(event)
        fresh, self.words.fresh = self.words.fresh, []
        self.database.executemany("INSERT INTO word VALUES (?, ?)", fresh)
        self.json_bytes += len(event)
        self.bytes += len(packed) + sum(len(text) + WORD_BYTES for _, text in fresh)
        if not event or event.startswith(b"{"):
            assert self.words.unpack(packed) == Words(self.database).unpack(packed) == event
        return packed

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(msgspec.json.encode(event))


def sent(chance: random.Random, sender: str, target: str, thread: str = "", reply_to: str = "") -> Sent:
    message_id = str(uuid.UUID(bytes=chance.randbytes(16)))
    return Sent(message_id, sender, target, 1, chance.randbytes(32).hex(), thread, reply_to)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(EVENTS, max_size=8))
def test_any_event_is_read_as_it_was_written(events: list[bytes]) -> None:
    log = Log()
    for event in events * 5:
        log.add(event)


@given(st.binary())
def test_any_bytes_can_be_read(stored: bytes) -> None:
    log = Log()
    for _ in range(3):
        log.add(b'{"event":"send","id":"x","sender":"ann"}')
    log.words.unpack(stored)
    if stored:
        log.words.unpack(bytes((stored[0] % 4,)) + stored)


def test_texts_that_repeat_are_stored_once() -> None:
    chance, log = random.Random(1), Log()
    packed = [log.add(msgspec.json.encode(sent(chance, "ann", "@bob", "plan", str(uuid.uuid4())))) for _ in range(4)]
    assert [len(event) < 80 for event in packed] == [False, True, True, True]
    again = Words(log.database)
    again.pack(msgspec.json.encode(sent(chance, "ann", "@bob", "plan")))
    assert again.fresh == [], "a restart forgot the words"
    assert log.database.execute("SELECT count(*) FROM word").get == len(set(words_of(packed[-1])))


@pytest.mark.parametrize("uses", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [1, 20, 190, 210])
def test_no_traffic_makes_the_log_larger_than_json(uses: int, size: int) -> None:
    """All texts that a member chooses are new, and each is used so often that a word is worth the least."""
    chance, log = random.Random(uses), Log()
    for number in range(200):
        text = f"{number // uses}".rjust(size, "x")
        session = uuid.UUID(int=number // uses).hex
        log.add_all([
            sent(chance, f"s{text}", f"#{text}", f"t{text}"),
            Delivered(f"m{text}", number // uses, ((number, number),), session=session, protocol="tieline"),
            Acknowledged(f"m{text}", number // uses, ((number, number),), session=session, evidence=f"e{text}"),
        ])  # fmt: skip
    assert log.bytes < log.json_bytes


def test_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_module, "KNOWN_MAX", 20)
    chance, log = random.Random(3), Log()
    for number in range(300):
        log.add_all([sent(chance, f"s{number // 3}", f"@t{number % 50}", f"thread {number // 2}")])
    held = [value for value in vars(log.words).values() if isinstance(value, dict)]
    assert len(held) == 5
    assert 10 < max(map(len, held)) <= 20
    assert log.words.fresh == []


# The store


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    yield made
    made.store.close()


def test_words_of_a_batch_that_was_abandoned_are_not_used(tmp_path: Path, writer: Writer) -> None:
    def say(name: str) -> None:
        for _ in range(3):
            writer.accept(sender=name, message_id=str(uuid.uuid4()))

    say("ann")
    writer.store.commit()
    say("bob")
    writer.store.messages((), 0)  # writes the rows into the open transaction
    writer.restore()
    say("bob")
    writer.store.commit()
    blocker = apsw.Connection(str(tmp_path / MAIN_FILE))
    blocker.execute("CREATE TRIGGER full BEFORE INSERT ON message BEGIN SELECT raise(abort, 'disk full'); END")
    say("dan")
    with pytest.raises(StoreError, match="disk full"):
        writer.store.commit()
    blocker.execute("DROP TRIGGER full")
    blocker.close()
    writer.restore()
    say("dan")
    writer.store.commit()
    say("eve")
    writer.crash()
    say("eve")
    writer.store.commit()
    with closing(open_inspection(tmp_path)) as inspection:
        read = list(inspection.rows())
    names = [msgspec.json.decode(row.event)["sender"] for row in read]
    assert names == [name for name in ("ann", "bob", "dan", "eve") for _ in range(3)]
    before = GENESIS
    for row in read:
        assert row.hash == (before := link(before, row.at_ms, row.event))
    assert writer.store.read_log(0, 100)[0] == read


@pytest.mark.slow
def test_the_log_grows_by_less_than_300_bytes_a_message_and_the_doctor_measures_it(
    tmp_path: Path, writer: Writer
) -> None:
    chance = random.Random(5)
    names = [f"agent-number-{number}" for number in range(12)]
    sessions = [chance.randbytes(16).hex() for _ in names]
    thread, before = "", ""
    for number in range(1500):
        sender, recipient = chance.sample(range(12), 2)
        if number % 6 == 0:
            thread = f"thread about task {number}"
        told = sent(chance, names[sender], f"@{names[recipient]}", thread, before if number % 3 else "")
        before = told.id
        said = content(f"@{names[recipient]}")
        message = Message(
            id=MessageId(told.id),
            offset=writer.ledger.end,
            sender=told.sender,
            protocol="tieline",
            sent_at_ms=1,
            content=said,
        )
        encoded, at_ms = encode_content(said), 1_800_000_000_000 + number
        route = DeliveryRoute([recipient], [number], [number]).pack()
        writer.store.accept(writer.ledger.append(told, at_ms), message, encoded, route)
        for kind, evidence in ((Delivered, ""), (Acknowledged, "ack")):
            keys = ((number, number),)
            step = kind(
                names[recipient], recipient, keys, session=sessions[recipient], protocol="tieline", evidence=evidence
            )
            writer.store.record(writer.ledger.append(step, at_ms))
    writer.store.commit()
    with closing(apsw.Connection(str(tmp_path / MAIN_FILE))) as database:
        stored = database.execute("SELECT sum(pgsize) FROM dbstat WHERE name IN ('log', 'word')").get
    (finding,) = [finding for finding in logs(tmp_path) if "grows by" in finding.what]
    printed = int(finding.what.split("grows by ")[1].split()[0])
    assert printed <= GROWTH_BYTES_MAX
    assert stored / 1500 == pytest.approx(printed, rel=0.03)
