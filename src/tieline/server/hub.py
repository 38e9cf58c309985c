"""The hub as a process: assembles all parts, starts them in order and stops them in reverse order."""

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from tieline import __version__
from tieline.console.login import LoginApp
from tieline.console.site import Site
from tieline.protocols import protocols
from tieline.server.certificate import Certificate, own_certificate
from tieline.server.config import BackupSection, Config, ConfigError, Http, StoreSection, load_config
from tieline.server.config_origin import record
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.local_hub import LocalHub
from tieline.server.notifier import Notifier
from tieline.server.pipeline_process import ReportTime, make_pipeline
from tieline.server.room import Room
from tieline.server.rooms import Rooms
from tieline.server.storage import in_database, public_url, store_folder
from tieline.services.assembly import Services
from tieline.wire.address import CannotListen, is_loopback, parse_address, reachable, refuse_plain, with_pin
from tieline.wire.home import HUB_SOCKET, KEY_FILE, Running
from tieline.wire.http import HttpApp
from tieline.wire.native.unix import NativeListener
from tieline.wire.protocol import Host, Server
from tieline.wire.room import ROOMS_FOLDER
from tieline.wire.unfinished import Unfinished

_COLLECT_AFTER = 10_000
"""Number of new objects after which the garbage collector scans them. One batch of commands creates fewer lasting
objects."""
_YOUNG_PASSES = 2
"""Number of scans of new objects before the garbage collector also scans the objects that survived these scans. Such a
larger scan covers about 30,000 objects and stops the hub for 20 ms."""

_MACOS_FILES_MAX = 10_240
"""Number of open files that macOS allows a process that asks for as many as possible (`OPEN_MAX`)."""

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
    """Settings that the command line changes, as protocol name (or `http`) → field name → value."""
    backup: Mapping[str, Any] = {}
    """Settings of regular backups that the command line changes, as field name → value."""


def raise_file_limit() -> None:
    """Raise this process's limit of open files as far as the system allows. Thousands of sockets need as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and accepts only this number.
    for files in (hard, _MACOS_FILES_MAX):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
            return


def spare_collector() -> None:
    """Make the garbage collector run rarely. Call this when everything is loaded and started.

    Messages form no reference cycles, so they are freed when nobody refers to them. Only sessions and requests form
    cycles, and there are few of them. So the garbage collector need not scan after every batch, and it never scans the
    objects that the start created.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, _YOUNG_PASSES)
    gc.enable()


def suspend_collector() -> None:
    """Turn the garbage collector off while a hub starts.

    With thousands of members, garbage collection would take a third of the start time. All objects that the start makes
    stay in use. `spare_collector` turns the garbage collector on again.
    """
    gc.disable()


def stop_signals() -> asyncio.Event:
    """Return an event that is set when the process gets SIGTERM or SIGINT.

    Call this before the hub starts, so that no signal is missed.
    """
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked


