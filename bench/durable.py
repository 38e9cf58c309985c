"""Durable messages through the hub's own protocol, beside the hub without syncs, a file log, Redis and NATS."""

from bench import rivals
from bench.context import Context
from bench.report import Report, Wanted
from bench.rivals import FILE_LOG, NATS, NATS_SYNC, NO_SYNC, REDIS, Run
from bench.wire import Load

_CPU = Wanted(most=19)
_NO_SYNC = Wanted(least=0.3)

ONE = Run(
    load=Load(name="1→1", messages=20_000),
    beside=(NO_SYNC, REDIS, NATS, NATS_SYNC),
    wanted={NO_SYNC: _NO_SYNC, REDIS: Wanted(least=0.6), NATS: Wanted(least=2)},
    cpu_wanted=_CPU,
)
ONE_LEAN = Run(load=Load(name="1→1 lean", messages=40_000), client="lean", beside=(NO_SYNC, FILE_LOG))
EIGHT = Run(
    load=Load(name="8→8", messages=20_000, senders=8, recipients=8),
    beside=(NO_SYNC, REDIS),
    wanted={NO_SYNC: _NO_SYNC, REDIS: Wanted(least=0.6)},
    cpu_wanted=_CPU,
)


def measure(context: Context) -> Report:
    """See the module."""
    report = rivals.measure(context, "durable", (ONE, ONE_LEAN, EIGHT))
    report.notes.append("Bodies of 200 bytes; 256 sends in flight a sender; 1024 deliveries in flight a recipient.")
    return report
