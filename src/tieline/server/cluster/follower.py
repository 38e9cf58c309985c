"""A follower: a hub of a team that does not lead. It serves clients by the leader, and watches the leader's lease.

Used by: `member`. Uses: the lease in the database, and a link to the leader over TLS. A follower serves the doors that
need only the interface `Hub`: the hub's own protocol, protocols that may run in workers, and those of its own machine,
such as the spool. It forwards all other requests of its HTTP port to the leader. When the leader changes, the sessions
of its clients end, and they connect again, here or elsewhere.
"""

import asyncio
import contextlib
import hmac
import os
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tieline import __version__
from tieline.contract.member import ByHomeKey
from tieline.core.directory import token_digest
from tieline.core.store import StoreError
from tieline.protocols import protocols
from tieline.server.certificate import Certificate, certificate_of
from tieline.server.cluster.team_door import LINK, REQUESTS, cluster_metrics
from tieline.server.config import Config, ConfigError
from tieline.server.config_origin import record
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.native_stream import NativeStream
from tieline.server.storage import DatabaseStorage, public_url
from tieline.server.workers.forwarding import Forwarder
from tieline.wire.address import CannotListen, is_loopback, parse_address, reachable, split_pin
from tieline.wire.home import HUB_SOCKET, Running, read_key
from tieline.wire.http import HttpApp, failure, refuse
from tieline.wire.hub_link.remote_hub import RemoteHub, connect_by
from tieline.wire.native.unix import NativeListener
from tieline.wire.protocol import Host, Server
from tieline.wire.tls import client_context
from tieline.wire.unfinished import Unfinished

_LOOK_SECONDS = 0.25
"""Time between two looks at the lease. The largest part of a take-over is the lease itself."""
_ANSWER_SECONDS = 3.0
"""Longest wait for the database. It is longer than the connection attempt, which has its own limit."""
_NOTE_SECONDS = 5.0
"""Time between two notes in the database that this hub runs."""
_YIELD_SECONDS = 2.0
"""Time for which a hub leaves a free lease to another one that a person wants to lead."""
_DIAL_SECONDS = 2.0
"""Longest time of an attempt to reach the leader. Meanwhile nobody looks at the lease."""

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Leader(Protocol):
    """Interface of what the lease says about the leader."""

    @property
    def term(self) -> int:
        """The leader's term."""

    @property
    def hub(self) -> str:
        """Name of the leader, for people."""

    @property
    def address(self) -> str:
        """The address at which followers reach the leader, with the fingerprint of its certificate."""

    @property
    def seconds(self) -> float:
        """Seconds until the lease ends; 0 or less if it has ended."""

    @property
    def preferred(self) -> str:
        """The address of the hub that shall lead next; empty for none."""


