"""Workers: a hub with 0, 1 and 2 processes that serve clients, and the processor time of each of these processes."""

from contextlib import ExitStack

from bench import processes
from bench.context import Context
from bench.machine import read_children, read_cpu
from bench.report import Goal, Report, Table, Wanted, spread
from bench.wire import Load, put

COUNTS = (0, 1, 2)
_LOADS = {
    "sdk": (
        Load(name="1→1", messages=20_000),
        Load(name="8→8", messages=20_000, senders=8, recipients=8),
        Load(name="1→100", messages=1_000, recipients=100, fan_out=True),
    ),
    "ac7": (Load(name="16 connections of ac7", messages=6_000, senders=16),),
}
_WANTED = Wanted(least=0.9)
"""With one worker at most a tenth of the rate may be lost."""


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("workers")
    for number in context.rounds():
        with ExitStack() as stack:
            hubs = {
                count: stack.enter_context(
                    processes.hub(context.folder, "sqlite", settings=f"[workers]\ncount = {count}\n")
                )
                for count in COUNTS
            }
            for client, loads in _LOADS.items():
                for index, load in enumerate(loads):
                    for count in context.chance.sample(COUNTS, len(COUNTS)):
                        _put(
                            report, client, load, count, hubs[count], context.scaled(load.messages), f"{number}{index}"
                        )
    for loads in _LOADS.values():
        for load in loads:
            report.tables.append(_table(report, load))
            rates = report.ratios(f"{load.name} | 1 | per s", f"{load.name} | 0 | per s")
            report.goals.append(_goal(load, rates))
    report.notes.append("Two processors: the client, the hub and its workers share them.")
    return report


def _put(
    report: Report, client: str, load: Load, count: int, server: processes.Server, messages: int, name: str
) -> None:
    workers = read_children(server.pid)
    before = sum(read_cpu(pid).total for pid in workers)
    result = put(client, load, server, messages, f"b{name}")
    spent = sum(read_cpu(pid).total for pid in workers) - before
    series = f"{load.name} | {count} | "
    copies = result.deliveries / result.messages
    report.add(f"{series}per s", result.deliveries / result.seconds)
    report.add(f"{series}loop us", 1e6 * result.server.main / result.deliveries)
    report.add(f"{series}decider us", 1e6 * result.server.others / result.deliveries)
    # With the warm-up, which the workers do too.
    sent = result.messages + max(1, messages // 10 // load.senders) * load.senders
    report.add(f"{series}workers us", 1e6 * spent / (sent * copies))


def _table(report: Report, load: Load) -> Table:
    unit = "delivery" if load.fan_out else "message"
    columns = ["workers", "a second", "÷ no workers", "hub, loop µs", "hub, decider µs", "workers µs"]
    table = Table(f"workers {load.name}, processor time per {unit}", columns)
    for count in COUNTS:
        series = f"{load.name} | {count} | "
        ratios = report.ratios(f"{series}per s", f"{load.name} | 0 | per s")
        times = [report.spread(f"{series}{figure}", "{:.1f}") for figure in ("loop us", "decider us", "workers us")]
        table.rows.append([str(count), report.spread(f"{series}per s"), spread(ratios, "{:.2f}"), *times])
    return table


def _goal(load: Load, rates: list[float]) -> Goal:
    return _WANTED.goal(f"workers, {load.name}, rate with 1 ÷ with 0", rates)
