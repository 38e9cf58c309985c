"""Tests that the audit finds tampering: after any change to a hub's stored files, it names the first changed row."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.faults.test_kill import audit
from tests.server.hubs import running_hub, take
from tieline.contract.chain import GENESIS, link
from tieline.contract.delivery import State
from tieline.core.audit import AuditReport
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words, words_of

pytestmark = pytest.mark.slow


class Copy:
    """Test helper: a copy of a stopped hub's database, open for changes by the test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = apsw.Connection(str(home / MAIN_FILE))

    def run(self, statement: str, *values: object) -> None:
        self.database.execute(statement, values)

    def event(self, offset: int) -> bytes:
        """Return an event as it is stored."""
        return bytes(self.database.execute("SELECT event FROM log WHERE offset = ?", (offset,)).get)

    def offsets(self, kind: str) -> list[int]:
        """Return the log offsets of all events of one kind, in order."""
        rows = self.database.execute("SELECT offset, event FROM log ORDER BY offset")
        unpack = Words(self.database).unpack
        return [offset for offset, event in rows if msgspec.json.decode(unpack(event))["event"] == kind]

    def audit(self) -> AuditReport:
        self.database.close()
        return audit(self.home)


async def _live(home: Path) -> None:
    """Run a hub and use several kinds of commands.

    They are sends, single and ranged acknowledgements, claims, expiry and refusals.
    """
    async with running_hub(home) as there:
        await there.add("alice", "bob", "carol")
        alice, bob = await there.join("alice"), await there.join("bob", receive=True)
        sent = [await alice.send("@bob", f"{number}") for number in range(30)]
        for delivery in (await take(bob, 30))[:20]:
            bob.ack(delivery)
            if delivery.key % 3 == 0:
                await bob.send("@carol", "an acknowledgement in a commit of its own")
        assert await bob.claim(sent[25].id) is not None
        await alice.send("@carol", "soon over", ttl_ms=1)
        await alice.send("*", "to all")
        async with asyncio.timeout(10):
            while "expired" not in [
                receipt.state
                for message in await alice.history("carol")
                for receipt in await alice.receipts(message.id)
            ]:
                pass


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: run a hub, use it and stop it. Return its home."""
    home = tmp_path_factory.mktemp("t") / "h"
    asyncio.run(_live(home))
    return home


@pytest.fixture
def copy(lived: Path, tmp_path: Path) -> Copy:
    shutil.copytree(lived, tmp_path / "h")
    return Copy(tmp_path / "h")


def test_a_store_that_nobody_touched_is_intact(copy: Copy) -> None:
    count = copy.database.execute("SELECT count(*) FROM log").get
    report = copy.audit()
    assert report.intact, report.findings
    assert report.rows == count
    assert report.messages > 30


def test_every_kind_of_row_there_is_was_made(copy: Copy) -> None:
    for kind in ("send", "deliver", "ack", "claim", "expire", "register"):
        assert copy.offsets(kind), kind


@pytest.mark.parametrize("kind", ["send", "deliver", "ack", "claim", "expire", "register"])
def test_a_byte_that_is_changed_in_an_event_is_found_at_its_row(copy: Copy, kind: str) -> None:
    offset = copy.offsets(kind)[-1]
    event = bytearray(copy.event(offset))
    event[len(event) // 2] ^= 1
    copy.run("UPDATE log SET event = ? WHERE offset = ?", bytes(event), offset)
    report = copy.audit()
    assert report.findings[0].offset == offset
    assert "changed" in report.findings[0].what


@pytest.mark.parametrize("kind", ["send", "ack"])
def test_every_byte_of_a_packed_event_counts(copy: Copy, kind: str) -> None:
    offset = copy.offsets(kind)[-1]
    stored = copy.event(offset)
    changes = [bytes((*stored[:at], byte ^ 1, *stored[at + 1 :])) for at, byte in enumerate(stored)]
    for changed in (*changes, stored[:-1], stored + b"0", b""):
        copy.run("UPDATE log SET event = ? WHERE offset = ?", changed, offset)
        report = audit(copy.home)
        assert report.findings[0].offset == offset, changed
        assert "changed" in report.findings[0].what


@pytest.mark.parametrize(
    "change", ["UPDATE word SET text = CAST(text || 'x' AS BLOB) WHERE number = ?", "DELETE FROM word WHERE number = ?"]
)
def test_a_word_that_was_changed_is_found_at_the_first_row_with_it(copy: Copy, change: str) -> None:
    word = copy.database.execute('SELECT number FROM word WHERE CAST(text AS TEXT) = \'sender":"alice"\'').get
    first = min(offset for offset in copy.offsets("send") if word in words_of(copy.event(offset)))
    copy.run(change, word)
    report = copy.audit()
    assert report.findings[0].offset == first
    assert "changed" in report.findings[0].what


@pytest.mark.parametrize("place", ["first", "middle", "last but one"])
def test_a_row_that_is_deleted_is_found_missing(copy: Copy, place: str) -> None:
    count = copy.database.execute("SELECT count(*) FROM log").get
    assert isinstance(count, int)
    offset = {"first": 0, "middle": count // 2, "last but one": count - 2}[place]
    copy.run("DELETE FROM log WHERE offset = ?", offset)
    report = copy.audit()
    assert report.findings[0].offset == offset
    assert "missing" in report.findings[0].what


@pytest.mark.parametrize("columns", ["event = ?", "event = ?, hash = ?", "event = ?, hash = ?, at_ms = ?"])
def test_two_rows_that_are_swapped_are_found_at_the_first(copy: Copy, columns: str) -> None:
    first, second = copy.offsets("send")[3:5]
    rows = {
        offset: copy.database.execute("SELECT event, hash, at_ms FROM log WHERE offset = ?", (offset,)).fetchone()
        for offset in (first, second)
    }
    for offset, other in ((first, second), (second, first)):
        row = rows[other]
        assert row is not None
        copy.run(f"UPDATE log SET {columns} WHERE offset = ?", *row[: columns.count("?")], offset)
    assert copy.audit().findings[0].offset == first


def test_a_hash_that_is_changed_is_found_at_its_row(copy: Copy) -> None:
    offset = copy.offsets("ack")[0]
    copy.run("UPDATE log SET hash = zeroblob(32) WHERE offset = ?", offset)
    assert copy.audit().findings[0].offset == offset


def test_a_message_whose_words_were_changed_is_found_at_its_row(copy: Copy) -> None:
    offset = copy.offsets("send")[7]
    content = bytes(copy.database.execute("SELECT content FROM message WHERE offset = ?", (offset,)).get)
    changed = content.replace(b'"body":"', b'"body":"not ')
    assert changed != content
    copy.run("UPDATE message SET content = ? WHERE offset = ?", changed, offset)
    report = copy.audit()
    assert [finding.offset for finding in report.findings] == [offset]
    assert "stored" in report.findings[0].what


@pytest.mark.parametrize(
    "change",
    ["protocol = 'another'", "verified = 0", "sent_at_ms = sent_at_ms + 1", "route = zeroblob(24)", "sender = 'carol'"],
)
def test_a_message_whose_stamps_were_changed_is_found_at_its_row(copy: Copy, change: str) -> None:
    offset = copy.offsets("send")[7]
    copy.run(f"UPDATE message SET {change} WHERE offset = ?", offset)
    assert [finding.offset for finding in copy.audit().findings] == [offset]


def test_a_step_whose_time_was_changed_is_found_at_its_row(copy: Copy) -> None:
    offset = copy.offsets("ack")[0]
    copy.run("UPDATE log SET at_ms = 1 WHERE offset = ?", offset)
    assert [finding.offset for finding in copy.audit().findings] == [offset]


def test_a_snapshot_of_what_the_log_does_not_hold_is_found(copy: Copy) -> None:
    copy.run("UPDATE snapshot SET log_end = log_end + 1")
    assert "snapshot" in copy.audit().findings[0].what


def test_a_message_that_was_never_sent_is_found(copy: Copy) -> None:
    offset, ack = copy.offsets("send")[2], copy.offsets("ack")[0]
    copy.run("UPDATE message SET offset = ? WHERE offset = ?", ack, offset)
    assert copy.audit().findings[0].offset == ack


def test_a_message_under_another_id_is_found_at_its_row(copy: Copy) -> None:
    offset = copy.offsets("send")[2]
    copy.run("UPDATE message SET id = 'another' WHERE offset = ?", offset)
    assert copy.audit().findings[0].offset == offset


def test_an_acknowledgement_whose_row_was_deleted_is_found_missing(copy: Copy) -> None:
    offset = copy.offsets("ack")[1]
    copy.run("DELETE FROM log WHERE offset = ?", offset)
    report = copy.audit()
    assert report.findings[0].offset == offset
    assert any("no acked row" in finding.what for finding in report.findings)


@pytest.mark.parametrize(
    ("what", "forge"),
    [
        ("at the row of another event", lambda copy: (1, int(State.ACKED), 900, 900, copy.offsets("send")[0])),
        ("of another state", lambda copy: (2, int(State.DEAD), 900, 901, copy.offsets("ack")[0])),
        ("for other deliveries", lambda copy: (2, int(State.ACKED), 900, 901, copy.offsets("ack")[0])),
        ("for another member", lambda copy: (77, int(State.ACKED), 1, 1, copy.offsets("ack")[0])),
        ("past the end", lambda copy: (2, int(State.ACKED), 900, 901, 100_000)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forged_step_is_found_at_the_row_it_points_at(
    copy: Copy, what: str, forge: Callable[[Copy], tuple[int, ...]]
) -> None:
    number, state, first, last, offset = forge(copy)
    copy.run(
        "INSERT INTO step (number, state, first, last, offset) VALUES (?, ?, ?, ?, ?)",
        number,
        state,
        first,
        last,
        offset,
    )
    report = copy.audit()
    assert [finding.offset for finding in report.findings] == [offset], what


def test_a_delivery_that_a_snapshot_calls_settled_without_a_row_is_found(copy: Copy) -> None:
    number, rungs = next(
        (number, bytearray(rungs))
        for number, rungs in copy.database.execute("SELECT number, rungs FROM image")
        if rungs and any(rung >> 1 < State.ACKED for rung in rungs)
    )
    index = next(index for index, rung in enumerate(rungs) if rung >> 1 < State.ACKED)
    rungs[index] = 2 * State.ACKED
    copy.run("UPDATE image SET rungs = ? WHERE number = ?", bytes(rungs), number)
    report = copy.audit()
    assert len(report.findings) == 1
    assert "no row says so" in report.findings[0].what


def test_a_tail_that_is_cut_off_shows_by_what_points_beyond_it_and_by_the_head(copy: Copy, lived: Path) -> None:
    cut = copy.offsets("ack")[-1]
    copy.run("DELETE FROM log WHERE offset >= ?", cut)
    report = copy.audit()
    assert not report.intact
    assert report.rows == cut
    assert report.head != audit(lived).head


def test_a_chain_that_was_made_anew_over_forged_rows_shows_by_its_head(copy: Copy, lived: Path) -> None:
    offset = copy.offsets("register")[0]
    event = copy.event(offset).replace(b"alice", b"mallo")
    copy.run("UPDATE log SET event = ? WHERE offset = ?", event, offset)
    head = GENESIS
    unpack = Words(copy.database).unpack
    for at, at_ms, said in list(copy.database.execute("SELECT offset, at_ms, event FROM log ORDER BY offset")):
        head = link(head, at_ms, unpack(said))
        copy.run("UPDATE log SET hash = ? WHERE offset = ?", bytes.fromhex(head), at)
    report = copy.audit()
    assert report.intact, "the chain alone cannot tell"
    assert report.head != audit(lived).head, "but the head that was kept elsewhere can"


async def test_a_running_hub_is_audited_without_making_it_wait(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice", "bob")
        alice = await there.join("alice")
        for _ in range(10):
            await asyncio.gather(*(alice.send("@bob", "hello") for _ in range(20)))
            report = await asyncio.to_thread(audit, folder)
            assert report.intact, report.findings
        assert (await asyncio.to_thread(audit, folder)).messages == 200