def _certificate(home: Path, http: Http, host: str) -> Certificate | None:
    """Return the certificate of the hub's ports; `None` if they do not speak TLS. `host` is the address of the hub."""
    if http.tls:
        return own_certificate(home, (host, *http.all_names))
    if http.tls_cert:
        return Certificate(Path(http.tls_cert).expanduser(), Path(http.tls_key).expanduser())
    return None


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
        self.native: NativeListener | None = None
        # Services beside messages, for example files and logins.
        self.services: Services | None = None
        self.login_app: LoginApp | None = None
        # Rooms other than the common room.
        self.rooms: Rooms | None = None
        # The name that is reserved for the person who runs the hub; empty for none.
        self.owner = ""
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
        try:
            address = parse_address(config.http.listen)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if not (config.http.is_secure or config.http.insecure):
            refusal = refuse_plain(address[0], "the HTTP port")
            if refusal:
                raise ConfigError(refusal)
        self.owner = config.console.owner
        certificate = _certificate(home.path, config.http, reachable(address[0]))
        if self._prepare is not None:
            await self._prepare()
        room = await self._open_common_room(home, config)
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
        rooms = self.rooms = Rooms(room.folder / ROOMS_FOLDER, host, config, site)
        self._closing.push_async_callback(rooms.stop)
        await self._start_servers(room, msgspec.structs.replace(host, rooms=rooms))
        await room.services.start()
        await rooms.start([server.no_room for server in self.servers.values() if server.no_room is not None])
        apps = [rooms, *self._http_apps(), *room.own_apps(unfinished), site]
        more = [ReportTime(room.report), *([pipeline] if pipeline else [])]
        http = HttpListener(
            room.local_hub,
            apps,
            config.http.all_names,
            unfinished,
            room.operator,
            more,
            certificate=host.certificate,
            trusted_proxies=config.http.trusted_proxies,
        )
        self._closing.push_async_callback(http.stop)
        await http.start(*address)
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"{'https' if certificate else 'http'}://{http.address}",
            hub_socket=str(home.path / HUB_SOCKET),
            store=public_url(config.store.url),
            pipeline=config.pipeline.every,
            places=self._places(),
            url=_public(config.http, certificate, http.address),
            fingerprint=certificate.fingerprint if certificate and config.http.tls else "",
        )
        for server in self.servers.values():
            server.follow()
        record(home.path, config)
        home.announce(self.running)
        if pipeline is not None:
            self._closing.push_async_callback(pipeline.stop)
            pipeline.start()
        return self.running

    def _configuration(self, home: Home) -> Config:
        """Return the configuration of the home, with the settings that the command line changes."""
        options = self._options
        config = load_config(home.path).overridden(options.flags)
        self.backup = msgspec.structs.replace(config.backup, **options.backup)
        self.backup.check()
        config = msgspec.structs.replace(config, backup=self.backup)
        if options.store:
            config = msgspec.structs.replace(config, store=StoreSection(options.store))
        if options.http:
            config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=options.http))
        if options.pipeline is not None:
            section = msgspec.structs.replace(config.pipeline, every=options.pipeline)
            config = msgspec.structs.replace(config, pipeline=section)
        if self.backup.every_seconds and in_database(config.store.url):
            hint = "use its own tools, such as pg_dump, and leave --backup and [backup] out"
            raise ConfigError(f"the hub makes no backups of a PostgreSQL database: {hint}")
        return config

    async def _open_common_room(self, home: Home, config: Config) -> Room:
        folder = store_folder(config.store.url, home.path)
        if folder != home.path:
            shutil.rmtree(folder, ignore_errors=True)
            self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
        notifier = Notifier(config.notify.command) if config.notify.command else None
        if notifier is not None:
            self._closing.push_async_callback(notifier.stop)
        room = await Room.open(home, config, notifier=notifier)
        self._closing.push_async_callback(room.stop)
        self.local_hub, self.services, self.login_app = room.local_hub, room.services, room.login_app
        return room

    async def _start_servers(self, room: Room, host: Host) -> None:
        self.servers = room.make_servers(host)
        for server in self.servers.values():
            self._closing.push_async_callback(server.stop)
        for server in self.servers.values():
            await server.prepare()
        native = self.native = await NativeListener.start(host.hub, host.home / HUB_SOCKET, host.unfinished)
        self._closing.callback(native.stop)
        for server in self.servers.values():
            try:
                await server.start()
            except CannotListen as error:
                raise ConfigError(str(error)) from error

    def _http_apps(self) -> list[HttpApp]:
        """Return the HTTP applications of all protocols that have routes on the HTTP port."""
        return [server.http for server in self.servers.values() if server.http is not None]

    def _places(self) -> dict[str, str | None]:
        """Return the addresses of the protocols for `run.json`, by name; `None` for an address that is not in use."""
        places: dict[str, str | None] = {place: None for protocol in protocols() for place in protocol.places}
        for server in self.servers.values():
            places.update(server.places())
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
