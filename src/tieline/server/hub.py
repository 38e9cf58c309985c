"""The hub as a process: everything assembled, started in order and stopped in reverse."""

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import structlog
from msgspec import Struct

from tieline import __version__
from tieline.console.entrance import Entrance
from tieline.console.insights import Insights
from tieline.console.site import Site
from tieline.contract.member import ByHomeKey
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.inquiry import SearchIndex
from tieline.core.store import ActivityStore, DamagedError, Store, StoreError
from tieline.protocols.ac7.blobs import Blobs
from tieline.protocols.ac7.files import Files
from tieline.protocols.ac7.passes import UnreadableLogins
from tieline.protocols.ac7.server import Ac7, Keeping
from tieline.protocols.agent_channels.server import ChannelsServer
from tieline.protocols.agent_relay.server import RelayServer
from tieline.protocols.backchannel.adoption import Adoption
from tieline.protocols.backchannel.identity import HOME_VARIABLE as SPOOL_VARIABLE
from tieline.protocols.backchannel.identity import default_root
from tieline.protocols.backchannel.relay import Relay
from tieline.protocols.peerbus.server import DEFAULT_PORT, PeerbusServer
from tieline.server.api import Api
from tieline.server.clock import Clock
from tieline.server.config import (
    Ac7Section,
    AgentRelay,
    Backchannel,
    Config,
    ConfigError,
    load_config,
    parse_address,
)
from tieline.server.exchange import Exchange
from tieline.server.home import Home
from tieline.server.http import HttpListener
from tieline.server.log_api import LogApi
from tieline.server.nature import RealNature
from tieline.server.notifier import Notifier
from tieline.stores.memory import MemoryActivity, MemorySearch, MemoryStore
from tieline.stores.sqlite import SqliteActivity, SqliteFiles, SqliteSearch, SqliteStore
from tieline.stores.sqlite.database import MENDING, check_main
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.home import HUB_SOCKET, KEY_FILE, Running
from tieline.wire.http import HttpApp
from tieline.wire.native.unix import NativeListener
from tieline.wire.unfinished import Unfinished

CHANNELS_FOLDER = Path("channels", "main")
RELAY_SOCKET = "agent-relay.sock"
PEERBUS_SOCKET = "peerbus.sock"
SPOOL_FOLDER = "spool-home"
FILES_FOLDER = "files"
FORGOTTEN_FOLDER = "forgotten"

_COLLECT_AFTER = 10_000
"""Objects made and not freed before the garbage collector looks at them: more than a batch leaves behind."""
_YOUNG_PASSES = 2
"""Such looks before it takes one at what they left: some 30,000 objects then, for which it holds everybody up 20 ms."""

log = structlog.get_logger(__name__)


class Options(Struct, frozen=True):
    """What the command line says; `None` leaves it to the configuration."""

    home: Path
    http: str | None = None
    channels_dir: Path | None = None
    store: str | None = None
    agent_channels: bool | None = None
    relay_socket: Path | None = None
    agent_relay: bool | None = None
    backchannel: bool | None = None
    peerbus: bool | None = None
    peerbus_listen: str | None = None
    spool: Path | None = None
    adopt: bool | None = None
    home_named: bool = True
    ac7: bool | None = None


def open_store(url: str, home: Path) -> Store:
    """The store that a URL names."""
    if url.startswith("sqlite"):
        check_main(home)
        if (home / KEY_FILE).exists() and not (home / MAIN_FILE).exists():
            # It may have run with the store that forgets, so this is no reason to refuse.
            do = f"if it should have some, stop it, and put {MAIN_FILE} back from a backup"
            said = f"a hub ran here before and left no messages, so this one begins empty; {do}"
            log.warning(said, home=str(home))
    match url:
        case "sqlite":
            return SqliteStore(home)
        case "sqlite:unsafe":
            # Every write but no sync: what durability costs is measured against it.
            return SqliteStore(home, synchronous="OFF")
        case "memory":
            return MemoryStore()
        case _:
            raise ConfigError(f"unknown store {url!r}: use 'sqlite' or 'memory'")


def open_activity(url: str, home: Path) -> ActivityStore:
    """The store of the activity log that belongs to a store's URL."""
    if url == "memory":
        return MemoryActivity()
    return SqliteActivity(home, synchronous="OFF" if url == "sqlite:unsafe" else "FULL")


def open_files(url: str, home: Path, now_ms: Callable[[], int]) -> Files:
    """The files of members; beside a store that forgets they are in a folder that is thrown away."""
    folder = home
    if url == "memory":
        folder = home / FORGOTTEN_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    catalogue = SqliteFiles(folder, synchronous="FULL" if url == "sqlite" else "OFF")
    return Files(catalogue, Blobs(folder / FILES_FOLDER), now_ms)


def open_index(store: Store, home: Path) -> SearchIndex:
    """The search index over a store."""
    return MemorySearch(store) if isinstance(store, MemoryStore) else SqliteSearch(home)


