"""Tests of the PostgreSQL store beyond its port: one hub at a time, schemas, encodings, and its sentences."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.conformance.store.rows import member, token
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.stores.postgres_server import postgres_activity, postgres_store, schema_of, server
from tieline.core.outage import LeaseHeld, OutOfDate
from tieline.core.store import ActivityEntry, DiskError, StoreError, TokenRow
from tieline.stores.postgres import PostgresActivity, PostgresStore, connection
from tieline.stores.postgres.connection import QUERIES, lock_key, newest_version, place_of
from tieline.stores.postgres.lease import LEASE_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Fixture: a connection of the database's owner, in the schema of this test."""
    with psycopg.connect(server().url, autocommit=True) as connection:
        connection.execute(SQL("SET search_path TO {}").format(Identifier(schema_of(tmp_path))))
        yield connection


def test_a_second_hub_is_refused_with_a_sentence_that_names_the_first(tmp_path: Path) -> None:
    first = PostgresStore(server().url, schema_of(tmp_path), "the hub of ada on host a (process 7)")
    with pytest.raises(StoreError, match=r"is in use by the hub of ada on host a \(process 7\)") as refused:
        PostgresStore(server().url, schema_of(tmp_path), "another hub")
    assert "stop that hub first" in refused.value.hint
    first.close()
    PostgresStore(server().url, schema_of(tmp_path), "another hub").close()


@contextlib.contextmanager
def stopped_hub(folder: Path, *, in_transaction: bool) -> Iterator[subprocess.Popen[str]]:
    """A process with an open store of the schema of `folder`, which is stopped after its first commit.

    It may have begun a second transaction. If it is continued, it goes on and prints the result.
    """
    program = f"""
import os, signal
from tests.conformance.store.writer import Writer
from tieline.core.outage import OutOfDate
from tieline.stores.postgres import PostgresStore
writer = Writer(lambda: PostgresStore({server().url!r}, {schema_of(folder)!r}, "the hub that was stopped"))
writer.store.on_outage = lambda error: True
writer.record()
writer.store.commit()
if {in_transaction}:
    writer.store.find_message(writer.accept(wire_id="w").id)
os.kill(os.getpid(), signal.SIGSTOP)
writer.record()
try:
    writer.store.commit()
    print("committed")
except OutOfDate as error:
    print(error)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        os.waitpid(process.pid, os.WUNTRACED)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_hub_that_was_stopped_while_another_took_over_writes_nothing_when_it_goes_on(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]], in_transaction: bool
) -> None:
    with stopped_hub(tmp_path, in_transaction=in_transaction) as process:
        second = Writer(lambda: PostgresStore(server().url, schema_of(tmp_path), "the other hub", wait_seconds=10))
        assert second.ledger.end == 1
        if in_transaction:
            # The open transaction of the first hub has this row, and would not end.
            second.record()
            second.store.commit()
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=30)
        assert "committed" not in said
        assert "was taken over by the other hub" in said
    if not in_transaction:
        second.record()
        second.store.commit()
    rows = admin.execute("SELECT log_offset, term FROM log ORDER BY log_offset").fetchall()
    assert rows == [(0, 1), (1, 2)]
    assert admin.execute("SELECT term, hub FROM term ORDER BY term").fetchall() == [
        (1, "the hub that was stopped"),
        (2, "the other hub"),
    ]
    second.store.close()


def test_the_fence_alone_stops_a_hub_that_does_not_know_that_it_lost_the_lease(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The connection of the first hub is whole, and its thread has renewed nothing yet."""
    first = Writer(lambda: postgres_store(tmp_path))
    first.record()
    first.store.commit()
    assert isinstance(first.store, PostgresStore)
    first.store.lease.stop()
    second = Writer(lambda: PostgresStore(server().url, schema_of(tmp_path), "the other hub", anyway=True))
    first.record()
    with pytest.raises(OutOfDate, match="was taken over by the other hub"):
        first.store.commit()
    with pytest.raises(OutOfDate, match="was taken over by the other hub"):
        first.store.retry()
    assert admin.execute("SELECT count(*) FROM log").fetchone() == (1,)
    activity = PostgresActivity(server().url, schema_of(tmp_path), first.store.lease)
    activity.append([ActivityEntry(activity.restore(), 1, 1, "k", 1, b"{}")])
    with pytest.raises(OutOfDate):
        activity.commit()
    second.record()
    second.store.commit()
    assert admin.execute("SELECT term FROM log ORDER BY log_offset").fetchall() == [(1,), (2,)]
    activity.close()
    for each in (first, second):
        each.store.close()


