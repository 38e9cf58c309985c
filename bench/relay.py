"""agent-relay through its real SDK, on the hub and on its real daemon: messages a second, and one at a time."""

from bench import processes
from bench.context import Context
from bench.processes import PEERS, BenchError
from bench.report import Report, Wanted
from bench.wire import DELIVERED, RATE, Load, Wire
from bench.wire import measure as measure_wire

WIRE = Wire(
    name="relay",
    client="relay",
    peer=lambda folder: processes.node_on_socket(folder, "daemon.mjs", in_folder=True),
    peer_name="agent-relay's daemon 2.0.29",
    loads=(
        Load(
            name="4 pairs",
            messages=3_200,
            senders=4,
            recipients=4,
            window=64,
            # A tenth of 10.1 and of 0.75, which were measured before, is left for the difference between two runs.
            wanted={RATE: Wanted(least=9)},
        ),
        Load(name="one at a time", messages=200, single=True, wanted={DELIVERED: Wanted(most=0.83)}),
    ),
    note=(
        "The SDK is 2.1.14, in one process of Node. The daemon drops what a sender sends beyond 500 messages a second "
        "and 1,000 at once, so four senders send 880 each. One at a time is sendAndWait, until the recipient's answer."
    ),
)


def measure(context: Context) -> Report:
    """See the module."""
    if not (PEERS / "node_modules").exists():
        raise BenchError("agent-relay's daemon is not installed: `make bench` installs it")
    return measure_wire(context, WIRE)
