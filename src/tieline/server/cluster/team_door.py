"""The port at which the leader of a team serves the other hubs: links, and forwarded requests.

Used by: the hub's process, if the team has several hubs. Uses: TLS with the certificate of the home, whose fingerprint
is in the lease beside the address. So a follower knows that it reaches the leader, and the leader lets in who knows
the key of the team, which is in the database too. The name of the protocol in the TLS handshake says what a connection
is for.
"""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, cast

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tieline.contract.hub import Hub
from tieline.core.directory import token_digest
from tieline.server.certificate import own_certificate
from tieline.server.config import ClusterSection, ConfigError
from tieline.server.home import Home
from tieline.server.room import Room
from tieline.server.workers.forwarding import ForwardServer
from tieline.wire.address import CannotListen, with_pin
from tieline.wire.http import HttpApp
from tieline.wire.hub_link.server import LinkServer
from tieline.wire.tls import TlsListener, listen_tls

LINK, REQUESTS = "tieline-link", "tieline-requests"
"""Names of the protocols in the TLS handshake: links, and forwarded requests."""


class Leading(Collector):
    """The fact that this hub leads: for `/healthz`, `run.json` and `/metrics`."""

    def __init__(self, room: Room) -> None:
        lease = cast(Any, room.store).lease
        self._health = room.local_hub.health
        self.about: dict[str, Any] = {"role": "leader", "term": lease.term, "leader": lease.hub}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a leader."""
        yield from cluster_metrics(leads=not self._health.lease, term=self.about["term"])


def cluster_metrics(*, leads: bool, term: int) -> Iterator[Metric]:
    """Yield the metrics of a hub of a team with several hubs."""
    yield GaugeMetricFamily("tieline_cluster_leader", "1 if this hub leads its team", value=leads)
    yield GaugeMetricFamily("tieline_cluster_term", "Term of the leader that this hub knows", value=term)


class TeamDoor:
    """The leader's port for the other hubs of its team."""

    def __init__(self, home: Home, cluster: ClusterSection) -> None:
        self._home_key = token_digest(home.key())
        self._listens_at = cluster.listens_at
        host = cluster.address.rpartition(":")[0].strip("[]")
        self._certificate = own_certificate(home.path, (host,))
        # The address with the fingerprint of the certificate, for the lease.
        self.address = with_pin(f"https://{cluster.address}", self._certificate.fingerprint)
        self._plain = cluster.address
        self._key = ""
        self._links: LinkServer | None = None
        self._forwards: ForwardServer | None = None
        self._listening: TlsListener | None = None

    async def lead(self, room: Room) -> Leading:
        """Take the key of the team from the database, because this hub leads now. Return this fact for people."""
        store = cast(Any, room.store)
        self._key = await asyncio.to_thread(store.join_cluster, self._home_key, self._plain)
        return Leading(room)

    def open(self, hub: Hub, apps: Sequence[HttpApp]) -> None:
        """Open the port. `apps` answer the requests of clients of other hubs."""
        self._links = LinkServer(hub, self._key)
        self._forwards = ForwardServer(apps, self._key)
        try:
            self._listening = listen_tls(self._listens_at, lambda: _Arrival(self), self._context)
        except OSError as error:
            raise ConfigError(str(CannotListen(self._listens_at, "the other hubs of the team", error))) from error

    def _context(self) -> ssl.SSLContext:
        context = self._certificate.context()
        context.set_alpn_protocols([LINK, REQUESTS])
        return context

    def protocol(self, purpose: str | None) -> asyncio.Protocol | None:
        """Return the protocol of a connection, by the name of its purpose; `None` if it has none."""
        if purpose == LINK and self._links is not None:
            return self._links.accept()
        if purpose == REQUESTS and self._forwards is not None:
            return self._forwards.accept()
        return None

    async def close(self) -> None:
        """Close the port, and end all links and requests."""
        if self._listening is not None:
            self._listening.close()
        if self._links is not None:
            await self._links.close()
        if self._forwards is not None:
            await self._forwards.stop()


class _Arrival(asyncio.Protocol):
    """Finds out the purpose of a new connection, and hands over to its protocol."""

    def __init__(self, door: TeamDoor) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over, or end it if its purpose is not known."""
        secured = transport.get_extra_info("ssl_object")
        protocol = self._door.protocol(secured.selected_alpn_protocol())
        if protocol is None:
            cast(asyncio.Transport, transport).abort()
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
