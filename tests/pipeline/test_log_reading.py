"""Tests that logs are read without Spark: pages of a home, ranges for workers, and the same rows from a hub's URL."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.server.hubs import running_hub
from tieline.contract.permission import LOG_READ
from tieline.core.store import StoreError
from tieline.pipeline.http_log import HttpLog, LogRefused, LogUnreachable
from tieline.pipeline.source import Options, SourceError, StreamReader, TableReader, split
from tieline.pipeline.sqlite_log import SqliteLog
from tieline.server import log_api


def rows(log: SqliteLog | HttpLog, name: str, start: int, end: int) -> list[dict[str, object]]:
    batches = list(log.read(name, start, end))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_ranges_cover_every_offset_once() -> None:
    for start, end, parts in ((0, 0, 4), (5, 6, 4), (0, 100_000, 8), (7, 63_001, 3)):
        ranges = split("main", start, end, parts, 20_000)
        assert [offset for one in ranges for offset in (one.start, one.end)][1:-1:2] == [
            one.start for one in ranges[1:]
        ]
        assert (ranges[0].start, ranges[-1].end) == (start, end) if end > start else ranges == []
        assert len(ranges) <= parts


def test_few_rows_are_one_range_unless_more_are_asked_for() -> None:
    assert len(Options({"home": "x"}).split("main", 0, 19_999)) == 1
    assert len(Options({"home": "x"}).split("main", 0, 60_000)) == 3
    asked = Options({"home": "x", "partitions": "4"})
    assert [(one.start, one.end) for one in asked.split("main", 0, 8)] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [(one.start, one.end) for one in asked.split("main", 3, 5)] == [(3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "say where the log is"),
        ({"home": "x", "url": "y"}, "say where the log is"),
        ({"home": "x", "logs": "main,other"}, "there is no log 'other'"),
        ({"home": "x", "maxRowsPerBatch": "many"}, "maxRowsPerBatch must be a number"),
        ({"home": "x", "partitions": "0"}, "partitions must be a number"),
    ],
)
def test_options_that_name_nothing_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        Options(options)


def test_a_stream_takes_no_more_rows_than_it_may_and_stops_where_the_logs_ended(made_home: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    reader = StreamReader(Options({"home": str(made_home), "maxRowsPerBatch": "100"}))
    start = reader.initialOffset()
    assert start == {"main": 0, "activity": 0}
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert reader.latestOffset(start, limit) == {"main": 100, "activity": 0}
    reader.prepareForTriggerAvailableNow()
    log = SqliteLog(str(made_home))
    ends = {"main": log.end("main"), "activity": log.end("activity")}
    assert reader.latestOffset(start, ReadAllAvailable()) == ends
    assert reader.latestOffset(ends, limit) == ends
    assert reader.latestOffset({"main": ends["main"] - 10, "activity": 0}, limit) == {
        "main": ends["main"],
        "activity": 90,
    }


def test_filters_on_offset_and_log_are_taken_and_others_are_left_to_spark(made_home: Path) -> None:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual

    def read(*filters: Filter) -> tuple[list[Filter], list[tuple[object, object]]]:
        reader = TableReader(Options({"home": str(made_home)}))
        left = list(reader.pushFilters(list(filters)))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = pa.Table.from_batches(batches).to_pylist() if batches else []
        return left, [(row["log"], row["offset"]) for row in found]

    main = EqualTo(("log",), "main")
    kind = EqualTo(("kind",), "send")
    assert read(main, kind, GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 8)) == (
        [kind], [("main", 6), ("main", 7), ("main", 8)]
    )  # fmt: skip
    assert read(In(("log",), ("main", "activity")), EqualTo(("offset",), 3)) == ([], [("main", 3), ("activity", 3)])
    assert read(main, EqualTo(("log",), "activity")) == ([], [])
    assert read(main, GreaterThan(("offset",), 10**9)) == ([], [])


def test_a_row_holds_its_event_as_it_was_written_and_what_is_stored_beside_it(made_home: Path) -> None:
    log = SqliteLog(str(made_home))
    read = {row["offset"]: row for row in rows(log, "main", 0, log.end("main"))}
    database = sqlite3.connect(made_home / "tieline.db")
    for offset, event, own in database.execute("SELECT offset, event, hash FROM log"):
        assert (read[offset]["event"], read[offset]["hash"]) == (event.decode(), own)
    assert all(row["chained"] for row in read.values())
    found = database.execute("SELECT offset, id, sender, target, content, route FROM message").fetchall()
    for offset, message_id, sender, target, content, route in found:
        row, said = read[offset], json.loads(content)
        assert (row["id"], row["sender"], row["target"]) == (message_id, sender, target)
        assert all(row[name] == said.get(name) for name in ("scope", "thread", "reply_to"))
        assert row["body_bytes"] == len(said["body"].encode())
        keys = row["keys"]
        assert isinstance(keys, list)
        assert 24 * len(keys) == len(route)
    assert sum(row["id"] is not None for row in read.values()) == len(found)
    database.close()


def test_a_message_that_was_forgotten_leaves_its_row(tmp_path: Path) -> None:
    from bench.synth import Generator

    Generator(tmp_path, 1000, seed=1).run()
    database = sqlite3.connect(tmp_path / "tieline.db")
    (offset,) = database.execute("SELECT min(offset) FROM message").fetchone()
    database.execute("DELETE FROM message WHERE offset = ?", (offset,))
    database.commit()
    database.close()
    (row,) = rows(SqliteLog(str(tmp_path)), "main", offset, offset + 1)
    assert (row["kind"], row["id"], row["keys"], row["chained"]) == ("send", None, None, True)


@pytest.mark.slow
async def test_a_hub_gives_the_same_rows_through_its_url_as_its_home_has(folder: Path) -> None:
    async with running_hub(folder) as hub:
        await hub.add("reader", permissions=(LOG_READ,))
        await hub.add("ada", "bob")
        ada, bob = await hub.join("ada"), await hub.join("bob", receive=True)
        for number in range(30):
            await ada.send("@bob", f"message {number} ü", thread="t" if number % 2 else None)
        del bob
        await ada.record_activity(*({"kind": "llm_exchange", "ts": 5, "n": number} for number in range(20)))
        near, far = SqliteLog(str(folder)), HttpLog(hub.running.http, hub.tokens["reader"])
        for name in ("main", "activity"):
            end = await asyncio.to_thread(far.end, name)
            assert end >= 20
            for start in (0, 7):
                expected = await asyncio.to_thread(rows, near, name, start, end)
                assert await asyncio.to_thread(rows, far, name, start, end) == expected
                assert len(expected) == end - start
        stranger = HttpLog(hub.running.http, hub.tokens["ada"])
        with pytest.raises(LogRefused, match=r"lacks the permission log\.read"):
            await asyncio.to_thread(stranger.end, "main")
        with pytest.raises(LogRefused, match="refused"):
            await asyncio.to_thread(HttpLog(hub.running.http, "wrong").end, "main")
        address = hub.running.http
    with pytest.raises(LogUnreachable, match="does not answer"):
        await asyncio.to_thread(HttpLog(address, "x").end, "main")


def test_a_fingerprint_without_tls_is_refused_before_the_token_is_sent() -> None:
    with pytest.raises(LogUnreachable, match="needs https://"):
        HttpLog(f"http://hub#sha256={'1f' * 32}", "x")


@pytest.mark.slow
async def test_an_answer_that_breaks_off_is_not_taken_for_a_log_that_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = log_api._page, list[int]()

    def page(*arguments: Any) -> bytes:
        asked.append(arguments[2])
        if len(asked) in (1, 3):
            raise StoreError("the disk is gone")
        return read(*arguments)

    async with running_hub(folder) as hub:
        await hub.add("reader", permissions=(LOG_READ,))
        await hub.add("ada", "bob")
        log = HttpLog(hub.running.http, hub.tokens["reader"])
        end = await asyncio.to_thread(log.end, "main")
        monkeypatch.setattr(log_api, "_PAGE_ROWS", 1)
        monkeypatch.setattr(log_api, "_page", page)
        found = await asyncio.to_thread(rows, log, "main", 0, end)
    assert [row["offset"] for row in found] == list(range(end))
    assert all(row["chained"] for row in found)
    assert len(asked) > 4


@pytest.mark.slow
async def test_a_reader_never_makes_the_hub_wait_nor_keeps_its_write_ahead_log_from_being_moved(folder: Path) -> None:
    async with running_hub(folder) as hub:
        await hub.add("ada", "bob")
        ada = await hub.join("ada")
        stop = asyncio.Event()

        async def read() -> int:
            rounds = 0
            while not stop.is_set():
                log = SqliteLog(str(folder))
                end = await asyncio.to_thread(log.end, "main")
                found = await asyncio.to_thread(rows, log, "main", 0, end)
                assert len(found) == end
                assert all(row["chained"] for row in found)
                rounds += 1
            return rounds

        reading = asyncio.create_task(read())
        for _ in range(40):
            await asyncio.gather(*(ada.send("@bob", "x" * 30_000) for _ in range(25)))
        stop.set()
        assert await reading > 0
        # Some 30 MB were written; without being moved in between, the log would have held them all.
        assert (folder / "tieline.db-wal").stat().st_size < 24_000_000
