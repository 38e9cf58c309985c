"""Tests that a lake loses what quotes a redacted message: no file of it has the text, and all numbers stay."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.faults.processes import SOAK
from tests.pipeline.oracle import stored
from tests.server.hubs import ALONE, running_hub
from tieline.pipeline.catalogue import ACTIVITY_TABLES, SCHEMAS
from tieline.pipeline.erasure import without_text
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import RunFailed, Watch, new_rows, rebuild_all, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECRET = "hunter2-is-the-password"
COUNTED = {"llm": ("member", "model", "exchanges", "input_tokens", "output_tokens"), "members": ("member", "exchanges")}


def exchange(text: str, tokens: int, error: str | None = None) -> dict[str, Any]:
    """Return an event of activity: a call of a model, with a text in its request."""
    usage = {"inputTokens": tokens, "outputTokens": 1}
    response = {"model": "claude-opus-4", "usage": usage, **({"error": error} if error else {})}
    entry = {"provider": "anthropic", "request": {"messages": [{"content": text}]}, "response": response}
    return {"kind": "llm_exchange", "duration": 5, "entry": entry}


def places(lake: Lake, text: str = SECRET) -> set[str]:
    """Return where in a lake a text is: names of tables for Parquet files, and `_delta_log` for entries of logs."""
    found = set()
    for path in (one for one in lake.path.rglob("*") if one.is_file()):
        rows = str(parquet.ParquetFile(path).read().to_pylist()) if path.suffix == ".parquet" else ""
        if text in rows or text.encode() in path.read_bytes():
            found.add("_delta_log" if "_delta_log" in path.parts else path.relative_to(lake.path).parts[0])
    return found


def counted(lake: Lake) -> dict[str, Any]:
    return {name: stored(lake.files(name), list(columns)) for name, columns in COUNTED.items()}


def delete_activity(home: Path, offset: int) -> None:
    """Delete a row of activity, as the hub does when it is old. Nothing in the hub then says that it had the text."""
    with contextlib.closing(sqlite3.connect(home / "activity.db")) as database, database:
        database.execute("DELETE FROM activity WHERE offset = ?", (offset,))


def fail_at(stage: str) -> Watch:
    def look(name: str) -> None:
        if name == stage:
            raise RuntimeError("in the middle")

    return Watch(stage=look)


async def test_no_file_of_the_lake_has_the_text_after_the_next_run(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, where = Lake(folder / "lake"), {"home": str(folder / "h")}
    # Days are compacted at once. In a lake of an older program, Delta then writes the first and the last text of each
    # column into its log.
    monkeypatch.setattr("tieline.pipeline.lake._FILES_MAX", 1)
    monkeypatch.setattr("tieline.pipeline.lake.counted_columns", lambda schema: schema.names)
    async with running_hub(folder / "h", **ALONE) as hub:
        await hub.add("ada", "bob")
        ada, bob = await hub.join("ada"), await hub.join("bob")
        leaked = await ada.send("@bob", SECRET)
        await bob.record_activity(
            exchange(f"ada says: {SECRET}", 100), exchange("something else", 30), exchange(SECRET, 2)
        )
        await asyncio.to_thread(run, spark, lake, where)
        await bob.record_activity(exchange("a lookup", 7, error=SECRET), {"kind": "tool", "result": f"<{SECRET}>"})
        await asyncio.to_thread(run, spark, lake, where)
        assert {"bronze", "activity", "failures", "_delta_log"} <= places(lake), "the test can see it"
        before = counted(lake)
        assert before["members"]
        delete_activity(hub.home, 2)
        await (await hub.operator()).redact(leaked.id, "a password")
        # A run that is cut off at any stage is made whole by the next one, which has nothing else to do.
        for stage in ("erase", "activity", "commit") if SOAK else ("activity",):
            with pytest.raises(RunFailed, match="in the middle"):
                await asyncio.to_thread(run, spark, lake, where, watch=fail_at(stage))
        await asyncio.to_thread(run, spark, lake, where)
        assert places(lake) == set()
        assert places(lake, "something else") == {"bronze"}, "only what quotes the message has lost its texts"
        assert (lake.head().counts["redactions"], lake.head().counts["erased"]) == (1, 1)
        assert counted(lake) == before
        assert ("redacted",) in stored(lake.files("activity"), ["error"])
        assert new_rows(lake, where) == 0
        number = lake.head().number
        await asyncio.to_thread(run, spark, lake, where)
        assert lake.head().number == number, "it is done once"
        # The tables that grew are those that are computed from what is left.
        grown = {name: stored(lake.files(name), SCHEMAS[name].fieldNames()) for name in ACTIVITY_TABLES}
        await asyncio.to_thread(rebuild_all, spark, lake)
        for name, rows in grown.items():
            assert stored(lake.files(name), SCHEMAS[name].fieldNames()) == rows, name


def test_an_event_without_its_texts_has_the_numbers_and_stays_as_it_is() -> None:
    event = (
        '{"kind":"llm_exchange","duration":5,"objectiveId":"o1","entry":{"provider":"p","request":{"model":"m",'
        '"messages":["a secret"]},"response":{"status":500,"error":"a secret","usage":{"inputTokens":3,"x":"secret"}}}}'
    )
    erased = without_text(event)
    assert "secret" not in erased
    assert '"duration":5,"objectiveId":"o1","entry":{"provider":"p","request":{"model":"m"}' in erased
    assert '"response":{"status":500,"error":"redacted","usage":{"inputTokens":3}}' in erased
    assert without_text(erased) == erased
    assert without_text(event.replace("messages", "prompts")) != erased, "two events stay two"
    # It only looks as if it were erased already.
    for other in ("no JSON, a secret", '["a secret"]', '{"redacted":true,"digest":"a secret"}'):
        assert "secret" not in without_text(other)
