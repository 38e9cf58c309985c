"""The hub as a process: assembles all parts, starts them in order and stops them in reverse order."""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from tieline import __version__
from tieline.console.login import LoginApp
from tieline.console.site import Site
from tieline.protocols import protocols
from tieline.server.certificate import Certificate, certificate_of
from tieline.server.cluster.team_door import TeamDoor
from tieline.server.config import BackupSection, Config, ConfigError, Http, StoreSection, load_config
from tieline.server.config_origin import record
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.local_hub import LocalHub
from tieline.server.native_stream import NativeStream
from tieline.server.notifier import Notifier
from tieline.server.pages import Pages
from tieline.server.pipeline_process import ReportTime, make_pipeline
from tieline.server.room import Room
from tieline.server.rooms import Rooms
from tieline.server.runtime import raise_file_limit
from tieline.server.storage import in_database, public_url, store_folder
from tieline.server.workers.control import Begin
from tieline.server.workers.forwarding import ForwardServer
from tieline.server.workers.pool import WorkerPool
from tieline.services.assembly import Services
from tieline.wire.address import CannotListen, is_loopback, parse_address, reachable, refuse_plain, with_pin
from tieline.wire.home import HUB_SOCKET, KEY_FILE, LINK_SOCKET, REQUESTS_SOCKET, Running
from tieline.wire.http import HttpApp
from tieline.wire.hub_link.server import LinkServer
from tieline.wire.native.unix import NativeListener
from tieline.wire.protocol import Host, Server
from tieline.wire.room import ROOMS_FOLDER
from tieline.wire.unfinished import Unfinished

log = structlog.get_logger(__name__)


class Options(Struct, frozen=True):
    """Options of `tieline serve`: home folder, HTTP address, store, interval of the pipeline, settings of protocols.

    `None` means that the configuration file decides.
    """

    home: Path
    http: str | None = None
    store: str | None = None
    home_named: bool = True
    pipeline: str | None = None
    flags: Mapping[str, Mapping[str, Any]] = {}
    """Settings that the command line changes, as protocol name (or `http`, `workers`) → field name → value."""
    backup: Mapping[str, Any] = {}
    """Settings of regular backups that the command line changes, as field name → value."""


def _public(http: Http, certificate: Certificate | None, address: str) -> str:
    """Return the address of the hub for others, if it is not the one at which the hub listens; else an empty text.

    It is the base URL or, without one, an address with the name in the owner's certificate, because clients accept this
    certificate only for its own name.
    """
    host = certificate.host if certificate and http.tls_cert and not http.base_url else ""
    if host:
        return f"https://{host}:{address.rpartition(':')[2]}"
    is_shown = certificate is not None and http.tls and http.base_url and not http.trusted_proxies
    return with_pin(http.base_url, certificate.fingerprint if certificate and is_shown else None)


def effective_config(options: Options, home: Home) -> Config:
    """Return the configuration of a home, with the settings that the command line changes."""
    config = load_config(home.path).overridden(options.flags)
    backup = msgspec.structs.replace(config.backup, **options.backup)
    backup.check()
    config = msgspec.structs.replace(config, backup=backup)
    if options.store:
        config = msgspec.structs.replace(config, store=StoreSection(options.store))
    if options.http:
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=options.http))
    if options.pipeline is not None:
        section = msgspec.structs.replace(config.pipeline, every=options.pipeline)
        config = msgspec.structs.replace(config, pipeline=section)
    if backup.every_seconds and in_database(config.store.url):
        hint = "use its own tools, such as pg_dump, and leave --backup and [backup] out"
        raise ConfigError(f"the hub makes no backups of a PostgreSQL database: {hint}")
    config.cluster.check(config.store.url)
    return config


def http_address(config: Config) -> tuple[str, int]:
    """Return the host and the port of the HTTP port. Raise `ConfigError` if the hub may not listen there."""
    try:
        address = parse_address(config.http.listen)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not (config.http.is_secure or config.http.insecure):
        refusal = refuse_plain(address[0], "the HTTP port")
        if refusal:
            raise ConfigError(refusal)
    return address


