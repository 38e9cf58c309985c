"""backchannel's relay over HTTP: sends and claims of 1 and 16 connections, and one send until its event."""

from bench import processes
from bench.context import Context
from bench.http_load import TAKE
from bench.report import Report, Wanted
from bench.wire import DELIVERED, RATE, Load, Wire
from bench.wire import measure as measure_wire

_TWICE = {RATE: Wanted(least=2)}

WIRE = Wire(
    name="backchannel",
    client="backchannel",
    peer=lambda folder: processes.node(folder, "backchannel.mjs"),
    peer_name="a stand-in for backchannel's relay (Node, in memory)",
    loads=(
        Load(name="send, 1 connection", messages=2_000, wanted=_TWICE),
        Load(name="send, 16 connections", messages=6_000, senders=16, wanted=_TWICE, cpu_wanted=Wanted(most=150)),
        Load(name="take, 1 connection", messages=2_000, port=TAKE, wanted=_TWICE),
        Load(name="take, 16 connections", messages=6_000, senders=16, port=TAKE, wanted=_TWICE),
        Load(name="one at a time", messages=200, single=True, wanted={DELIVERED: Wanted(most=0.9)}),
    ),
    note=(
        "backchannel's own relay is in no registry. The stand-in, bench/peers/backchannel.mjs, authenticates, answers "
        "and streams, and keeps messages in memory; the relay itself writes files, without a sync."
    ),
)


def measure(context: Context) -> Report:
    """See the module."""
    return measure_wire(context, WIRE)
