"""ac7: a protocol over HTTP, by which the members of one team exchange messages.

Used by: the code that runs protocols. Uses: `Hub`, the hub's interface for protocols. PROTOCOL.md has the
routes, the rules, and the points in which the hub deviates from ac7's specification.

`shapes` defines the JSON of requests and answers. `messages`, `channels`, `objectives`, `members`, `team`, `activity`
and `telemetry` have the HTTP operations; each module has one subject. Modules that end in `_routes` have the operations
that use the hub's services, such as files. `streams` has the live streams, which push new messages as server-sent
events or WebSocket frames. `codec` converts the hub's values to ac7's shapes. `server` is the HTTP application.
"""

from collections.abc import Mapping
from typing import Any

from tieline.protocols.ac7.settings import FLAGS, TEMPLATE, Ac7Settings
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server
from tieline.wire.puppet import Puppet


def _server(host: Host, settings: Ac7Settings) -> Server:
    from tieline.protocols.ac7.server import Ac7

    assert host.services is not None, "workers do not serve this protocol"
    return Ac7(host.hub, host.services, announce=settings.announce, unfinished=host.unfinished)


def _carriage() -> Carriage:
    from tieline.protocols.ac7.codec import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.ac7.puppet import Ac7Puppet

    return Ac7Puppet


def _tools() -> tuple[Any, ...]:
    from tieline.protocols.ac7.tools import TOOLS

    return TOOLS


def _thread_of(data: Mapping[str, Any]) -> str | None:
    # `data` keeps the channel id from the time of sending, because another channel may have the name later.
    kept = data.get("thread")
    return kept if isinstance(kept, str) and kept.startswith("chan:") else None


PROTOCOL = Protocol(
    name="ac7",
    section="ac7",
    settings=Ac7Settings,
    template=lambda: TEMPLATE,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#1a7a4c",
    terminal_colour="cyan",
    flags=FLAGS,
    reserved_names=("ac7",),
    tools=_tools,
    thread_of=_thread_of,
    is_framed=True,
    runner_variable="AC7_RUNNER_SOCKET",
    login_cookie="ac7_session",
    token_prefixes=("ac7_",),
    openapi="/ac7/openapi.json",
    in_rooms=True,
)