def open_broker(home: Home, config: Config, store_url: str | None = None, nature: RealNature | None = None) -> Broker:
    """A broker over the store of a home that this process holds."""
    nature = nature or RealNature(Clock(config.limits))
    store = open_store(store_url or config.store.url, home.path)
    signs = bool(config.peerbus.hmac_secret)
    notifies = bool(config.notify.command)
    key = token_digest(home.key())
    kept = config.console.owner
    try:
        return Broker(store, nature, config.limits, home_key=key, signs=signs, notifies=notifies, kept_name=kept)
    except Exception as error:
        store.close()
        explained = store.explain(error)
        if isinstance(explained, StoreError):
            raise explained from error
        # Whatever it is that no rule expects, it is in what was stored.
        raise DamagedError(f"{home.path / MAIN_FILE} is damaged: {error}", MENDING[MAIN_FILE]) from error


def raise_file_limit() -> None:
    """Thousands of sockets need as many open files: ask for all that we may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def spare_collector() -> None:
    """Ask the garbage collector for little, once everything is loaded and started.

    Messages form no cycles and are gone when nobody holds them. What cycles there are come from sessions and requests,
    which are few beside them; so it need not look at every batch, nor ever at what was there from the start.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, _YOUNG_PASSES)
    gc.enable()


def suspend_collector() -> None:
    """Ask the garbage collector for nothing while a hub starts: with thousands of members it is a third of the work.

    All that a start makes stays; `spare_collector` ends this.
    """
    gc.disable()


