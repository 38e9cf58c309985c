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

import msgspec
import structlog
from msgspec import Struct

from tieline import __version__
from tieline.console.login import LoginApp
from tieline.console.site import Site
from tieline.protocols import protocols
from tieline.server.config import Config, ConfigError, StoreSection, load_config
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.local_hub import LocalHub
from tieline.server.notifier import Notifier
from tieline.server.room import Room, store_folder
from tieline.server.rooms import Rooms
from tieline.services.assembly import Services
from tieline.wire.address import CannotListen, is_loopback, parse_address
from tieline.wire.home import HUB_SOCKET, Running
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

log = structlog.get_logger(__name__)


class Options(Struct, frozen=True):
    """Options of `tieline serve`: home folder, HTTP address, store, settings of protocols.

    `None` means that the configuration file decides.
    """

    home: Path
    http: str | None = None
    store: str | None = None
    home_named: bool = True
    flags: Mapping[str, Mapping[str, Any]] = {}
    """Settings of protocols that the command line changes, as protocol name → field name → value."""


def raise_file_limit() -> None:
    """Raise this process's limit of open files as far as the system allows. Thousands of sockets need as many files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


class RunningHub:
    """A hub in this process with all its parts: store, protocols, HTTP port and rooms, from `start` to `stop`."""

    def __init__(self, options: Options) -> None:
        self._options = options
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

    async def start(self) -> Running:
        """Start all parts of the hub, and return their addresses. If one part fails, stop the started parts again."""
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
        if options.store:
            config = msgspec.structs.replace(config, store=StoreSection(options.store))
        try:
            address = parse_address(options.http or config.http.listen)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self.owner = config.console.owner
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
            names=config.http.names,
            is_loopback=is_loopback(address[0]),
        )
        site = Site()
        rooms = self.rooms = Rooms(room.folder / ROOMS_FOLDER, host, config, site)
        self._closing.push_async_callback(rooms.stop)
        await self._start_servers(room, msgspec.structs.replace(host, rooms=rooms))
        await room.services.start()
        await rooms.start([server.no_room for server in self.servers.values() if server.no_room is not None])
        apps = [rooms, *self._http_apps(), *room.own_apps(unfinished), site]
        http = HttpListener(room.local_hub, apps, config.http.names, unfinished, room.operator)
        self._closing.push_async_callback(http.stop)
        await http.start(*address)
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"http://{http.address}",
            hub_socket=str(home.path / HUB_SOCKET),
            store=config.store.url,
            places=self._places(),
        )
        for server in self.servers.values():
            server.follow()
        home.announce(self.running)
        return self.running

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
