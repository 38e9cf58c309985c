"""The spool without a hub: sending and taking through files, against the least that a durable file costs here.

The floor is one message as a file that survives a power failure and never appears half-written: write, sync, rename,
sync the folder. Taking needs syncs too, because a claim is durable before it is reported. Steps of all kinds alternate
within a round, so that a busy disk slows all of them alike.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.context import Context
from bench.plan import BODY
from bench.processes import temporary_home
from bench.report import Report, Table, spread
from tieline.protocols.backchannel.codec import encode
from tieline.protocols.backchannel.disk import sync_folder
from tieline.protocols.backchannel.spool import Spool, SpoolDraft

BATCH = 50


class _Floor:
    """Writes a message's bytes as a whole and durable file, and does nothing else."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self._tmp = folder / "tmp"
        self._new = folder / "new"
        self._content = content
        self._count = 0
        for box in (self._tmp, self._new):
            box.mkdir(parents=True)

    def write(self) -> None:
        """Write, sync, rename, sync the folder."""
        self._count += 1
        temporary = self._tmp / str(self._count)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, self._content)
        os.fsync(descriptor)
        os.close(descriptor)
        temporary.rename(self._new / str(self._count))
        sync_folder(self._new)


class _Post:
    """Alice and bob on one spool. Every sent message is taken, so that folders stay small."""

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder)
        for name in ("alice", "bob", *(f"b{number}" for number in range(BATCH))):
            self._spool.register(name)
            self._spool.subscribe(name, "#all")
        self._draft = SpoolDraft(sender="alice", to="@bob", body=BODY)
        self._waiting: list[str] = []

    def content(self) -> bytes:
        """The bytes of one message; the message is taken again."""
        message = self._spool.send(self._draft).message
        self._spool.take("bob", message.id)
        return encode(message)

    def send(self) -> None:
        """Send one message."""
        self._waiting.append(self._spool.send(self._draft).message.id)

    def take(self) -> None:
        """Take that message for good."""
        taken = self._spool.take("bob", self._waiting.pop())
        assert taken is not None, "nobody else reads here"

    def send_batch(self) -> None:
        """Send several messages at once."""
        self._spool.send_many([self._draft] * BATCH)

    def drain(self) -> None:
        """Take all messages, as `tieline drain` does."""
        with self._spool.claims("bob") as claims:
            taken = [message for message in self._spool.inbox("bob") if claims.claim(message.id)]
            assert len(taken) == BATCH, "nobody else reads here"
            claims.sync()
            for message in taken:
                claims.finish(message.id)

    def fan_out(self) -> None:
        """Send one message to a channel with many members."""
        self._spool.send(SpoolDraft(sender="bob", to="#all", body=BODY))


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _round(context: Context, report: Report) -> None:
    count = 60 if context.quick else 200
    with temporary_home(context.folder) as home:
        post = _Post(home / "spool")
        floor = _Floor(home / "floor", post.content())
        seconds = {"floor": 0.0, "send": 0.0, "take": 0.0}
        works = {"floor": floor.write, "send": post.send}
        for _ in range(count):
            names = list(works)
            context.chance.shuffle(names)
            for name in names:
                seconds[name] += _timed(works[name])
            seconds["take"] += _timed(post.take)
        batches = max(1, count // 20)
        bulk = {"send_batch": 0.0, "drain": 0.0, "fan_out": 0.0, "floor_batch": 0.0}
        for _ in range(batches):
            bulk["floor_batch"] += sum(_timed(floor.write) for _ in range(BATCH))
            bulk["send_batch"] += _timed(post.send_batch)
            bulk["drain"] += _timed(post.drain)
            bulk["fan_out"] += _timed(post.fan_out)
    for name, total in seconds.items():
        report.add(f"{name} us", 1e6 * total / count)
    report.add("send + take us", 1e6 * (seconds["send"] + seconds["take"]) / count)
    for name, total in bulk.items():
        report.add(f"{name} us", 1e6 * total / (batches * BATCH))
    report.add("send_batch + drain us", 1e6 * (bulk["send_batch"] + bulk["drain"]) / (batches * BATCH))


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("spool")
    for _ in context.rounds():
        _round(context, report)
    table = Table("spool: files alone, no hub", ["what, for each message", "µs", "a second", "÷ floor"])
    for name, text, floor in (
        ("floor", "floor: write + sync + rename + sync the folder", "floor"),
        ("send", "send", "floor"),
        ("take", "take", "floor"),
        ("send + take", "send + take", "floor"),
        ("floor_batch", f"floor, measured beside the next lines ({BATCH} in a row)", "floor_batch"),
        ("send_batch", f"send, {BATCH} in one call", "floor_batch"),
        ("drain", f"drain of {BATCH}", "floor_batch"),
        ("send_batch + drain", f"send + drain of {BATCH}", "floor_batch"),
        ("fan_out", f"one message to a channel of {BATCH + 1}, each copy", "floor_batch"),
    ):
        values = report.samples[f"{name} us"]
        rates = [1e6 / value for value in values]
        ratios = report.ratios(f"{name} us", f"{floor} us")
        table.rows.append([text, spread(values), spread(rates), spread(ratios, "{:.2f}")])
    report.tables.append(table)
    return report
