"""Latency at light load: one message at a time, against one synced write measured between the messages."""

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median

import uvloop

from bench import processes
from bench.context import Context
from bench.floor import SyncProbe
from bench.plan import BODY
from bench.report import Goal, Report, Table, spread
from tieline.client import Client, connect

STORES = ("sqlite", "sqlite:unsafe")
ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS_MAX = 0.02


class _Pair:
    """A sender and a recipient on one hub."""

    def __init__(self, sender: Client, recipient: Client) -> None:
        self._sender = sender
        self._deliveries = recipient.deliveries()
        self._recipient = recipient
        self.accepted: list[float] = []
        self.delivered: list[float] = []

    async def pass_one(self) -> None:
        """Send one message; record the times until it was accepted and until it was delivered."""
        started = time.perf_counter()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await asyncio.gather(self._send(started), self._receive(started))

    async def _send(self, started: float) -> None:
        await self._sender.send("@bob", BODY)
        self.accepted.append(time.perf_counter() - started)

    async def _receive(self, started: float) -> None:
        delivery = await anext(self._deliveries)
        self.delivered.append(time.perf_counter() - started)
        self._recipient.ack(delivery)

    def forget(self) -> None:
        """Drop the figures of the warm-up."""
        self.accepted.clear()
        self.delivered.clear()


async def _open(home: Path, stack: AsyncExitStack) -> _Pair:
    async with await connect(home=home) as operator:
        await operator.add_member("alice")
        await operator.add_member("bob")
    recipient = await stack.enter_async_context(await connect(home=home, member="bob", receive=True))
    sender = await stack.enter_async_context(await connect(home=home, member="alice"))
    return _Pair(sender, recipient)


async def _round(context: Context, homes: dict[str, Path], probe: SyncProbe, report: Report) -> None:
    count = 60 if context.quick else 150
    async with AsyncExitStack() as stack:
        pairs = {store: await _open(home, stack) for store, home in homes.items()}
        appends: list[float] = []
        overwrites: list[float] = []
        for number in range(count + 10):
            if number == 10:
                for pair in pairs.values():
                    pair.forget()
            steps = [*pairs.values(), None]
            context.chance.shuffle(steps)
            for step in steps:
                if step is None:
                    appends.append(probe.append())
                    overwrites.append(probe.overwrite())
                else:
                    await step.pass_one()
                await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
    report.add("append us", 1e6 * median(appends))
    report.add("overwrite us", 1e6 * median(overwrites))
    for store, pair in pairs.items():
        report.add(f"{store} accepted us", 1e6 * median(pair.accepted))
        report.add(f"{store} delivered us", 1e6 * median(pair.delivered))


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("latency")
    for _ in context.rounds():
        with ExitStack() as stack:
            homes = {store: stack.enter_context(processes.hub(context.folder, store)).home for store in STORES}
            probe = SyncProbe(stack.enter_context(processes.temporary_home(context.folder)))
            stack.callback(probe.close)
            uvloop.run(_round(context, homes, probe, report))
    table = Table(
        "latency at light load, p50 (shipped SDK)",
        ["what", "accepted µs", "÷ fdatasync", "delivered µs", "÷ fdatasync"],
    )
    table.rows.append(["4 KiB appended + fdatasync", report.spread("append us"), "1", "", ""])
    table.rows.append(["4 KiB overwritten + fdatasync", report.spread("overwrite us"), "", "", ""])
    for store in STORES:
        row = [store]
        for what in ("accepted", "delivered"):
            series = f"{store} {what} us"
            row += [report.spread(series), spread(report.ratios(series, "append us"), "{:.2f}")]
        table.rows.append(row)
    report.tables.append(table)
    ratios = report.ratios("sqlite delivered us", "append us")
    met = sorted(ratios)[len(ratios) // 2] <= 2
    report.goals.append(Goal("delivered p50 ÷ one fdatasync of 4 KiB", "≤ 2", spread(ratios, "{:.2f}"), met))
    return report
