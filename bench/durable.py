"""Durable messages through the hub's own protocol, beside the same hub without durability and other references."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec import Struct

from bench import processes
from bench.context import Context
from bench.plan import Plan, Result
from bench.processes import Server, run_client
from bench.report import Goal, Report, Table, spread

CLIENT_SECONDS_MAX = 180.0
DURABLE = "sqlite"
NO_SYNC = "sqlite:unsafe"
FILE_LOG = "file log"
REDIS = "redis"


class Load(Struct, frozen=True):
    """A shape of traffic; `messages` is the count of a full run."""

    name: str
    client: str
    messages: int
    senders: int = 1
    recipients: int = 1
    fan_out: bool = False
    redis: bool = False
    file_log: bool = False


ONE = Load("1→1", "sdk", 20_000, redis=True)
ONE_LEAN = Load("1→1 lean", "lean", 40_000, file_log=True)
EIGHT = Load("8→8", "sdk", 20_000, senders=8, recipients=8, redis=True)
FAN_OUT = Load("1→100", "sdk", 1_000, recipients=100, fan_out=True)
FAN_OUT_LEAN = Load("1→100 lean", "lean", 1_000, recipients=100, fan_out=True, file_log=True)
LOADS = (ONE, ONE_LEAN, EIGHT, FAN_OUT, FAN_OUT_LEAN)

WHAT = {
    DURABLE: "the hub as shipped",
    NO_SYNC: "the hub with every write but no sync (--store sqlite:unsafe)",
    FILE_LOG: "bench/file_log.py: append to a file, one fdatasync for whatever queued, no rules; lean client only",
    REDIS: "Redis, appendfsync always: XADD in pipelines of 256, XREADGROUP, XACK; redis-py with hiredis",
}


@contextmanager
def servers(context: Context) -> Iterator[dict[str, Server]]:
    """One server of each kind, all running at once; servers without load are idle."""
    with ExitStack() as stack:
        found = {store: stack.enter_context(processes.hub(context.folder, store)) for store in (DURABLE, NO_SYNC)}
        found[FILE_LOG] = stack.enter_context(processes.file_log(context.folder))
        if shutil.which("redis-server"):
            found[REDIS] = stack.enter_context(processes.redis(context.folder))
        yield found


def put(load: Load, target: str, server: Server, messages: int, name: str) -> Result:
    """Put a load on a server, from a client process of its own."""
    plan = Plan(
        client="redis" if target == REDIS else load.client,
        server_pid=server.pid,
        home=str(server.home),
        http=server.http,
        senders=load.senders,
        recipients=load.recipients,
        fan_out=load.fan_out,
        messages=messages,
        # A tenth, rounded so that every sender sends the same number.
        warm_up=messages // 10 // load.senders * load.senders,
        name=name,
    )
    return msgspec.json.decode(run_client("bench.load", plan, CLIENT_SECONDS_MAX), type=Result)


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("durable")
    for number in context.rounds():
        with servers(context) as found:
            for load_number, load in enumerate(LOADS):
                targets = [target for target in found if _takes(target, load)]
                context.chance.shuffle(targets)
                for target in targets:
                    messages = context.scaled(load.messages)
                    result = put(load, target, found[target], messages, f"b{number}-{load_number}")
                    _keep(report, load, target, result)
    for load in LOADS:
        report.tables.append(_table(report, load))
    report.notes += [f"{target}: {WHAT[target]}" for target in (DURABLE, NO_SYNC, FILE_LOG)]
    if shutil.which("redis-server"):
        report.notes.append(f"{REDIS}: {WHAT[REDIS]}")
    else:
        report.notes.append("redis: skipped, because redis-server is not installed")
    report.notes.append("Bodies of 200 bytes; 256 sends in flight a sender; 1024 deliveries in flight a recipient.")
    report.goals += _goals(report)
    return report


def _takes(target: str, load: Load) -> bool:
    return {REDIS: load.redis, FILE_LOG: load.file_log}.get(target, True)


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


def _table(report: Report, load: Load) -> Table:
    unit, units = ("delivery", "deliveries") if load.fan_out else ("message", "messages")
    client = "shipped SDK" if load.client == "sdk" else "lean client"
    table = Table(
        f"durable {load.name} ({client}), per {unit}",
        [
            "server",
            f"{units}/s",
            "durable ÷ this",
            "server CPU µs",
            "loop + broker thread µs",
            "client CPU µs",
            "messages a commit",
        ],
    )
    for target in WHAT:
        series = f"{load.name} | {target} | "
        if f"{series}per s" not in report.samples:
            continue
        ratios = report.ratios(f"{load.name} | {DURABLE} | per s", f"{series}per s")
        loop, broker = report.median(f"{series}loop cpu us"), report.median(f"{series}broker cpu us")
        table.rows.append(
            [
                target,
                report.spread(f"{series}per s"),
                "1" if target == DURABLE else spread(ratios, "{:.2f}"),
                report.spread(f"{series}cpu us", "{:.1f}"),
                f"{loop:.1f} + {broker:.1f}",
                report.spread(f"{series}client cpu us", "{:.1f}"),
                report.spread(f"{series}messages per commit"),
            ]
        )
    return table


def _goals(report: Report) -> list[Goal]:
    goals = []
    for load in (ONE, ONE_LEAN, EIGHT):
        ratios = report.ratios(f"{load.name} | {DURABLE} | per s", f"{load.name} | {NO_SYNC} | per s")
        goals.append(_at_least(f"durable {load.name} ÷ {NO_SYNC}", ratios, 0.3))
    for load in (ONE, EIGHT):
        ratios = report.ratios(f"{load.name} | {DURABLE} | per s", f"{load.name} | {REDIS} | per s")
        goals.append(_at_least(f"durable {load.name} ÷ Redis always", ratios, 2.0))
    for load, most in ((ONE, 15.0), (EIGHT, 15.0), (FAN_OUT, 2.0)):
        unit = "delivery" if load.fan_out else "message"
        values = report.samples.get(f"{load.name} | {DURABLE} | cpu us", [])
        goals.append(_at_most(f"hub CPU µs per {unit}, {load.name}", values, most))
    return goals


def _at_least(name: str, values: list[float], least: float) -> Goal:
    met = None if not values else sorted(values)[len(values) // 2] >= least
    return Goal(name, f"≥ {least:g}", spread(values, "{:.2f}"), met)


def _at_most(name: str, values: list[float], most: float) -> Goal:
    met = None if not values else sorted(values)[len(values) // 2] <= most
    return Goal(name, f"≤ {most:g}", spread(values, "{:.1f}"), met)
