"""ac7 over HTTP: pushes per second of 1 and 16 connections, and one push until it is on the recipient's stream."""

from bench import processes
from bench.context import Context
from bench.report import Report, Wanted
from bench.wire import ANSWERED, DELIVERED, RATE, Load, Wire
from bench.wire import measure as measure_wire

WIRE = Wire(
    name="ac7",
    client="ac7",
    peer=lambda folder: processes.node(folder, "ac7.mjs"),
    peer_name="a stand-in for ac7's server (Node, in memory)",
    loads=(
        Load(name="1 connection", messages=1_500, wanted={RATE: Wanted(least=1.2)}),
        Load(
            name="16 connections",
            messages=6_000,
            senders=16,
            wanted={RATE: Wanted(least=2)},
            cpu_wanted=Wanted(most=150),
        ),
        Load(
            name="one at a time",
            messages=200,
            single=True,
            wanted={DELIVERED: Wanted(most=1.2), ANSWERED: Wanted(most=1.0)},
        ),
    ),
    note=(
        "ac7's own server is in no registry. The stand-in, bench/peers/ac7.mjs, authenticates, checks, answers "
        "and streams, and stores nothing; so it is faster than ac7's server, which writes to SQLite without a sync."
    ),
)


def measure(context: Context) -> Report:
    """See the module."""
    return measure_wire(context, WIRE)
