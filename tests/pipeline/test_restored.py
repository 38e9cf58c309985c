"""Tests of the pipeline after a restore, and on a log with a redacted message."""

from pathlib import Path

import pytest

from tests.core.doubles import BrokerHarness
from tieline.cli.archive import unpack_archive, write_archive
from tieline.contract import command as c
from tieline.contract.reply import Redaction
from tieline.pipeline.lake import Lake
from tieline.pipeline.row import MAIN
from tieline.pipeline.run import LogChanged, new_rows
from tieline.pipeline.source import Options
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.pages import LogPages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_lake_notices_that_its_hub_was_restored(filled: Lake, made_home: Path, tmp_path: Path) -> None:
    assert new_rows(filled, {"home": str(made_home)}) == 0
    restored = tmp_path / "restored"
    restored.mkdir()
    write_archive(made_home, tmp_path / "backup.tar.gz")
    unpack_archive(tmp_path / "backup.tar.gz", restored)
    with pytest.raises(LogChanged, match="has the epoch"):
        new_rows(filled, {"home": str(restored)})


def test_a_redacted_message_has_its_seal_and_no_row_has_its_text(tmp_path: Path) -> None:
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    alice = harness.join("alice")
    harness.join("bob")
    leaked = harness.send(alice, "@bob", "hunter2-is-the-password")
    harness.send(alice, "@bob", "something else")
    harness.expect(Redaction, c.Redact(harness.operator, message_id=leaked.message_id, reason="a password"))
    harness.broker.close()
    pages = LogPages(tmp_path)
    end = pages.end(MAIN)
    pages.close()
    assert sealed(tmp_path, end) == [True] * end
    store = SqliteStore(tmp_path, synchronous="OFF")
    with store._main:
        store._main.execute("UPDATE message SET content = CAST(replace(content, 'operator', 'somebody') AS BLOB)")
    store.close()
    assert sealed(tmp_path, end).count(False) == 1


def sealed(home: Path, end: int) -> list[bool]:
    """Return for each row of the main log if what is stored beside it has the hash that the log has."""
    batches = list(Options({"home": str(home), "logs": MAIN, "audit": "true"}).log().read(MAIN, 0, end))
    assert not any("hunter2" in str(batch.to_pylist()) for batch in batches)
    return [one for batch in batches for one in batch.column("sealed").to_pylist()]
