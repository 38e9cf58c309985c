"""The hub's own protocol beside the hub without syncs, a file log, Redis and NATS: servers, loads, tables."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from msgspec import Struct

from bench import processes
from bench.context import Context
from bench.plan import Result
from bench.processes import Server
from bench.report import Goal, Report, Table, Wanted, spread
from bench.wire import Load, put

DURABLE = "sqlite"
NO_SYNC = "sqlite:unsafe"
FILE_LOG = "file log"
REDIS = "redis"
NATS = "nats"
NATS_SYNC = "nats, sync always"

NOTES = {
    DURABLE: "the hub as shipped",
    NO_SYNC: "the hub with every write but no sync (--store sqlite:unsafe)",
    FILE_LOG: "bench/file_log.py: append to a file, one fdatasync for whatever queued, no rules; lean client only",
    REDIS: "Redis with appendfsync always, through redis-py with hiredis",
    NATS: "NATS with JetStream through nats-py; by default it syncs its files every two minutes",
    NATS_SYNC: "the same with `sync_interval: always`: it syncs each message",
}


class Run(Struct, frozen=True, kw_only=True):
    """A load, and the servers that take it beside the hub."""

    load: Load
    client: str = "sdk"
    beside: tuple[str, ...]
    wanted: Mapping[str, Wanted] = {}
    """Goals for the ratios of the rates, by reference."""
    cpu_wanted: Wanted | None = None
    """The goal for the hub's processor time in microseconds."""


@contextmanager
def servers(context: Context, names: Sequence[str]) -> Iterator[dict[str, Server]]:
    """One server of each name that is installed, all running at once; servers without load are idle."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_server(context, name)) for name in names if is_installed(name)}


def is_installed(name: str) -> bool:
    """True if the program of a reference is there."""
    if name == REDIS:
        return shutil.which("redis-server") is not None
    return name not in (NATS, NATS_SYNC) or processes.nats_server() is not None


def _server(context: Context, name: str) -> AbstractContextManager[Server]:
    match name:
        case "redis":
            return processes.redis(context.folder)
        case "nats" | "nats, sync always":
            return processes.nats(context.folder, sync_always=name == NATS_SYNC)
        case "file log":
            return processes.file_log(context.folder)
        case _:
            return processes.hub(context.folder, name)


def client_of(name: str, client: str) -> str:
    """The client that puts a load on a server."""
    return {REDIS: REDIS, NATS: NATS, NATS_SYNC: NATS}.get(name, client)


def notes(names: Sequence[str]) -> list[str]:
    """One line about each server; a reference that is missing says so."""
    return [
        f"{name}: {NOTES[name] if is_installed(name) else 'skipped, because it is not installed'}" for name in names
    ]


def measure(context: Context, name: str, runs: Sequence[Run]) -> Report:
    """Put every load on the hub and its references, in random order, in every round."""
    report = Report(name)
    names = list(dict.fromkeys([DURABLE, *(other for run in runs for other in run.beside)]))
    for number in context.rounds():
        with servers(context, names) as found:
            for index, run in enumerate(runs):
                targets = [target for target in (DURABLE, *run.beside) if target in found]
                context.chance.shuffle(targets)
                for target in targets:
                    messages = context.scaled(run.load.messages)
                    client = client_of(target, run.client)
                    result = put(client, run.load, found[target], messages, f"b{number}-{index}")
                    _keep(report, run.load, target, result)
    for run in runs:
        ours = f"{run.load.name} | {DURABLE} | "
        ratios = {
            f"rate ÷ {other}": report.ratios(f"{ours}per s", f"{run.load.name} | {other} | per s")
            for other in run.beside
        }
        report.remember(run.load.name, f"{ours}cpu us", ratios)
        report.tables.append(_table(report, run))
        report.goals += _goals(report, run)
    report.notes += notes(names)
    return report


def _keep(report: Report, load: Load, target: str, result: Result) -> None:
    # The unit of a fan-out is the delivery; the unit of any other load is the message.
    units = result.deliveries
    series = f"{load.name} | {target} | "
    report.add(f"{series}per s", units / result.seconds)
    report.add(f"{series}cpu us", 1e6 * result.server.total / units)
    report.add(f"{series}loop cpu us", 1e6 * result.server.main / units)
    report.add(f"{series}broker cpu us", 1e6 * result.server.others / units)
    report.add(f"{series}client cpu us", 1e6 * result.client_cpu / units)
    if result.commits:
        report.add(f"{series}messages per commit", result.messages / result.commits)


def _table(report: Report, run: Run) -> Table:
    load = run.load
    unit, units = ("delivery", "deliveries") if load.fan_out else ("message", "messages")
    client = "shipped SDK" if run.client == "sdk" else "lean client"
    columns = ["server", f"{units}/s", "durable ÷ this", "goal", "server CPU µs", "main + other threads µs"]
    table = Table(f"{report.name} {load.name} ({client}), per {unit}", [*columns, "client CPU µs", "messages a commit"])
    for target in (DURABLE, *run.beside):
        series = f"{load.name} | {target} | "
        loop, others = report.median(f"{series}loop cpu us"), report.median(f"{series}broker cpu us")
        if loop is None or others is None:
            continue
        ratios = report.ratios(f"{load.name} | {DURABLE} | per s", f"{series}per s")
        wanted = run.wanted.get(target)
        table.rows.append(
            [
                target,
                report.spread(f"{series}per s"),
                "1" if target == DURABLE else spread(ratios, "{:.2f}"),
                "" if wanted is None else f"{wanted.text}: {wanted.verdict(ratios)}",
                report.spread(f"{series}cpu us", "{:.1f}"),
                f"{loop:.1f} + {others:.1f}",
                report.spread(f"{series}client cpu us", "{:.1f}"),
                report.spread(f"{series}messages per commit"),
            ]
        )
    return table


def _goals(report: Report, run: Run) -> Iterator[Goal]:
    load = run.load
    ours = f"{load.name} | {DURABLE} | "
    for target, wanted in run.wanted.items():
        ratios = report.ratios(f"{ours}per s", f"{load.name} | {target} | per s")
        yield wanted.goal(f"{report.name} {load.name} ÷ {target}", ratios)
    if run.cpu_wanted is not None:
        unit = "delivery" if load.fan_out else "message"
        cpu = report.samples.get(f"{ours}cpu us", [])
        yield run.cpu_wanted.goal(f"hub CPU µs per {unit}, {load.name}", cpu, "{:.1f}")
