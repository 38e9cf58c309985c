"""Latency at light load: one message at a time, on every server in turn, beside one synced write."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from statistics import median

import uvloop

from bench.context import Context
from bench.floor import SyncProbe
from bench.load import REST_SECONDS, open_traffic
from bench.machine import read_cpu
from bench.plan import Plan
from bench.processes import Server, temporary_home
from bench.report import Report, Table, Wanted, spread
from bench.rivals import DURABLE, NATS, NATS_SYNC, NO_SYNC, REDIS, client_of, notes, servers
from bench.traffic import Times

TARGETS = (DURABLE, NO_SYNC, REDIS, NATS, NATS_SYNC)
WANTED = {REDIS: Wanted(most=1.2), NATS: Wanted(most=1.5)}
SYNC_WANTED = Wanted(most=2.2)
ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS_MAX = 0.02
WARM_UP = 10


def _plan(target: str, server: Server) -> Plan:
    return Plan(
        client=client_of(target, "sdk"),
        server_pid=server.pid,
        home=str(server.home),
        http=server.http,
        address=server.address,
        messages=1,
        warm_up=0,
    )


async def _round(context: Context, found: dict[str, Server], probe: SyncProbe, report: Report) -> None:
    count = 60 if context.quick else 150
    times: dict[str, list[Times]] = {target: [] for target in found}
    appends: list[float] = []
    before = {}
    async with AsyncExitStack() as stack:
        traffics = {target: await open_traffic(_plan(target, server), stack) for target, server in found.items()}
        for number in range(count + WARM_UP):
            if number == WARM_UP:
                await asyncio.sleep(REST_SECONDS)
                before = {target: read_cpu(server.pid) for target, server in found.items()}
            steps = [*traffics, None]
            context.chance.shuffle(steps)
            for target in steps:
                if target is None:
                    appends.append(probe.append())
                else:
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        times[target].append(await traffics[target].one())
                await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
        await asyncio.sleep(REST_SECONDS)
        cpu = {target: read_cpu(server.pid).since(before[target]) for target, server in found.items()}
    report.add("append us", 1e6 * median(appends))
    for target, taken in times.items():
        report.add(f"{target} answered us", 1e6 * median(one.answered for one in taken[WARM_UP:]))
        report.add(f"{target} delivered us", 1e6 * median(one.delivered for one in taken[WARM_UP:]))
        report.add(f"{target} cpu us", 1e6 * cpu[target].total / count)


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("latency")
    for _ in context.rounds():
        with servers(context, TARGETS) as found, ExitStack() as stack:
            probe = SyncProbe(stack.enter_context(temporary_home(context.folder)))
            stack.callback(probe.close)
            uvloop.run(_round(context, found, probe, report))
    columns = ["server", "answered µs", "delivered µs", "÷ fdatasync", "durable ÷ this", "goal", "server CPU µs"]
    table = Table("latency at light load, p50 (shipped SDK; redis-py; nats-py)", columns)
    table.rows.append(["4 KiB appended + fdatasync", "", report.spread("append us"), "1", "", "", ""])
    ours = f"{DURABLE} delivered us"
    synced = report.ratios(ours, "append us")
    for target in TARGETS:
        series = f"{target} delivered us"
        if series not in report.samples:
            continue
        ratios = report.ratios(ours, series)
        wanted, measured = (SYNC_WANTED, synced) if target == DURABLE else (WANTED.get(target), ratios)
        table.rows.append(
            [
                target,
                report.spread(f"{target} answered us"),
                report.spread(series),
                spread(report.ratios(series, "append us"), "{:.2f}"),
                "1" if target == DURABLE else spread(ratios, "{:.2f}"),
                "" if wanted is None else f"{wanted.text}: {wanted.verdict(measured)}",
                report.spread(f"{target} cpu us"),
            ]
        )
    report.tables.append(table)
    to_others = {f"delivered ÷ {other}": report.ratios(ours, f"{other} delivered us") for other in TARGETS[1:]}
    report.remember("one at a time", f"{DURABLE} cpu us", to_others | {"delivered ÷ fdatasync": synced})
    report.goals.append(SYNC_WANTED.goal("delivered p50 ÷ one fdatasync of 4 KiB", synced))
    for target, wanted in WANTED.items():
        report.goals.append(wanted.goal(f"delivered p50 ÷ {target}", report.ratios(ours, f"{target} delivered us")))
    report.notes += notes(TARGETS)
    report.notes.append("The goal of the first line is for its ratio to the synced write.")
    return report
