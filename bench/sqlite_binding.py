"""Compares the cost of two SQLite bindings: apsw, which brings its own SQLite, and the standard library's sqlite3.

Both write the rows of a durable message: a log row, a message row and its part of a step row, with the statements and
the schema of the store itself. Transactions have 1, 10, 100 and 1000 messages, in WAL mode with `synchronous=FULL`.
Each pair runs both, one after the other, on fresh files; the order alternates. The benchmark prints medians of CPU and
wall time per message, and the medians of the ratios within the pairs. Run it with
`.venv/bin/python -m bench.sqlite_binding`.
"""

import argparse
import resource
import sqlite3
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw

from tieline.contract.chain import digest
from tieline.contract.event import Acknowledged, Sent
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Content
from tieline.contract.target import to_member
from tieline.core.ledger import Ledger, encode_content
from tieline.stores.sqlite.statements import QUERIES

BATCHES = (1, 10, 100, 1000)
PAIRS_MIN = 7
Rows = list[tuple[Any, ...]]
Batch = tuple[Rows, Rows, Rows]
"""Rows of `log`, `message` and `step` that one transaction inserts."""


def make_batches(messages: int, batch: int) -> list[Batch]:
    """The rows of `messages` messages, made beforehand so that only the binding is measured."""
    ledger = Ledger()
    batches: list[Batch] = []
    key = 0
    for start in range(0, messages, batch):
        log: Rows = []
        sent: Rows = []
        first = key + 1
        for number in range(start, min(start + batch, messages)):
            key += 1
            at_ms = 1_800_000_000_000 + number
            content = Content(target=to_member(MemberName("bob")), body=f"{number} " + "x" * 200, topic="build")
            encoded = encode_content(content)
            message_id = f"0199{number:08x}-7000-8000-000000000000"
            row = ledger.append(
                Sent(id=message_id, sender="ada", target="@bob", recipients=1, digest=digest(encoded)), at_ms
            )
            log.append((row.offset, at_ms, row.event, bytes.fromhex(row.hash)))
            route = array("q", (2, key, key)).tobytes()
            stamp = ("ada", "hub", f"wire-{number}", "@bob", at_ms, None, True, 0, None)
            sent.append((row.offset, message_id, *stamp, encoded, route))
        # The recipient's acknowledgements of the batch are in the same commit, as one range.
        acked = Acknowledged(
            member="bob", number=2, keys=((first, key),), at_ms=1_800_000_000_000, session="session", protocol="hub"
        )
        row = ledger.append(acked, acked.at_ms)
        log.append((row.offset, row.at_ms, row.event, bytes.fromhex(row.hash)))
        batches.append((log, sent, [(2, 3, first, key, row.offset)]))
    return batches


def schema() -> str:
    """The hub's own schema."""
    return files("tieline.stores.sqlite").joinpath("schema/main_0001.sql").read_text(encoding="utf-8")


def write_with_apsw(path: Path, batches: Sequence[Batch]) -> None:
    """Write everything with apsw."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.execute(schema())
        for log, sent, steps in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["append_log"], log)
            connection.executemany(QUERIES["insert_message"], sent)
            connection.executemany(QUERIES["insert_step"], steps)
            connection.execute("COMMIT")


def write_with_stdlib(path: Path, batches: Sequence[Batch]) -> None:
    """Write everything with the standard library's module."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(schema())
        for log, sent, steps in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["append_log"], log)
            connection.executemany(QUERIES["insert_message"], sent)
            connection.executemany(QUERIES["insert_step"], steps)
            connection.execute("COMMIT")


WRITERS: dict[str, Callable[[Path, Sequence[Batch]], None]] = {"apsw": write_with_apsw, "sqlite3": write_with_stdlib}


def measure(name: str, batches: Sequence[Batch], messages: int) -> tuple[float, float]:
    """CPU and wall microseconds per message of one run on fresh files."""
    with tempfile.TemporaryDirectory(prefix="tieline-bench-") as folder:
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        WRITERS[name](Path(folder) / "bench.db", batches)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 1e6 * cpu / messages, 1e6 * wall / messages


def compare(batch: int, messages: int, pairs: int) -> str:
    """One line of the table."""
    batches = make_batches(messages, batch)
    cpu: dict[str, list[float]] = {name: [] for name in WRITERS}
    wall: dict[str, list[float]] = {name: [] for name in WRITERS}
    for pair in range(pairs + 1):
        for name in sorted(WRITERS, reverse=pair % 2 == 1):
            measured = measure(name, batches, messages)
            if pair:  # the first warms the caches
                cpu[name].append(measured[0])
                wall[name].append(measured[1])
    middle = statistics.median
    cpu_ratio = middle(ours / theirs for ours, theirs in zip(cpu["apsw"], cpu["sqlite3"], strict=True))
    wall_ratio = middle(ours / theirs for ours, theirs in zip(wall["apsw"], wall["sqlite3"], strict=True))
    return (
        f"| {batch} | {middle(cpu['apsw']):.1f} | {middle(cpu['sqlite3']):.1f} | {cpu_ratio:.2f} "
        f"| {middle(wall['apsw']):.1f} | {middle(wall['sqlite3']):.1f} | {wall_ratio:.2f} |"
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=9, help=f"interleaved pairs, at least {PAIRS_MIN}")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of messages")
    options = parser.parse_args()
    pairs = max(PAIRS_MIN, options.pairs)
    print(f"apsw {apsw.apsw_version()} (SQLite {apsw.sqlite_lib_version()}), sqlite3 (SQLite {sqlite3.sqlite_version})")
    print(f"{pairs} interleaved pairs; medians; microseconds per message; ratios are apsw / sqlite3")
    print("| batch | apsw CPU | sqlite3 CPU | CPU ratio | apsw wall | sqlite3 wall | wall ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for batch in BATCHES:
        # Small batches are slow because of their syncs; large batches need many messages to be measurable.
        messages = int(options.scale * {1: 1_000, 10: 5_000, 100: 20_000, 1000: 40_000}[batch])
        print(compare(batch, messages, pairs), flush=True)


if __name__ == "__main__":
    main()
