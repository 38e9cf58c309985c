"""Tests of the PostgreSQL store beyond its port: one hub at a time, schemas, encodings, and its sentences."""

import re
import threading
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.conformance.store.rows import member, token
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.stores.postgres_server import postgres_activity, postgres_store, schema_of, server
from tieline.core.store import DiskError, StoreError, TokenRow
from tieline.stores.postgres import PostgresActivity, PostgresStore
from tieline.stores.postgres.connection import QUERIES, newest_version, place_of

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


def test_a_hub_that_was_killed_leaves_its_place(tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    writer.record()
    writer.store.commit()
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    )
    second = postgres_store(tmp_path)
    assert second.restore().log_end == 1
    with pytest.raises(DiskError):
        writer.store.read_log(0, 1)
    assert not writer.store.intact
    second.close()
    writer.store.close()


def test_a_hub_whose_place_was_taken_commits_nothing_more(
    tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    writer = Writer(lambda: postgres_store(tmp_path))
    writer.record()
    writer.store.commit()
    admin.execute("UPDATE writer SET claim = 'of another hub'")
    writer.record()
    with pytest.raises(StoreError, match="another hub has taken over this database"):
        writer.store.commit()
    with pytest.raises(StoreError, match="another hub has taken over this database"):
        writer.store.retry()
    assert writer.restore().log_end == 1
    writer.store.close()


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