class Follower:
    """A hub of a team while another hub leads. `over` is resolved when the lease has ended: this hub may lead then."""

    def __init__(self, home: Home, config: Config, address: tuple[str, int], *, home_named: bool) -> None:
        self._home = home
        self._home_named = home_named
        self._config = config
        # Where the HTTP port listens.
        self._address = address
        self._certificate: Certificate | None = None
        self._storage = DatabaseStorage(config.store.url, home.path)
        self._view = self._storage.open_lease()
        self._key = ""
        self._link_key = ""
        # What the lease said at the last look, and the reason why the leader cannot be reached.
        self._leader: Leader | None = None
        self.trouble = ""
        # The link to the leader, and what stands on it: doors and servers.
        self._hub: RemoteHub | None = None
        self._serving = contextlib.AsyncExitStack()
        self._following: asyncio.Task[None] | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running: Running

    async def start(self) -> Running:
        """Serve clients by the leader, or wait for one. Return the addresses."""
        await self._ask(self._learn)
        self._certificate = certificate_of(self._home.path, self._config.http, reachable(self._address[0]))
        await self._attach()
        self._following = asyncio.create_task(self._follow())
        return self.running

    def _learn(self) -> None:
        """Take the keys of the team. Raise `ConfigError` if the key of this home is another one."""
        try:
            self._link_key, digest = self._view.secrets()
            self._leader = self._view.read()
        except StoreError as error:
            self.trouble = str(error)
            return
        key = read_key(self._home.path)
        if digest is not None and (key is None or not hmac.compare_digest(token_digest(key), digest)):
            what = "has another key than" if key else "has no key of"
            hint = f"copy the file 'key' of another hub of the team to {self._home.path}, and start again"
            raise ConfigError(f"the home of this hub {what} the other hubs of the team: {hint}")
        self._key = key or ""

    async def stop(self) -> None:
        """Close all doors and the link."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._detach()
        await asyncio.to_thread(self._view.close)

    # Following.

    async def _follow(self) -> None:
        try:
            await self._follow_leaders()
        except Exception as error:  # noqa: BLE001 - whatever it is, the role is over
            self.over.set_exception(error)
        else:
            self.over.set_result(None)

    async def _follow_leaders(self) -> None:
        """Look at the lease again and again. Follow each new leader, until there is none."""
        noted_at, free_since = float("-inf"), 0.0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            try:
                if not self._link_key:
                    await self._ask(self._learn)
                found: Leader = await self._ask(self._view.read)
                if now - noted_at > _NOTE_SECONDS:
                    noted_at = now
                    await self._ask(partial(self._view.note, self._config.cluster.address, self._storage.hub_name))
            except StoreError as error:
                if self._hub is None or self._hub.lost.done():
                    self.trouble = str(error)
                if self._hub is not None and self._hub.lost.done():
                    # Neither the leader nor the database answers, so nobody knows who leads.
                    self._leader = None
                    await self._attach()
                continue
            if found.seconds <= 0:
                free_since = free_since or now
                yields = found.preferred not in ("", self._config.cluster.address)
                if yields and now - free_since < _YIELD_SECONDS:
                    continue
                log.info("nobody leads the team; this hub tries to", term=found.term, last=found.hub)
                return
            free_since = 0.0
            before, self._leader = self._leader, found
            is_same = before is not None and (before.term, before.address) == (found.term, found.address)
            if not is_same or self._hub is None or self._hub.lost.done():
                await self._attach()

    async def _ask(self, call: Callable[[], _T]) -> _T:
        """Call the database on another thread. If it does not answer, end the call with an error."""
        calling = asyncio.create_task(asyncio.to_thread(call))
        done, _ = await asyncio.wait((calling,), timeout=_ANSWER_SECONDS)
        if not done:
            self._view.interrupt()
        return await calling

    async def _attach(self) -> None:
        """Connect to the leader, and serve clients by it. Without a leader, serve only the page about the health."""
        had_hub = self._hub is not None
        hub = await self._connect()
        if hub is None and self._serving_alone and not had_hub:
            return
        await self._detach()
        try:
            await self._serve(hub)
        except BaseException:
            await self._detach()
            raise

    @property
    def _serving_alone(self) -> bool:
        """True if the HTTP port is open without a leader."""
        return hasattr(self, "running") and self._hub is None

    async def _connect(self) -> RemoteHub | None:
        leader = self._leader
        if leader is None or leader.seconds <= 0:
            self.trouble = self.trouble or "nobody leads the team"
            return None
        if not leader.address:
            self.trouble = f"{leader.hub} uses the database, and expects no other hubs"
            return None
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                hub = await connect_by(partial(self._dial, leader.address), self._link_key)
        except (OSError, ValueError) as error:
            trouble = (
                f"{leader.hub} cannot be reached at {urlsplit(leader.address).netloc}: {str(error) or 'no answer'}"
            )
            if trouble != self.trouble:
                log.warning("the leader cannot be reached", reason=trouble)
            self.trouble = trouble
            return None
        self.trouble = ""
        log.info("this hub follows a leader", leader=leader.hub, term=leader.term)
        return hub

    async def _dial(self, address: str, make: Callable[[], asyncio.Protocol]) -> object:
        host, port, context = _target(address, LINK)
        return await asyncio.get_running_loop().create_connection(make, host, port, ssl=context)

    async def _detach(self) -> None:
        """End the sessions of all clients, and close the doors."""
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.close()
        await self._serving.aclose()

    # Serving.

    async def _serve(self, hub: RemoteHub | None) -> None:
        """Open the doors: all of them with a leader, else only the HTTP port."""
        config, home, closing = self._config, self._home.path, self._serving
        self._hub = hub
        limits = config.limits if hub is None else hub.limits
        unfinished = Unfinished(limits)
        certificate = self._certificate
        servers: dict[str, Server] = {}
        apps: list[HttpApp] = [_Pages(self)]
        if hub is not None:
            assert self._leader is not None, "the hub is the leader"
            host = Host(
                hub=hub,
                home=home,
                home_named=self._home_named,
                operator=ByHomeKey(self._key),
                unfinished=unfinished,
                now_ms=lambda: time.time_ns() // 1_000_000,
                services=None,
                names=config.http.all_names,
                is_loopback=is_loopback(self._address[0]) and not config.http.is_proxied,
                certificate=certificate.context if certificate else None,
                is_insecure=config.http.insecure,
            )
            servers = await self._start_servers(host)
            forwarder = Forwarder(partial(_open_stream, self._leader.address), self._link_key)
            # The leader answers for a protocol whose clients share something.
            shared = {protocol.name for protocol in protocols() if not protocol.in_workers}
            apps += [each.http for name, each in servers.items() if each.http is not None and name not in shared]
            apps += [NativeStream(hub), forwarder]
        apps.append(_Nobody(self))
        http = HttpListener(
            limits,
            apps,
            config.http.all_names,
            unfinished,
            certificate=certificate.context if certificate else None,
            trusted_proxies=config.http.trusted_proxies,
        )
        closing.push_async_callback(http.stop)
        await http.start(*self._address)
        # A port that the system chose stays.
        self._address = (self._address[0], int(http.address.rpartition(":")[2]))
        for server in servers.values():
            server.follow()
        self._announce(http.address, {place: at for each in servers.values() for place, at in each.places().items()})

    async def _start_servers(self, host: Host) -> dict[str, Server]:
        """Start the servers that need only the interface `Hub`."""
        servers: dict[str, Server] = {}
        for protocol in protocols():
            settings = self._config.protocols[protocol.name]
            if (protocol.in_workers or protocol.in_followers) and settings.starts:
                server = servers[protocol.name] = protocol.server(host, settings)
                self._serving.push_async_callback(server.stop)
        for server in servers.values():
            await server.prepare()
        native = await NativeListener.start(host.hub, host.home / HUB_SOCKET, host.unfinished)
        self._serving.callback(native.stop)
        for server in servers.values():
            try:
                await server.start()
            except CannotListen as error:
                raise ConfigError(str(error)) from error
        return servers

    def _announce(self, address: str, served: dict[str, str]) -> None:
        config, certificate = self._config, self._certificate
        places: dict[str, str | None] = {place: None for protocol in protocols() for place in protocol.places}
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"{'https' if certificate else 'http'}://{address}",
            hub_socket=str(self._home.path / HUB_SOCKET),
            store=public_url(config.store.url),
            places={**places, **served},
            url=config.http.base_url,
            fingerprint=certificate.fingerprint if certificate and config.http.tls else "",
            **self.about,
        )
        record(self._home.path, config)
        self._home.announce(self.running)

    @property
    def about(self) -> dict[str, Any]:
        """The role of this hub, for `/healthz` and `run.json`."""
        leader = self._leader
        if leader is None:
            return {"role": "follower"}
        return {"role": "follower", "term": leader.term, "leader": leader.hub}


def _target(address: str, purpose: str) -> tuple[str, int, ssl.SSLContext]:
    """Return host, port and TLS settings for a connection to the leader at `address`."""
    context = client_context(address)
    if context is None or split_pin(address)[1] is None:
        raise ValueError(f"{address} has no fingerprint")
    context.set_alpn_protocols([purpose])
    host, port = parse_address(urlsplit(address).netloc)
    return host, port, context


async def _open_stream(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port, context = _target(address, REQUESTS)
    return await asyncio.open_connection(host, port, ssl=context)


class _Pages:
    """HTTP application with the pages about this follower itself: `/healthz` and `/metrics`."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def serves(self, scope: Scope) -> bool:
        """Return true for these pages."""
        return scope["type"] == "http" and scope["path"] in ("/healthz", "/metrics")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        page = self._health() if Request(scope).url.path == "/healthz" else self._metrics()
        await page(scope, receive, send)

    def close(self) -> None:
        """Do nothing, because no answer of these pages stays open."""

    def _health(self) -> Response:
        about = {"version": __version__, **self._follower.about}
        if not self._follower.trouble:
            return JSONResponse({"status": "ok", **about})
        do = "nothing, if it lasts some seconds; else look at the leader and at the database: tieline cluster status"
        reason = {"what": "the team", "reason": self._follower.trouble, "do": do}
        return JSONResponse({"status": "failing", **about, "reasons": [reason]}, 503)

    def _metrics(self) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Following(self._follower))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Following(Collector):
    """Source of a follower's metrics for Prometheus."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def collect(self) -> Any:
        """Return the metrics."""
        metrics: list[Metric] = list(cluster_metrics(leads=False, term=self._follower.about.get("term", 0)))
        return metrics


class _Nobody:
    """HTTP application that answers all requests while there is no leader."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def serves(self, scope: Scope) -> bool:
        """Return true: without a leader, every request gets the same answer."""
        del scope
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request."""
        trouble = self._follower.trouble or "the leader does not answer"
        await refuse(scope, receive, send, failure(503, f"{trouble}; send again later", close=True))

    def close(self) -> None:
        """Do nothing, because no answer stays open."""
