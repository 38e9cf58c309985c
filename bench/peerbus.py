"""peerbus over its own WebSocket port, signed and verified both ways, beside the same WebSocket carrier echoing."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from bench import processes
from bench.context import Context
from bench.floor import SyncProbe
from bench.peerbus_load import SECRET, TOKEN, Plan, Result
from bench.processes import Server, run_client
from bench.report import Report, Table, spread
from tieline.wire.home import read_running

MESSAGES = 20_000
SINGLES = 200
PAUSE_SECONDS = 0.005
CLIENT_SECONDS_MAX = 180.0
STORES = ("sqlite", "sqlite:unsafe")
ECHO = "echo"


@contextmanager
def _hub(context: Context, store: str) -> Iterator[tuple[Server, str]]:
    with processes.temporary_home(context.folder) as home:
        (home / "tieline.toml").write_text(
            f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{SECRET.decode()}"\nlisten = "127.0.0.1:0"\n'
        )
        command = processes.hub_command(home, store)
        with processes.started(command, home / "bench.log", lambda: read_running(home) is not None):
            running = read_running(home)
            assert running is not None, "the hub said so a moment ago"
            assert running.places["peerbus"] is not None, "it was configured"
            yield Server(running.pid, home, running.http), running.places["peerbus"].removeprefix("ws://")


@contextmanager
def _echo(context: Context) -> Iterator[tuple[Server, str]]:
    with processes.temporary_home(context.folder) as home:
        log = home / "bench.log"
        command = [sys.executable, "-m", "bench.peerbus_echo"]
        with processes.started(command, log, lambda: b"\n" in log.read_bytes()) as process:
            yield Server(process.pid, home), log.read_text().strip()


def _put(context: Context, server: Server, address: str, *, echo: bool) -> Result:
    plan = Plan(address, server.pid, echo, context.scaled(MESSAGES), context.scaled(SINGLES), PAUSE_SECONDS)
    return msgspec.json.decode(run_client("bench.peerbus_load", plan, CLIENT_SECONDS_MAX), type=Result)


def _round(context: Context, report: Report) -> None:
    with ExitStack() as stack:
        servers = {store: stack.enter_context(_hub(context, store)) for store in STORES}
        servers[ECHO] = stack.enter_context(_echo(context))
        probe = SyncProbe(stack.enter_context(processes.temporary_home(context.folder)))
        stack.callback(probe.close)
        names = list(servers)
        context.chance.shuffle(names)
        syncs = []
        for name in names:
            syncs += [probe.append() for _ in range(50)]
            server, address = servers[name]
            result = _put(context, server, address, echo=name == ECHO)
            report.add(f"{name} per second", result.messages / result.seconds)
            report.add(f"{name} cpu us", 1e6 * result.server.total / result.messages)
            report.add(f"{name} round trip us", 1e6 * result.round_trip_seconds)
        report.add("sync us", 1e6 * sorted(syncs)[len(syncs) // 2])


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("peerbus")
    for _ in context.rounds():
        _round(context, report)
    table = Table(
        "peerbus: direct messages signed, delivered, verified and acknowledged, over a WebSocket",
        ["server", "messages/s", "÷ echo", "server CPU µs", "round trip p50 µs", "÷ echo", "÷ fdatasync"],
    )
    for name in (*STORES, ECHO):
        rate, trip = f"{name} per second", f"{name} round trip us"
        table.rows.append(
            [
                name,
                report.spread(rate),
                spread(report.ratios(rate, f"{ECHO} per second"), "{:.2f}"),
                report.spread(f"{name} cpu us", "{:.1f}"),
                report.spread(trip),
                spread(report.ratios(trip, f"{ECHO} round trip us"), "{:.2f}"),
                spread(report.ratios(trip, "sync us"), "{:.2f}"),
            ]
        )
    table.rows.append(["4 KiB appended + fdatasync", "", "", "", report.spread("sync us"), "", "1"])
    report.tables.append(table)
    report.notes.append(
        "Two peers in one client process, 256 messages on their way; echo is the hub's own WebSocket carrier with "
        "nothing behind it, through the same client. The round trip is one message at a time, until its recipient has "
        "verified it."
    )
    return report
