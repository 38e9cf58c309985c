"""The stores: durable messages on SQLite and on PostgreSQL in one run, beside NATS with JetStream that syncs each one.

The processor time of the hub and of its database are counted apart. PostgreSQL has its default settings.
"""

from contextlib import ExitStack

from bench import processes
from bench.context import Context
from bench.machine import read_family_cpu
from bench.postgres_server import postgres, programs
from bench.report import Report, Table, spread
from bench.rivals import DURABLE, NATS_SYNC, NOTES, client_of, is_installed
from bench.wire import Load, put

POSTGRES = "postgresql"

_LOADS = (
    Load(name="1→1", messages=20_000),
    Load(name="8→8", messages=20_000, senders=8, recipients=8),
    Load(name="one at a time", messages=200, single=True),
)


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("store")
    for number in context.rounds():
        with ExitStack() as stack:
            found = {DURABLE: stack.enter_context(processes.hub(context.folder, DURABLE))}
            database = 0
            if programs() is not None:
                database, url = stack.enter_context(postgres(context.folder))
                found[POSTGRES] = stack.enter_context(processes.hub(context.folder, url))
            if is_installed(NATS_SYNC):
                found[NATS_SYNC] = stack.enter_context(processes.nats(context.folder, sync_always=True))
            for index, load in enumerate(_LOADS):
                names = list(found)
                context.chance.shuffle(names)
                for name in names:
                    messages = context.scaled(load.messages)
                    before = read_family_cpu(database) if name == POSTGRES else 0.0
                    result = put(client_of(name, "sdk"), load, found[name], messages, f"b{number}-{index}")
                    series = f"{load.name} | {name} | "
                    report.add(f"{series}per s", result.messages / result.seconds)
                    report.add(f"{series}cpu us", 1e6 * result.server.total / result.messages)
                    report.add(f"{series}delivered us", 1e6 * result.delivered)
                    if result.commits:
                        report.add(f"{series}messages per commit", result.messages / result.commits)
                    if name == POSTGRES:
                        # With the warm-up, which the database does too.
                        sent = result.messages + max(1, messages // 10)
                        report.add(f"{series}database us", 1e6 * (read_family_cpu(database) - before) / sent)
    report.tables += [_table(report, load) for load in _LOADS]
    report.notes.append("Bodies of 200 bytes; 256 sends in flight a sender, except one at a time.")
    report.notes.append(f"{POSTGRES}: the hub with --store postgresql://…, on a server with default settings")
    report.notes.append(f"{NATS_SYNC}: {NOTES[NATS_SYNC]}")
    return report


def _table(report: Report, load: Load) -> Table:
    what = "delivered p50 µs" if load.single else "messages/s"
    columns = ["server", what, "÷ sqlite", "÷ nats", "hub or server CPU µs", "database CPU µs", "messages a commit"]
    table = Table(f"store {load.name} (shipped SDK; nats-py), per message", columns)
    figure = "delivered us" if load.single else "per s"
    for name in (DURABLE, POSTGRES, NATS_SYNC):
        series = f"{load.name} | {name} | "
        if f"{series}cpu us" not in report.samples:
            table.rows.append([name, "not installed", "", "", "", "", ""])
            continue
        ratios = [
            spread(report.ratios(f"{series}{figure}", f"{load.name} | {other} | {figure}"), "{:.2f}")
            for other in (DURABLE, NATS_SYNC)
        ]
        table.rows.append(
            [
                name,
                report.spread(f"{series}{figure}"),
                *ratios,
                report.spread(f"{series}cpu us", "{:.1f}"),
                report.spread(f"{series}database us", "{:.1f}") if name == POSTGRES else "",
                report.spread(f"{series}messages per commit"),
            ]
        )
    return table
