"""A toy protocol for tests: lines of JSON on a Unix socket. It shows that a protocol needs only one folder."""

from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server, Settings, on_off
from tieline.wire.puppet import Puppet

TEMPLATE = """\
[toy]
enabled = true
"""


def _server(host: Host, settings: Settings) -> Server:
    from .server import ToyServer

    del settings
    return ToyServer(host)


def _carriage() -> Carriage:
    from .codec import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from .puppet import ToyPuppet

    return ToyPuppet


PROTOCOL = Protocol(
    name="toy",
    section="toy",
    settings=Settings,
    template=lambda: TEMPLATE,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    flags=(on_off("toy", "Speak the toy protocol."),),
    places={"toy_socket": "toy"},
)