def test_a_hub_learns_without_a_commit_that_it_lost_the_lease(tmp_path: Path) -> None:
    first = postgres_store(tmp_path)
    lost = threading.Event()
    first.lease.on_lost = lambda _: lost.set()
    second = PostgresStore(server().url, schema_of(tmp_path), "the other hub", anyway=True)
    assert lost.wait(10)
    assert "was taken over by the other hub" in str(first.lease.lost)
    first.close()
    assert second.lease.lost is None
    second.close()


def test_a_lease_is_renewed_while_a_commit_takes_long(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    message = writer.accept()
    writer.store.find_message(message.id)
    # Without a renewal, the lease would end in this time.
    time.sleep(LEASE_SECONDS + 0.5)
    with pytest.raises(LeaseHeld):
        PostgresStore(server().url, schema_of(tmp_path), "another hub", wait_seconds=0)
    writer.store.commit()
    assert admin.execute("SELECT term, until > clock_timestamp() FROM lease").fetchone() == (1, True)
    writer.store.close()


def test_a_lease_that_a_wrong_clock_made_is_no_lease(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    postgres_store(tmp_path).close()
    admin.execute("UPDATE lease SET until = clock_timestamp() + interval '1 h'")
    second = PostgresStore(server().url, schema_of(tmp_path), "another hub", wait_seconds=0)
    assert second.lease.term == 2
    second.close()


def test_a_database_of_an_older_program_gets_a_lease_and_its_log_stays(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    writer.record()
    writer.store.commit()
    before = writer.store.read_log(0, 10)
    writer.store.close()
    # As the first version of the schema was.
    for undo in (
        "DROP TABLE lease, term, cluster, hub",
        "DROP FUNCTION fence, begin_commit, take_lease, open_writer",
        "ALTER TABLE log DROP COLUMN term",
        "DROP TABLE writer",
        "UPDATE schema_version SET version = 1 WHERE part = 'main'",
    ):
        admin.execute(undo.encode())
    first = (files("tieline.stores.postgres") / "schema" / "main_0001.sql").read_text()
    admin.execute(first[first.index("CREATE TABLE writer") :].encode())
    admin.execute("UPDATE writer SET hub = 'the old hub', commits = 1")
    key = lock_key(schema_of(tmp_path), "writer")
    admin.execute("SELECT pg_advisory_lock(%s)", (key,))
    with pytest.raises(StoreError, match="is in use by the old hub, an older Tieline"):
        postgres_store(tmp_path)
    admin.execute("SELECT pg_advisory_unlock(%s)", (key,))
    writer = Writer(lambda: postgres_store(tmp_path))
    assert writer.store.read_log(0, 10) == before
    writer.record()
    writer.store.commit()
    assert admin.execute("SELECT term FROM log ORDER BY log_offset").fetchall() == [(None,), (1,)]
    assert admin.execute("SELECT commits FROM writer").fetchone() == (2,)
    writer.store.close()


def test_a_newer_program_migrates_nothing_while_a_hub_of_an_older_one_runs(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = postgres_store(tmp_path)
    version = newest_version("main")
    scripts = connection._migrations
    newer = {"main": ["CREATE TABLE newer (a bigint)"]}
    monkeypatch.setattr(connection, "_migrations", lambda part: [*scripts(part), *newer.get(part, [])])
    with pytest.raises(LeaseHeld, match="is in use by the hub of a test, an older Tieline"):
        postgres_store(tmp_path)
    assert admin.execute("SELECT version FROM schema_version WHERE part = 'main'").fetchone() == (version,)
    assert first.lease.lost is None
    first.close()
    postgres_store(tmp_path).close()
    assert admin.execute("SELECT version FROM schema_version WHERE part = 'main'").fetchone() == (version + 1,)


def test_every_commit_has_a_number_in_the_database(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    for number in (1, 2):
        writer.accept()
        writer.store.save_setting("a", b"b")
        writer.store.commit()
        assert admin.execute("SELECT commits FROM writer").fetchone() == (number,)
    writer.store.commit()
    writer.store.retry()
    writer.crash()
    assert admin.execute("SELECT commits FROM writer").fetchone() == (2,)
    writer.store.close()


@pytest.mark.parametrize("part", ["main", "activity"])
def test_a_newer_schema_is_refused_and_stays_as_it_is(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]], part: str
) -> None:
    opens = postgres_store if part == "main" else postgres_activity
    opens(tmp_path).close()
    newer = newest_version(part) + 1
    admin.execute("UPDATE schema_version SET version = %s WHERE part = %s", (newer, part))
    with pytest.raises(StoreError, match=rf"was written by a newer Tieline \(schema {part} {newer}; this program"):
        opens(tmp_path)
    assert admin.execute("SELECT version FROM schema_version WHERE part = %s", (part,)).fetchone() == (newer,)


def test_connections_that_open_an_empty_database_at_once_make_one_schema(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    opened: list[PostgresActivity | PostgresStore] = []
    opens: list[Callable[[Path], PostgresActivity | PostgresStore]] = [postgres_store, *[postgres_activity] * 3]

    def open_one(opener: Callable[[Path], PostgresActivity | PostgresStore]) -> None:
        opened.append(opener(tmp_path))

    threads = [threading.Thread(target=open_one, args=(each,)) for each in opens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == len(opens)
    rows = admin.execute("SELECT part, version FROM schema_version ORDER BY part").fetchall()
    assert rows == [("activity", newest_version("activity")), ("main", newest_version("main"))]
    for one in opened:
        one.close()


def test_hubs_in_two_schemas_of_a_database_do_not_meet(tmp_path: Path) -> None:
    one, other = Writer(lambda: postgres_store(tmp_path / "a")), Writer(lambda: postgres_store(tmp_path / "b"))
    one.accept()
    one.store.commit()
    assert other.restore().log_end == 0
    for each in (one, other):
        each.store.close()


def test_text_with_a_nul_character_comes_back_as_it_was(tmp_path: Path) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    odd = "a\0b"
    about = {"title": odd, "description": odd, "instructions": odd}
    writer.store.save_member(member(1, "ada", **about))
    writer.store.save_token(TokenRow(b"d" * 32, 1, 5, None, "id", odd, odd))
    writer.store.save_setting("key", odd.encode())
    message = writer.accept(wire_id=odd)
    writer.store.commit()
    stored_state = writer.crash()
    assert list(stored_state.members) == [member(1, "ada", **about)]
    assert (stored_state.tokens[0].label, stored_state.tokens[0].created_by) == (odd, odd)
    found = writer.store.find_wire_id("ada", "hub", odd)
    assert found is not None
    assert found.message_id == message.id
    assert writer.store.messages([0], PAGE_BYTES)[0] == {0: message}
    writer.store.close()


def test_a_value_that_the_database_cannot_keep_is_refused_with_its_reason(tmp_path: Path) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    writer.store.save_token(token(1, 99))
    with pytest.raises(StoreError, match="violates foreign key constraint") as refused:
        writer.store.commit()
    assert not isinstance(refused.value, DiskError), "a command caused it"
    assert list(writer.restore().tokens) == []
    writer.store.close()


def test_a_database_with_another_encoding_is_refused(tmp_path: Path) -> None:
    with psycopg.connect(server().url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match="has the encoding LATIN1; a hub needs UTF8"):
        PostgresStore(server().url.replace("/postgres", "/latin"), "tieline", "a hub")


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(DiskError, match=r"the database team at 127\.0\.0\.1:1 does not answer") as refused:
        PostgresStore("postgresql://ada:secret@127.0.0.1:1/team", "tieline", "a hub")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ada:secret@db.example:5433/team", "the database team at db.example:5433"),
        ("postgresql:///team?host=/run/postgresql", "the database team at /run/postgresql"),
        ("postgresql://[", "the database"),
    ],
)
def test_a_database_is_named_for_people(url: str, place: str) -> None:
    assert place_of(url) == place


def test_every_statement_is_used() -> None:
    package = files("tieline.stores.postgres")
    text = "".join(one.read_text(encoding="utf-8") for one in package.iterdir() if one.name.endswith(".py"))
    named = set(re.findall(r'"(\w+)"', text)) | {
        f"{log}_{name}" for log in ("main", "activity") for name in re.findall(r'\{(?:self\._)?log\}_(\w+)"', text)
    }
    assert QUERIES.keys() - named == {"lock_migration"} - named
