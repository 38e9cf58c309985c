"""One message to a hundred recipients: a durable channel beside NATS core and Redis pub/sub."""

from bench import rivals
from bench.context import Context
from bench.report import Report, Wanted
from bench.rivals import FILE_LOG, NATS, NO_SYNC, REDIS, Run
from bench.wire import Load

SDK = Run(
    load=Load(name="1→100", messages=1_000, recipients=100, fan_out=True),
    beside=(NO_SYNC, NATS, REDIS),
    wanted={NATS: Wanted(least=2), REDIS: Wanted(least=3)},
    cpu_wanted=Wanted(most=1.5),
)
LEAN = Run(
    load=Load(name="1→100 lean", messages=1_000, recipients=100, fan_out=True),
    client="lean",
    beside=(NO_SYNC, FILE_LOG),
)


def measure(context: Context) -> Report:
    """See the module."""
    report = rivals.measure(context, "fanout", (SDK, LEAN))
    report.notes.append("Here NATS is core without JetStream, and Redis is pub/sub: neither keeps the messages.")
    return report
