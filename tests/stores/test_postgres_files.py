"""Tests of files, documents and pages of logs in PostgreSQL, beyond the suites that run on every store."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.conformance.store.rows import member, objective
from tests.conformance.store.writer import Writer
from tests.core.doubles import content
from tests.stores.postgres_server import postgres_activity, postgres_store, schema_of, server
from tieline.contract.event import Acknowledged, LogRow
from tieline.contract.file import CatalogueError, FileChange, FileEntry, FileKind
from tieline.core.store import ActivityEntry, ActivityStore
from tieline.services.files.blobs import Blob, MissingBlob
from tieline.stores.postgres import PostgresBlobs, PostgresDocument, PostgresFiles, PostgresPages
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.pages import LogPages

pytestmark = pytest.mark.slow

LARGE = bytes(range(256)) * 4096


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[PostgresBlobs]:
    """Fixture: an empty store of bytes."""
    made = PostgresBlobs(server().url, schema_of(tmp_path), tmp_path / "incoming")
    yield made
    made.close()


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[PostgresFiles]:
    """Fixture: an empty catalogue of files."""
    made = PostgresFiles(server().url, schema_of(tmp_path))
    yield made
    made.close()


def put(blobs: PostgresBlobs, data: bytes) -> Blob:
    upload = blobs.begin()
    upload.write(data)
    return blobs.keep(upload)


@pytest.mark.parametrize("data", [b"", b"\0one", LARGE], ids=["empty", "small", "in pieces"])
def test_bytes_are_kept_under_their_digest_and_nothing_is_left_of_the_upload(
    blobs: PostgresBlobs, tmp_path: Path, data: bytes
) -> None:
    blob = put(blobs, data)
    assert blob == Blob(hashlib.sha256(data).hexdigest(), len(data))
    assert put(blobs, data) == blob
    assert blobs.digests() == {blob.digest}
    with blobs.open(blob.digest) as file:
        assert file.read() == data
    assert list((tmp_path / "incoming").iterdir()) == []


def test_what_is_open_is_read_to_its_end_though_it_is_discarded(blobs: PostgresBlobs) -> None:
    blob = put(blobs, LARGE)
    with blobs.open(blob.digest) as file:
        blobs.discard(blob.digest)
        assert file.read() == LARGE
    with pytest.raises(MissingBlob):
        blobs.open(blob.digest)


def test_a_sweep_deletes_what_nothing_refers_to_and_uploads_that_never_ended(
    blobs: PostgresBlobs, tmp_path: Path
) -> None:
    kept, unused = put(blobs, b"kept"), put(blobs, b"unused")
    half = blobs.begin()
    half.write(b"half")
    assert blobs.sweep(lambda digest: digest == kept.digest) == 2
    assert blobs.digests() == {kept.digest}
    assert unused.digest not in blobs.digests()
    half.abandon()
    assert list((tmp_path / "incoming").iterdir()) == []


def test_permanent_shares_count_once(tmp_path: Path, catalogue: PostgresFiles) -> None:
    entry = FileEntry("/ada/a", FileKind.FILE, "ada", 1, "ada", 1, 3, "text/plain", "0" * 64)
    catalogue.apply(FileChange(put=(entry,)))
    for via in ("one", "two"):
        catalogue.share(["/ada/a", "/ada/never"], ["bob"], via, 5)
        catalogue.make_permanent(via, "bob")
    catalogue.share(["/ada/a"], ["bob"], "three", 5)
    catalogue.unshare("three", "bob")
    assert [one.path for one in catalogue.shared(["bob"], 10)] == ["/ada/a"]
    with psycopg.connect(server().url) as admin:
        table = SQL("SELECT count(*) FROM {}.share").format(Identifier(schema_of(tmp_path)))
        assert admin.execute(table).fetchone() == (1,)


def test_a_change_that_the_database_refuses_leaves_the_catalogue_as_it_was(catalogue: PostgresFiles) -> None:
    good = FileEntry("/ada/a", FileKind.DIRECTORY, "ada", 1, "ada", 1, None, None, None)
    wrong = FileEntry("/ada/b", FileKind.FILE, "ada", 1, "ada", 1, None, None, None)
    with pytest.raises(CatalogueError, match="violates check constraint"):
        catalogue.apply(FileChange(put=(good, wrong)))
    assert catalogue.find("/ada/a") is None
    catalogue.apply(FileChange(put=(good,)))
    assert catalogue.find("/ada/a") == good


def test_a_document_is_what_was_written_last(tmp_path: Path) -> None:
    document = PostgresDocument(server().url, schema_of(tmp_path), "logins.json")
    assert document.read() is None
    for content_now in (b"{}", b'{"a": 1}'):
        document.write(content_now)
        assert document.read() == content_now


def test_pages_of_the_logs_are_those_of_the_embedded_store(tmp_path: Path) -> None:
    writers = [Writer(lambda: postgres_store(tmp_path)), Writer(lambda: SqliteStore(tmp_path, synchronous="OFF"))]
    activities: list[ActivityStore] = [postgres_activity(tmp_path), SqliteActivity(tmp_path, synchronous="OFF")]
    for writer in writers:
        for number, name in enumerate(("ada", "bob"), start=1):
            writer.store.save_member(member(number, name))
        writer.accept(content("@bob", "one", ttl_ms=5), wire_id="w\0")
        writer.advance(Acknowledged, (1, 1), session="a" * 32, protocol="hub")
        writer.change(objective(1))
        writer.store.commit()
    for activity in activities:
        activity.restore()
        activity.append([ActivityEntry(0, 7, 1, "llm", 5, b'{"n":1}')])
        activity.commit()
    pages, wanted = PostgresPages(server().url, schema_of(tmp_path)), LogPages(tmp_path)
    assert (pages.end("main"), pages.end("activity")) == (wanted.end("main"), wanted.end("activity")) == (3, 1)
    assert pages.names() == wanted.names()
    for start, end in ((0, 3), (2, 9), (5, 6)):
        assert pages.main(start, end) == wanted.main(start, end)
    assert pages.activity(0, 9) == wanted.activity(0, 9)
    assert [LogRow(*row[:3]).offset for row in pages.main(0, 3).rows] == [0, 1, 2]
    for activity in activities:
        activity.close()
    for writer in writers:
        writer.store.close()
    pages.close()
    wanted.close()
