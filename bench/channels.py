"""agent-channels over its socket: one client writes to 1 and to 10 listeners, and one message at a time."""

from bench import processes
from bench.context import Context
from bench.report import Report, Wanted
from bench.wire import DELIVERED, RATE, Load, Wire
from bench.wire import measure as measure_wire

WIRE = Wire(
    name="channels",
    client="channels",
    peer=lambda folder: processes.node_on_socket(folder, "agent_channels.mjs"),
    peer_name="a stand-in for a channel of agent-channels (Node)",
    loads=(
        Load(name="1 listener", messages=20_000, wanted={RATE: Wanted(least=0.25)}),
        Load(name="10 listeners", messages=10_000, recipients=10, fan_out=True, wanted={RATE: Wanted(least=0.6)}),
        Load(name="one at a time", messages=200, single=True, wanted={DELIVERED: Wanted(most=3)}),
    ),
    note=(
        "agent-channels is in no registry. The stand-in, bench/peers/agent_channels.mjs, decodes, checks, encodes and "
        "forwards, as the library does; neither stores anything. With 10 listeners the unit is the delivery."
    ),
)


def measure(context: Context) -> Report:
    """See the module."""
    return measure_wire(context, WIRE)
