"""peerbus over WebSockets: signed messages between two peers, on its own port and on the HTTP port, and an echo."""

from bench import processes
from bench.context import Context
from bench.peerbus_load import HTTP, OWN, SECRET, TOKEN
from bench.report import Report, Wanted
from bench.wire import DELIVERED, Load, Wire
from bench.wire import measure as measure_wire

WIRE = Wire(
    name="peerbus",
    client="peerbus",
    settings=f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{SECRET.decode()}"\nlisten = "127.0.0.1:0"\n',
    peer=lambda folder: processes.node(folder, "peerbus.mjs", TOKEN),
    peer_name="a stand-in for peerbus's broker (Node instead of Go, in memory)",
    loads=(
        Load(name="own port", messages=20_000, port=OWN),
        Load(name="HTTP port", messages=20_000, port=HTTP),
        Load(name="echo, own port", messages=200, single=True, port=OWN, wanted={DELIVERED: Wanted(most=1.0)}),
        Load(name="echo, HTTP port", messages=200, single=True, port=HTTP, wanted={DELIVERED: Wanted(most=1.1)}),
    ),
    note=(
        "peerbus's own broker is in no registry, and no Go is asked for. The stand-in, bench/peers/peerbus.mjs, has "
        "the broker's frames, tokens and deliveries, and neither its database nor its audit chain. The goal for the "
        "rate, to keep 8.3 and 6.1, is one against the real broker, so no ratio here answers it."
    ),
)


def measure(context: Context) -> Report:
    """See the module."""
    return measure_wire(context, WIRE)
