"""Tests of the search index in PostgreSQL, beyond the suite that runs on every store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.conformance.test_search import FORGETFUL, Library
from tests.conformance.test_search import postgres as library_on
from tests.stores.postgres_server import schema_of, server
from tieline.contract import command as c
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.reply import Redaction
from tieline.stores.postgres.search import words_of

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """Fixture: a broker in PostgreSQL with its search index."""
    made = library_on(tmp_path, DEFAULT_LIMITS)
    yield made
    made.index.close()
    made.harness.store.close()


def indexed(folder: Path) -> int:
    with psycopg.connect(server().url) as admin:
        row = admin.execute(SQL("SELECT count(*) FROM {}.said").format(Identifier(schema_of(folder)))).fetchone()
    assert row is not None
    return int(row[0])


def test_it_takes_in_what_is_new_while_nobody_writes(library: Library, tmp_path: Path) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    for number in range(3):
        library.harness.send(ada, "@bob", f"number {number}")
        assert not library.index.work()
        assert indexed(tmp_path) == 0
    while library.index.work():
        pass
    assert indexed(tmp_path) == 3


def test_a_redacted_message_leaves_the_index_with_the_redaction(library: Library, tmp_path: Path) -> None:
    harness = library.harness
    ada, _ = harness.join("ada"), harness.join("bob")
    leaked = harness.send(ada, "@bob", "xylophone words")
    harness.send(ada, "@bob", "other words")
    assert library.find(ada, "words") == ["other words", "xylophone words"]
    harness.expect(Redaction, c.Redact(harness.operator, message_id=leaked.message_id, reason="a slip"))
    assert indexed(tmp_path) == 1, "before the index is told"
    library.index.start_over()
    assert library.find(ada, "xylophone") == []
    assert library.find(ada, "slip") == ["redacted by operator: a slip"]
    assert indexed(tmp_path) == 2


def test_what_retention_forgot_leaves_the_index_too(tmp_path: Path) -> None:
    library = library_on(tmp_path, FORGETFUL)
    ada, bob = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "old words")
    library.harness.advance(bob, 1)
    assert library.find(ada, "old") == ["old words"]
    library.harness.pass_ms(60 * 60 * 1000 + 1)
    assert indexed(tmp_path) == 0
    library.index.close()
    library.harness.store.close()


def test_long_words_and_very_many_words_are_found(library: Library) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    long = "x" * 3000
    library.harness.send(ada, "@bob", f"{long} end")
    many = " ".join(f"word{number:06}" for number in range(20_000))
    library.harness.send(ada, "@bob", many)
    assert library.find(ada, f'"{long[:900]}"') == [f"{long} end"]
    assert library.find(ada, "word000000 word019999") == [many]
    assert library.find(ada, '"word019998 word019999"') == [many]
    assert library.find(ada, '"word019999 word019998"') == []


def test_more_candidates_than_a_page_has_are_read_on(library: Library) -> None:
    ada, _ = library.harness.join("ada"), library.harness.join("bob")
    library.harness.send(ada, "@bob", "red fox")
    for _ in range(250):
        library.harness.send(ada, "@bob", "fox red")
    assert library.find(ada, '"red fox"') == ["red fox"]
    assert len(library.find(ada, '"fox red"', limit=200)) == 200


def test_words_are_letters_and_digits_in_lower_case_without_accents() -> None:
    assert words_of("Foo-bar.example.com:80/ñ_ÜBER über 日本 e\u0301") == [
        *("foo", "bar", "example", "com", "80", "n", "uber", "uber", "日本", "e"),
    ]
