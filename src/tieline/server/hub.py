"""The hub as a process: assembles all parts, starts them in order and stops them in reverse order."""

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from tieline import __version__
from tieline.console.app import ConsoleApp
from tieline.console.entrance import Entrance
from tieline.console.insights import Insights
from tieline.console.site import Site
from tieline.contract.member import ByHomeKey
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.store import DamagedError, Store, StoreError
from tieline.protocols import protocols
from tieline.server.api import Api
from tieline.server.clock import Clock
from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.server.config import Config, ConfigError, load_config
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.local_hub import LocalHub
from tieline.server.log_api import LogApi
from tieline.server.notifier import Notifier
from tieline.services.assembly import Services
from tieline.stores.sqlite import SqliteActivity, SqliteFiles, SqliteSearch, SqliteStore
from tieline.stores.sqlite.database import MENDING, check_main
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.address import CannotListen, parse_address
from tieline.wire.home import HUB_SOCKET, KEY_FILE, Running
from tieline.wire.http import HttpApp
from tieline.wire.native.unix import NativeListener
from tieline.wire.protocol import Host, Server
from tieline.wire.unfinished import Unfinished

MEMORY = "memory"
"""The store that keeps nothing: SQLite without sync, in a folder of the home that is removed at the end."""
_FORGOTTEN_FOLDER = "forgotten"

_COLLECT_AFTER = 10_000
"""New objects before the garbage collector scans them: more than a batch leaves behind."""
_YOUNG_PASSES = 2
"""Scans of new objects before a scan of the survivors: some 30,000 objects then, for which all wait 20 ms."""

log = structlog.get_logger(__name__)


class Options(Struct, frozen=True):
    """Options of the command line; `None` leaves a value to the configuration."""

    home: Path
    http: str | None = None
    store: str | None = None
    home_named: bool = True
    flags: Mapping[str, Mapping[str, Any]] = {}
    """Settings of protocols, by protocol and field."""


def store_folder(url: str, home: Path) -> Path:
    """The folder of a store's files."""
    return home / _FORGOTTEN_FOLDER if url == MEMORY else home


def _synchronous(url: str) -> str:
    return "FULL" if url == "sqlite" else "OFF"


def open_store(url: str, folder: Path) -> Store:
    """Open the store that a URL names."""
    if url not in ("sqlite", "sqlite:unsafe", MEMORY):
        raise ConfigError(f"unknown store {url!r}: use 'sqlite' or 'memory'")
    if url != MEMORY:
        check_main(folder)
        if (folder / KEY_FILE).exists() and not (folder / MAIN_FILE).exists():
            # The hub may have run with the store `memory`, so this is no reason to refuse.
            do = f"if it should have some, stop it, and put {MAIN_FILE} back from a backup"
            said = f"a hub ran here before and left no messages, so this one begins empty; {do}"
            log.warning(said, home=str(folder))
    # `sqlite:unsafe` does every write but no sync: benchmarks measure the cost of durability against it.
    return SqliteStore(folder, synchronous=_synchronous(url))


def open_broker(
    home: Home, config: Config, store_url: str | None = None, clock_and_ids: SystemClockAndIds | None = None
) -> Broker:
    """Open a broker over the store of a home that this process holds."""
    clock_and_ids = clock_and_ids or SystemClockAndIds(Clock(config.limits))
    url = store_url or config.store.url
    folder = store_folder(url, home.path)
    store = open_store(url, folder)
    signs = any(settings.signs for settings in config.protocols.values())
    notifies = bool(config.notify.command)
    key = token_digest(home.key())
    kept = config.console.owner
    try:
        return Broker(store, clock_and_ids, config.limits, home_key=key, signs=signs, notifies=notifies, kept_name=kept)
    except Exception as error:
        store.close()
        explained = store.explain(error)
        if isinstance(explained, StoreError):
            raise explained from error
        # No rule expects this error, so its cause is in the stored data.
        raise DamagedError(f"{folder / MAIN_FILE} is damaged: {error}", MENDING[MAIN_FILE]) from error


def raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed, because thousands of sockets need as many files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def spare_collector() -> None:
    """Make the garbage collector run rarely, once everything is loaded and started.

    Messages form no cycles and are freed when nobody refers to them. Only sessions and requests form cycles, and they
    are few. So the garbage collector need not scan every batch, and never the objects that the start created.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, _YOUNG_PASSES)
    gc.enable()


def suspend_collector() -> None:
    """Stop the garbage collector while a hub starts: with thousands of members it is a third of the work.

    All objects that a start makes stay. `spare_collector` turns the garbage collector on again.
    """
    gc.disable()


def stop_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. Call this before the hub starts, so that no signal is missed."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked


class RunningHub:
    """A hub with all its listeners open."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._closing = contextlib.AsyncExitStack()
        self.first_start = False
        self.running: Running | None = None
        self.clock_and_ids: SystemClockAndIds | None = None
        self.local_hub: LocalHub | None = None
        # Budget of all connections for unfinished messages.
        self.unfinished: Unfinished | None = None
        # Servers of the active protocols, by name.
        self.servers: dict[str, Server] = {}
        self.native: NativeListener | None = None
        # Services beside messages, for example files and logins.
        self.services: Services | None = None
        self.entrance: Entrance | None = None
        # The name that is reserved for the person who runs the hub; empty for none.
        self.owner = ""

    async def start(self) -> Running:
        """Start everything. If one part fails, stop the started parts again."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> Running:
        options = self._options
        raise_file_limit()
        home = Home(options.home)
        self._closing.callback(home.release)
        self.first_start = not (home.path / "key").exists()
        config = load_config(home.path).overridden(options.flags)
        self.owner = config.console.owner
        store_url = options.store or config.store.url
        clock_and_ids = self.clock_and_ids = SystemClockAndIds(Clock(config.limits))
        folder = store_folder(store_url, home.path)
        if folder != home.path:
            shutil.rmtree(folder, ignore_errors=True)
            self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
        broker = open_broker(home, config, store_url, clock_and_ids)
        self._closing.callback(broker.store.close)
        notifier = Notifier(config.notify.command) if config.notify.command else None
        if notifier is not None:
            self._closing.push_async_callback(notifier.stop)
        activity = SqliteActivity(folder, synchronous=_synchronous(store_url))
        index = SqliteSearch(folder)
        local_hub = self.local_hub = LocalHub(broker, activity, notifier.notify if notifier else None, index)
        newest, _ = broker.store.read_log(broker.ledger.end - 1, 1) if broker.ledger.end else ((), 0)
        for row in newest:
            clock_and_ids.clock.compare_with_log(row.at_ms)
        local_hub.health.watch(clock_and_ids.clock)
        local_hub.start()
        self._closing.push_async_callback(local_hub.stop)
        unfinished = self.unfinished = Unfinished(local_hub.limits)
        services = self.services = self._make_services(home, store_url)
        self._closing.push_async_callback(services.stop)
        self._make_servers(self._host(home, config), config)
        for server in self.servers.values():
            await server.prepare()
        native = self.native = await NativeListener.start(local_hub, home.path / HUB_SOCKET, unfinished)
        self._closing.callback(native.stop)
        for server in self.servers.values():
            try:
                await server.start()
            except CannotListen as error:
                raise ConfigError(str(error)) from error
        await services.start()
        self.entrance = Entrance(local_hub, services.logins, __version__)
        apps = self._http_apps()
        api, logs = Api(local_hub, unfinished), LogApi(local_hub, folder, unfinished)
        insights = Insights(local_hub, home.path, unfinished)
        own = (*self.entrance.table, *api.table, *logs.table, *insights.table)
        apps += [api, self.entrance, ConsoleApp(local_hub, services, unfinished, own)]
        apps += [insights, Site(), logs]
        http = HttpListener(local_hub, apps, config.http.names, unfinished)
        self._closing.push_async_callback(http.stop)
        try:
            address = parse_address(options.http or config.http.listen)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        await http.start(*address)
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"http://{http.address}",
            hub_socket=str(home.path / HUB_SOCKET),
            store=store_url,
            places=self._places(),
        )
        for server in self.servers.values():
            server.follow()
        home.announce(self.running)
        return self.running

    def _make_services(self, home: Home, store_url: str) -> Services:
        """The services, with their files beside those of the store."""
        assert self.local_hub is not None, "made before"
        assert self.clock_and_ids is not None, "made before"
        folder = store_folder(store_url, home.path)
        catalogue = SqliteFiles(folder, synchronous=_synchronous(store_url))
        try:
            return Services(self.local_hub, ByHomeKey(home.key()), catalogue, self.clock_and_ids.now_ms, folder)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def _host(self, home: Home, config: Config) -> Host:
        """The hub as protocols see it."""
        assert self.local_hub is not None, "made before"
        assert self.clock_and_ids is not None, "made before"
        assert self.unfinished is not None, "made before"
        assert self.services is not None, "made before"
        return Host(
            hub=self.local_hub,
            home=home.path,
            home_named=self._options.home_named,
            operator=ByHomeKey(home.key()),
            unfinished=self.unfinished,
            now_ms=self.clock_and_ids.now_ms,
            services=self.services,
            names=config.http.names,
        )

    def _make_servers(self, host: Host, config: Config) -> None:
        for protocol in protocols():
            settings = config.protocols[protocol.name]
            if not settings.starts:
                continue
            try:
                server = self.servers[protocol.name] = protocol.server(host, settings)
            except ValueError as error:
                raise ConfigError(str(error)) from error
            self._closing.push_async_callback(server.stop)

    def _http_apps(self) -> list[HttpApp]:
        """HTTP applications of the protocols that have routes on the HTTP port."""
        return [server.http for server in self.servers.values() if server.http is not None]

    def _places(self) -> dict[str, str | None]:
        """Entries of the protocols for `run.json`; `None` for a place that is not in use."""
        places: dict[str, str | None] = {place: None for protocol in protocols() for place in protocol.places}
        for server in self.servers.values():
            places.update(server.places())
        return places

    async def stop(self) -> None:
        """Stop everything in reverse order."""
        await self._closing.aclose()

    async def wait(self, asked: asyncio.Event) -> int:
        """Run until somebody asks to stop or the store is lost; returns the exit code."""
        assert self.local_hub is not None, "started before"
        stopping = asyncio.create_task(asked.wait())
        await asyncio.wait((stopping, self.local_hub.failure), return_when=asyncio.FIRST_COMPLETED)
        failed = self.local_hub.failure.done()
        if failed:
            log.error("the hub stops because its store is lost", error=str(self.local_hub.failure.result()))
        stopping.cancel()
        return 1 if failed else 0
