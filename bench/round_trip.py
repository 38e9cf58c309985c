"""The relay's round trip: SEND, DELIVER, ACK at light load, against one synced write measured between the messages.

A sender asks and waits for its recipient's answer, through the shipped client of the Agent Relay Protocol. The measured
time runs from the call until the recipient's ACK is back at the sender. It includes the hub's commit before delivery,
four transfers over the socket, and both clients, which share one process and event loop.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median

import uvloop

from bench import processes
from bench.context import Context
from bench.floor import SyncProbe
from bench.plan import BODY
from bench.report import Goal, Report, Table, spread
from tieline.protocols.agent_relay.client import RelayClient
from tieline.wire.home import read_running

STORES = ("sqlite", "sqlite:unsafe")
WARM_UP = 10
ANSWER_MS_MAX = 30_000
PAUSE_SECONDS_MAX = 0.02
ROUND_TRIP_MS_WANTED = 5.0
RATIO_WANTED = 2.5


class _Pair:
    """A sender, and a recipient that answers at once, on one hub."""

    def __init__(self, sender: RelayClient, recipient: RelayClient) -> None:
        self._sender = sender
        self._recipient = recipient
        self.accepted: list[float] = []
        self.answered: list[float] = []

    async def answer(self) -> None:
        """Acknowledge every delivery."""
        async for delivery in self._recipient:
            delivery.ack(True)

    async def send(self) -> None:
        """Send one message; record the time until it was accepted."""
        started = time.perf_counter()
        await self._sender.send("bob", BODY)
        self.accepted.append(time.perf_counter() - started)

    async def ask(self) -> None:
        """Ask once; record the time until the answer came."""
        started = time.perf_counter()
        await self._sender.request("bob", BODY, timeout_ms=ANSWER_MS_MAX)
        self.answered.append(time.perf_counter() - started)

    def forget(self) -> None:
        """Drop the figures of the warm-up."""
        self.accepted.clear()
        self.answered.clear()


async def _open(home: Path, stack: AsyncExitStack) -> _Pair:
    running = read_running(home)
    assert running is not None, "the hub said so a moment ago"
    assert running.places["relay_socket"] is not None, "the relay is on unless it is turned off"
    recipient = await stack.enter_async_context(RelayClient(running.places["relay_socket"], "bob"))
    sender = await stack.enter_async_context(RelayClient(running.places["relay_socket"], "alice"))
    pair = _Pair(sender, recipient)
    # This task ends when the recipient is closed.
    answering = asyncio.create_task(pair.answer())
    stack.push_async_callback(asyncio.wait, {answering})
    stack.push_async_callback(recipient.close)
    return pair


class _Probe:
    """A bare write and `fdatasync` of as many bytes as one round trip makes the hub write."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "same-size", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._data = b""

    def resize(self, size: int) -> None:
        """Set the number of bytes of each write."""
        self._data = random.Random(1).randbytes(size)

    def append(self) -> float:
        """Seconds to append and sync."""
        started = time.perf_counter()
        os.write(self._file, self._data)
        os.fdatasync(self._file)
        return time.perf_counter() - started

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


async def _written_bytes(home: Path, pair: _Pair) -> int:
    """Bytes that one round trip adds to the write-ahead log."""
    log = home / "tieline.db-wal"
    before = log.stat().st_size
    for _ in range(WARM_UP):
        await pair.ask()
    # The last acknowledgement is not committed yet; the one before the first round trip was counted instead.
    return (log.stat().st_size - before) // WARM_UP


async def _round(context: Context, homes: dict[str, Path], folder: Path, report: Report) -> None:
    count = 60 if context.quick else 150
    async with AsyncExitStack() as stack:
        pairs = {store: await _open(home, stack) for store, home in homes.items()}
        page, same = SyncProbe(folder), _Probe(folder)
        stack.callback(page.close)
        stack.callback(same.close)
        size = await _written_bytes(homes["sqlite"], pairs["sqlite"])
        same.resize(size)
        pages: list[float] = []
        sames: list[float] = []
        for number in range(count + WARM_UP):
            if number == WARM_UP:
                for pair in pairs.values():
                    pair.forget()
            steps: list[Callable[[], Awaitable[None]] | None] = [None]
            for pair in pairs.values():
                steps += [pair.send, pair.ask]
            context.chance.shuffle(steps)
            for step in steps:
                if step is None:
                    pages.append(page.append())
                    await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
                    sames.append(same.append())
                else:
                    await step()
                await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
    report.add("written bytes", size)
    report.add("page us", 1e6 * median(pages))
    report.add("same us", 1e6 * median(sames))
    for store, pair in pairs.items():
        for what, seconds in (("accepted", pair.accepted), ("answered", pair.answered)):
            report.add(f"{store} {what} us", 1e6 * median(seconds))
            report.add(f"{store} {what} p99 us", 1e6 * _percentile(seconds, 0.99))


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("roundtrip")
    for _ in context.rounds():
        with ExitStack() as stack:
            homes = {store: stack.enter_context(processes.hub(context.folder, store)).home for store in STORES}
            folder = stack.enter_context(processes.temporary_home(context.folder))
            uvloop.run(_round(context, homes, folder, report))
    table = Table(
        "agent-relay at light load (shipped client)",
        ["what", "p50 µs", "÷ same-size fdatasync", "÷ 4 KiB fdatasync", "p99 µs"],
    )
    table.rows.append(["fdatasync after 4 KiB", report.spread("page us"), "", "1", ""])
    size = f"fdatasync after {report.spread('written bytes')} bytes, as many as a commit writes"
    table.rows.append([size, report.spread("same us"), "1", "", ""])
    for store in STORES:
        for what in ("accepted", "answered"):
            series = f"{store} {what} us"
            ratios = [spread(report.ratios(series, probe), "{:.2f}") for probe in ("same us", "page us")]
            p99 = report.spread(f"{store} {what} p99 us")
            table.rows.append([f"{store}: SEND → {what}", report.spread(series), *ratios, p99])
    report.tables.append(table)
    milliseconds = [value / 1000 for value in report.samples["sqlite answered us"]]
    ratios_to_same = report.ratios("sqlite answered us", "same us")
    report.goals += [
        Goal(
            "relay round trip p50, ms",
            f"< {ROUND_TRIP_MS_WANTED:g}",
            spread(milliseconds, "{:.2f}"),
            median(milliseconds) < ROUND_TRIP_MS_WANTED,
        ),
        Goal(
            "relay round trip p50 ÷ one fdatasync of the same size",
            f"≤ {RATIO_WANTED:g}",
            spread(ratios_to_same, "{:.2f}"),
            median(ratios_to_same) <= RATIO_WANTED,
        ),
    ]
    return report