class RunningHub:
    """A hub in this process with all its parts: store, protocols, HTTP port and rooms, from `start` to `stop`."""

    def __init__(self, options: Options, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        self._options = options
        # Called when the home is locked and the configuration is checked, before a database is opened.
        self._prepare = prepare
        self._closing = contextlib.AsyncExitStack()
        self.first_start = False
        self.running: Running | None = None
        self.local_hub: LocalHub | None = None
        # Limit for the unfinished messages of all connections.
        self.unfinished: Unfinished | None = None
        # Servers of the active protocols, by name.
        self.servers: dict[str, Server] = {}
        # Addresses of the protocols that workers serve, by name.
        self._worker_places: Mapping[str, str] = {}
        # Services beside messages, for example files and logins.
        self.services: Services | None = None
        self.login_app: LoginApp | None = None
        # Rooms other than the common room.
        self.rooms: Rooms | None = None
        # The name that is reserved for the person who runs the hub; empty for none.
        self.owner = ""
        # The address at which the other hubs of a team reach this one; empty if there are none.
        self.cluster_address = ""
        # Settings of regular backups.
        self.backup = BackupSection()

    async def start(self) -> Running:
        """Start all parts of the hub, and return their addresses. If one part fails, stop the started parts again."""
        try:
            return await self._start()
        except BaseException:
            if self.first_start:
                # Nobody has used the key. Without it the next start is the first one again, and says how to begin.
                (self._options.home / KEY_FILE).unlink(missing_ok=True)
            await self.stop()
            raise

    async def _start(self) -> Running:
        options = self._options
        raise_file_limit()
        home = Home(options.home)
        self._closing.callback(home.release)
        self.first_start = not (home.path / KEY_FILE).exists()
        config = self._configuration(home)
        pipeline = make_pipeline(home.path, config)
        address = http_address(config)
        self.owner, self.cluster_address = config.console.owner, config.cluster.address
        certificate = certificate_of(home.path, config.http, reachable(address[0]))
        if self._prepare is not None:
            await self._prepare()
        team = TeamDoor(home, config.cluster) if config.cluster.is_on else None
        room = await self._open_common_room(home, config, team.address if team is not None else "")
        unfinished = self.unfinished = Unfinished(room.local_hub.limits)
        host = Host(
            hub=room.local_hub,
            home=home.path,
            home_named=options.home_named,
            operator=room.operator,
            unfinished=unfinished,
            now_ms=room.clock_and_ids.now_ms,
            services=room.services,
            names=config.http.all_names,
            is_loopback=is_loopback(address[0]) and not config.http.is_proxied,
            certificate=certificate.context if certificate else None,
            is_insecure=config.http.insecure,
        )
        site = Site()
        if team is None:
            # The folders of other rooms are in one home, and a team with several hubs has several homes.
            rooms = self.rooms = Rooms(room.folder / ROOMS_FOLDER, host, config, site)
            self._closing.push_async_callback(rooms.stop)
        await self._start_servers(room, msgspec.structs.replace(host, rooms=self.rooms), config.workers.count)
        await room.services.start()
        if self.rooms is not None:
            strangers = [server.no_room for server in self.servers.values() if server.no_room is not None]
            await self.rooms.start(strangers)
        pool = await self._make_workers(room.local_hub, home, config)
        leading = None if team is None else await team.lead(room)
        more = [ReportTime(room.report), *(each for each in (pipeline, pool, leading) if each is not None)]
        apps = [
            *([] if self.rooms is None else [self.rooms]),
            *self._http_apps(),
            *room.own_apps(unfinished),
            site,
            NativeStream(room.local_hub),
            Pages(room.local_hub, room.operator, more, {} if leading is None else leading.about),
        ]
        if pool is not None:
            place = await self._start_workers(pool, apps)
        else:
            place = await self._listen(host, apps, config)
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"{'https' if certificate else 'http'}://{place}",
            hub_socket=str(home.path / HUB_SOCKET),
            store=public_url(config.store.url),
            pipeline=config.pipeline.every,
            places=self._places(),
            url=_public(config.http, certificate, place),
            fingerprint=certificate.fingerprint if certificate and config.http.tls else "",
            **({} if leading is None else leading.about),
        )
        if team is not None:
            self._closing.push_async_callback(team.close)
            team.open(room.local_hub, apps)
        for server in self.servers.values():
            server.follow()
        record(home.path, config)
        home.announce(self.running)
        if pipeline is not None:
            self._closing.push_async_callback(pipeline.stop)
            pipeline.start()
        return self.running

    def _configuration(self, home: Home) -> Config:
        config = effective_config(self._options, home)
        self.backup = config.backup
        return config

    async def _open_common_room(self, home: Home, config: Config, address: str) -> Room:
        folder = store_folder(config.store.url, home.path)
        if folder != home.path:
            shutil.rmtree(folder, ignore_errors=True)
            self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
        notifier = Notifier(config.notify.command) if config.notify.command else None
        if notifier is not None:
            self._closing.push_async_callback(notifier.stop)
        room = await Room.open(home, config, notifier=notifier, address=address)
        self._closing.push_async_callback(room.stop)
        self.local_hub, self.services, self.login_app = room.local_hub, room.services, room.login_app
        return room

    async def _start_servers(self, room: Room, host: Host, workers: int) -> None:
        self.servers = room.make_servers(host)
        for server in self.servers.values():
            self._closing.push_async_callback(server.stop)
        for server in self.servers.values():
            await server.prepare()
        if not workers:
            native = await NativeListener.start(host.hub, host.home / HUB_SOCKET, host.unfinished)
            self._closing.callback(native.stop)
        elsewhere = {protocol.name for protocol in protocols() if protocol.in_workers} if workers else ()
        for name, server in self.servers.items():
            if name in elsewhere:
                continue
            try:
                await server.start()
            except CannotListen as error:
                raise ConfigError(str(error)) from error

    async def _listen(self, host: Host, apps: Sequence[HttpApp], config: Config) -> str:
        """Open the HTTP port in this process, and return its address."""
        http = HttpListener(
            host.hub.limits,
            apps,
            config.http.all_names,
            host.unfinished,
            certificate=host.certificate,
            trusted_proxies=config.http.trusted_proxies,
        )
        self._closing.push_async_callback(http.stop)
        await http.start(*parse_address(config.http.listen))
        return http.address

    async def _make_workers(self, hub: LocalHub, home: Home, config: Config) -> WorkerPool | None:
        """Return the workers, which are not started yet, and let them reach the hub; `None` if there are none."""
        count = config.workers.count
        if not count:
            return None
        key = secrets.token_urlsafe(32)
        links = LinkServer(hub, key)
        self._closing.push_async_callback(links.close)
        await links.listen(home.path / LINK_SOCKET)
        encoded = config.encode()

        def begin(number: int) -> Begin:
            return Begin(
                number=number,
                workers=count,
                home=str(home.path),
                home_named=self._options.home_named,
                config=msgspec.Raw(encoded),
                link=str(home.path / LINK_SOCKET),
                requests=str(home.path / REQUESTS_SOCKET),
                key=key,
            )

        return WorkerPool(count, key, begin, links)

    async def _start_workers(self, pool: WorkerPool, apps: Sequence[HttpApp]) -> str:
        """Start the workers, which open the HTTP port and serve it. Return its address."""
        forwards = ForwardServer(apps, pool.key)
        self._closing.push_async_callback(forwards.stop)
        await forwards.listen(self._options.home / REQUESTS_SOCKET)
        self._closing.push_async_callback(pool.stop)
        ready = await pool.start()
        # Streams end before the workers that carry them.
        self._closing.callback(forwards.close_apps)
        self._worker_places = ready.places
        return ready.http

    def _http_apps(self) -> list[HttpApp]:
        """Return the HTTP applications of all protocols that have routes on the HTTP port."""
        return [server.http for server in self.servers.values() if server.http is not None]

    def _places(self) -> dict[str, str | None]:
        """Return the addresses of the protocols for `run.json`, by name; `None` for an address that is not in use."""
        places: dict[str, str | None] = {place: None for protocol in protocols() for place in protocol.places}
        for server in self.servers.values():
            places.update(server.places())
        places.update(self._worker_places)
        return places

    async def stop(self) -> None:
        """Stop all parts of the hub, in the reverse order of their start."""
        await self._closing.aclose()

    async def wait(self, asked: asyncio.Event) -> int:
        """Wait until the event `asked` is set, or until the hub has lost its store.

        Return the exit code of the process. The event `asked` is set when a user or the system wants the hub to stop.
        """
        assert self.local_hub is not None, "started before"
        stopping = asyncio.create_task(asked.wait())
        await asyncio.wait((stopping, self.local_hub.failure), return_when=asyncio.FIRST_COMPLETED)
        failed = self.local_hub.failure.done()
        if failed:
            log.error("the hub stops because its store is lost", error=str(self.local_hub.failure.result()))
        stopping.cancel()
        return 1 if failed else 0