def stop_signals() -> asyncio.Event:
    """Set by SIGTERM and SIGINT. Ask for it before the hub starts, so that no signal is missed."""
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
        self.nature: RealNature | None = None
        self.exchange: Exchange | None = None
        # What connections may hold of messages that are not whole yet.
        self.unfinished: Unfinished | None = None
        self.channels: ChannelsServer | None = None
        self.native: NativeListener | None = None
        self.entrance: Entrance | None = None
        # The name that is kept for the person who runs the hub; empty for none.
        self.owner = ""
        # What backchannel's clients register with; empty if they need nothing, none if it is not spoken.
        self.room_token: str | None = None

    async def start(self) -> Running:
        """Start everything; when one part fails, what was started is stopped again."""
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
        config = load_config(home.path)
        self.owner = config.console.owner
        store_url = options.store or config.store.url
        nature = self.nature = RealNature(Clock(config.limits))
        broker = open_broker(home, config, store_url, nature)
        self._closing.callback(broker.store.close)
        notifier = Notifier(config.notify.command) if config.notify.command else None
        if notifier is not None:
            self._closing.push_async_callback(notifier.stop)
        activity = open_activity(store_url, home.path)
        index = open_index(broker.store, home.path)
        exchange = self.exchange = Exchange(broker, activity, notifier.notify if notifier else None, index)
        newest, _ = broker.store.read_log(broker.ledger.end - 1, 1) if broker.ledger.end else ((), 0)
        for row in newest:
            nature.clock.compare_with_log(row.at_ms)
        exchange.health.watch(nature.clock)
        exchange.start()
        self._closing.push_async_callback(exchange.stop)
        unfinished = self.unfinished = Unfinished(exchange.limits)
        # Before anybody else can act as a local agent.
        spool = await self._adopt_spool(exchange, home, config.backchannel)
        native = self.native = await NativeListener.start(exchange, home.path / HUB_SOCKET, unfinished)
        self._closing.callback(native.stop)
        channels_dir = options.channels_dir or home.path / CHANNELS_FOLDER
        enabled = config.agent_channels.enabled if options.agent_channels is None else options.agent_channels
        if enabled:
            self.channels = ChannelsServer(
                exchange, channels_dir, inboxes=config.agent_channels.inboxes, unfinished=unfinished
            )
            self._closing.push_async_callback(self.channels.stop)
            await self.channels.start()
        relay = await self._start_relay(exchange, home.path, config.agent_relay)
        peerbus = await self._start_peerbus(exchange, home.path, config)
        apps = self._http_apps(exchange, home, config.backchannel)
        if config.ac7.enabled if options.ac7 is None else options.ac7:
            apps.append(await self._start_ac7(exchange, home, config.ac7, store_url))
        self.entrance = Entrance(exchange, ByHomeKey(home.key()), nature.now_ms, __version__)
        apps += [Api(exchange), self.entrance, Insights(exchange, home.path), Site()]
        if store_url != "memory":
            apps.append(LogApi(exchange, home.path))
        http = HttpListener(exchange, [*apps, peerbus.http] if peerbus else apps, config.http.names, unfinished)
        self._closing.push_async_callback(http.stop)
        await http.start(*parse_address(options.http or config.http.listen))
        self.running = Running(
            pid=os.getpid(),
            version=__version__,
            http=f"http://{http.address}",
            hub_socket=str(home.path / HUB_SOCKET),
            relay_socket=str(relay.path) if relay else None,
            channels_dir=str(channels_dir) if enabled else None,
            spool=str(spool.root) if spool else None,
            store=store_url,
            peerbus=f"ws://{peerbus.address}" if peerbus and peerbus.address else None,
            peerbus_socket=str(home.path / PEERBUS_SOCKET) if peerbus else None,
        )
        if spool is not None:
            # Not before: all mailboxes are looked into, which the start of thousands of sockets would have to share.
            spool.follow()
        home.announce(self.running)
        return self.running

    async def _adopt_spool(self, exchange: Exchange, home: Home, config: Backchannel) -> Adoption | None:
        """Adopt the spool that is named; or the one that is found, unless that cannot be."""
        named = self._options.spool or config.spool_path
        enabled = config.enabled if self._options.backchannel is None else self._options.backchannel
        adopt = self._options.adopt
        if not (enabled and config.adopt if adopt is None else adopt) and self._options.spool is None:
            return None
        adoption = Adoption(exchange, ByHomeKey(home.key()), named or self._find_spool(home.path))
        self._closing.push_async_callback(adoption.stop)
        try:
            await adoption.start()
        except OSError as error:
            if named is not None:
                raise
            log.warning("the spool is not adopted", spool=str(adoption.root), reason=str(error))
            return None
        return adoption

    def _find_spool(self, home: Path) -> Path:
        if os.environ.get(SPOOL_VARIABLE) or not self._options.home_named:
            return default_root()
        return home / SPOOL_FOLDER

    async def _start_relay(self, exchange: Exchange, home: Path, config: AgentRelay) -> RelayServer | None:
        enabled = config.enabled if self._options.agent_relay is None else self._options.agent_relay
        if not enabled:
            return None
        relay = RelayServer(
            exchange,
            self._options.relay_socket or home / RELAY_SOCKET,
            heartbeat_ms=config.heartbeat_ms,
            frame_bytes_max=config.frame_bytes_max,
            require_resume_token=config.require_resume_token,
            unfinished=self.unfinished,
        )
        self._closing.push_async_callback(relay.stop)
        await relay.start()
        return relay

    async def _start_peerbus(self, exchange: Exchange, home: Path, config: Config) -> PeerbusServer | None:
        enabled = config.peerbus.enabled if self._options.peerbus is None else self._options.peerbus
        if not enabled:
            return None
        peerbus = PeerbusServer(
            exchange, tokens=config.peerbus.tokens, secret=config.peerbus.hmac_secret, unfinished=self.unfinished
        )
        self._closing.push_async_callback(peerbus.stop)
        await peerbus.listen_unix(home / PEERBUS_SOCKET)
        address = self._options.peerbus_listen or config.peerbus.listen
        if address:
            try:
                await peerbus.listen(*parse_address(address, DEFAULT_PORT), names=config.http.names)
            except OSError as error:
                raise ConfigError(f"cannot listen on {address} for peerbus: {error.strerror or error}") from error
        return peerbus

    def _http_apps(self, exchange: Exchange, home: Home, config: Backchannel) -> list[HttpApp]:
        """The protocols that have routes on the HTTP port."""
        enabled = config.enabled if self._options.backchannel is None else self._options.backchannel
        if not enabled:
            return []
        self.room_token = config.room_token
        return [Relay(exchange, ByHomeKey(home.key()), config.room_token, unfinished=self.unfinished)]

    async def _start_ac7(self, exchange: Exchange, home: Home, config: Ac7Section, store_url: str) -> Ac7:
        nature = self.nature
        assert nature is not None, "made before"
        self._closing.callback(shutil.rmtree, home.path / FORGOTTEN_FOLDER, ignore_errors=True)
        files = open_files(store_url, home.path, nature.now_ms)
        keeping = Keeping(ByHomeKey(home.key()), files, None if store_url == "memory" else home.path)
        try:
            ac7 = Ac7(
                exchange, keeping=keeping, now_ms=nature.now_ms, announce=config.announce, unfinished=self.unfinished
            )
        except UnreadableLogins as error:
            raise ConfigError(str(error)) from error
        self._closing.push_async_callback(ac7.stop)
        await ac7.start()
        return ac7

    async def stop(self) -> None:
        """Stop everything in reverse order."""
        await self._closing.aclose()

    async def wait(self, asked: asyncio.Event) -> int:
        """Run until somebody asks to stop or the store is lost; returns the exit code."""
        assert self.exchange is not None, "started before"
        stopping = asyncio.create_task(asked.wait())
        await asyncio.wait((stopping, self.exchange.failure), return_when=asyncio.FIRST_COMPLETED)
        failed = self.exchange.failure.done()
        if failed:
            log.error("the hub stops because its store is lost", error=str(self.exchange.failure.result()))
        stopping.cancel()
        return 1 if failed else 0
