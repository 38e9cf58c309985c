"""One room: a broker (decision logic) with its store, the services, and the HTTP applications that clients reach.

Used by: the hub's process, which makes the common room, and `rooms`, which makes the others. Uses: the core with its
stores, and the protocols. A room knows no other room. All files of a room are in one folder, and nothing in a room can
be reached from another room.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import structlog

from tieline import __version__
from tieline.console.app import ConsoleApp
from tieline.console.insights import Insights
from tieline.console.login import LoginApp
from tieline.console.spend import Spend
from tieline.contract.file import FileCatalogue
from tieline.contract.member import ByHomeKey
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.search_query import SearchIndex
from tieline.core.store import ActivityStore, DamagedError, Store, StoreError
from tieline.protocols import protocols
from tieline.server.api import Api
from tieline.server.clock import Clock
from tieline.server.clock_and_ids import TOKEN_PREFIX, SystemClockAndIds
from tieline.server.config import Config, ConfigError
from tieline.server.home import Home
from tieline.server.local_hub import LocalHub
from tieline.server.log_api import LogApi
from tieline.server.notifier import Notifier
from tieline.server.storage import (
    MEMORY,
    DatabaseStorage,
    in_database,
    public_url,
    storage_of,
    store_folder,
    synchronous,
)
from tieline.services.assembly import Services
from tieline.services.files.blobs import BlobStore
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.database import MENDING, check_main
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.home import KEY_FILE
from tieline.wire.http import HttpApp
from tieline.wire.insights import StoredReport
from tieline.wire.protocol import Host, Server
from tieline.wire.room import ROOM_FILE, token_prefix
from tieline.wire.unfinished import Unfinished

_NAMES_SHOWN = 5
"""Most names in one line of the log. The line also has the number of all names."""

log = structlog.get_logger(__name__)


def open_store(url: str, folder: Path, address: str = "") -> Store:
    """Open and return the store `url`: `sqlite`, `memory`, or a URL that begins with `postgresql://`.

    `sqlite:unsafe` is SQLite without sync to disk, for benchmarks. Raises `ConfigError` for any other name. `folder`
    has the files of the store. `address` is where the other hubs of a team reach this one.
    """
    if in_database(url):
        return DatabaseStorage(url, folder).open_store(address)
    if url not in ("sqlite", "sqlite:unsafe", MEMORY):
        raise ConfigError(f"unknown store {url!r}: use 'sqlite', 'memory', or a URL that begins with postgresql://")
    if url != MEMORY:
        check_main(folder)
        if (folder / KEY_FILE).exists() and not (folder / MAIN_FILE).exists():
            # The hub may have run with the store `memory`, so this is no reason to refuse.
            do = f"if it should have some, stop it, and put {MAIN_FILE} back from a backup"
            said = f"a hub ran here before and left no messages, so this one begins empty; {do}"
            log.warning(said, home=str(folder))
    # `sqlite:unsafe` does every write but no sync: benchmarks measure the cost of durability against it.
    return SqliteStore(folder, synchronous=synchronous(url))


def make_clock_and_ids(home: Home, config: Config) -> SystemClockAndIds:
    """Return the clock and the source of ids and tokens for the hub in the folder `home`.

    In the home of a room, tokens begin with a prefix that contains the room's id. The hub finds the room of a request
    by this prefix.
    """
    is_room = (home.path / ROOM_FILE).exists()
    return SystemClockAndIds(Clock(config.limits), token_prefix(home.path.name) if is_room else TOKEN_PREFIX)


def open_broker(
    home: Home, config: Config, clock_and_ids: SystemClockAndIds | None = None, address: str = ""
) -> Broker:
    """Open the store in the folder `home`, and return the hub's decision logic (broker) for this store.

    This process must have locked the home. `address` is where the other hubs of a team reach this one.
    """
    clock_and_ids = clock_and_ids or make_clock_and_ids(home, config)
    folder = store_folder(config.store.url, home.path)
    store = open_store(config.store.url, folder, address)
    signs = any(settings.signs for settings in config.protocols.values())
    notifies = bool(config.notify.command)
    key = token_digest(home.key())
    shared = frozenset(token_digest(token) for each in config.protocols.values() for token in each.shared_tokens)
    try:
        return Broker(
            store,
            clock_and_ids,
            config.limits,
            home_key=key,
            signs=signs,
            notifies=notifies,
            kept_name=config.console.owner,
            shared_tokens=shared,
            room_token=_room_token(home.path, config),
        )
    except Exception as error:
        store.close()
        explained = store.explain(error)
        if isinstance(explained, StoreError):
            raise explained from error
        # No rule expects this error, so its cause is in the stored data.
        if in_database(config.store.url):
            raise DamagedError(f"{public_url(config.store.url)} is damaged: {error}") from error
        raise DamagedError(f"{folder / MAIN_FILE} is damaged: {error}", MENDING[MAIN_FILE]) from error


def _room_token(home: Path, config: Config) -> bytes | None:
    """Return the hash of the token with which anybody can become a member; `None` if there is no such token."""
    file = home / ROOM_FILE
    if file.exists():
        return bytes.fromhex(msgspec.json.decode(file.read_bytes())["token"])
    tokens = [token for settings in config.protocols.values() if (token := settings.newcomer_token)]
    return token_digest(tokens[0]) if tokens else None


def _warn_of_orphans(broker: Broker) -> None:
    """Log a warning about member names that nobody can use, because their shared token is no longer configured."""
    names = broker.shared_tokens.orphans()
    if names:
        said = "names belong to a shared token that is configured no more"
        hint = "a single configured token takes over the unprotected ones; an operator decides about the others"
        log.warning(said, count=len(names), some=names[:_NAMES_SHOWN], hint=hint)


class Room:
    """A running room (a hub with its own members): its store, services and login routes. `open` makes a `Room`."""

    def __init__(self, home: Home, config: Config, broker: Broker, clock_and_ids: SystemClockAndIds) -> None:
        self.home = home
        self.config = config
        self.clock_and_ids = clock_and_ids
        self.folder = store_folder(config.store.url, home.path)
        self._storage = storage_of(config.store.url, home.path, broker.store)
        self.operator = ByHomeKey(home.key())
        # The pipeline's last report.
        self.report = StoredReport(self.folder)
        self._broker = broker
        self._closing = contextlib.AsyncExitStack()
        self._closing.callback(broker.store.close)
        # Set by `_start`.
        self.local_hub: LocalHub
        self.services: Services
        self.login_app: LoginApp

    @classmethod
    async def open(cls, home: Home, config: Config, notifier: Notifier | None = None, address: str = "") -> "Room":
        """Open the store of the room in `home`, start the room's hub and services, and return the room.

        `address` is where the other hubs of a team reach this one.
        """
        clock_and_ids = make_clock_and_ids(home, config)
        # On a thread, because a large store takes seconds to read, and other rooms are served meanwhile.
        broker = await asyncio.to_thread(open_broker, home, config, clock_and_ids, address)
        _warn_of_orphans(broker)
        room = cls(home, config, broker, clock_and_ids)
        try:
            await room._start(notifier)
        except BaseException:
            await room.stop()
            raise
        return room

    async def _start(self, notifier: Notifier | None) -> None:
        broker = self._broker
        newest, _ = broker.store.read_log(broker.ledger.end - 1, 1) if broker.ledger.end else ((), 0)
        for row in newest:
            self.clock_and_ids.clock.compare_with_log(row.at_ms)
        activity, index, catalogue, blobs = await asyncio.to_thread(self._open_databases)
        local_hub = self.local_hub = LocalHub(broker, activity, notifier.notify if notifier else None, index)
        local_hub.health.watch(self.clock_and_ids.clock)
        local_hub.start()
        self._closing.push_async_callback(local_hub.stop)
        try:
            logins = self._storage.logins()
            services = self.services = Services(
                local_hub, self.operator, catalogue, blobs, logins, self.clock_and_ids.now_ms
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._closing.push_async_callback(services.stop)
        self.login_app = LoginApp(local_hub, services.logins, __version__)

    @property
    def store(self) -> Store:
        """The main store of the room."""
        return self._broker.store

    def _open_databases(self) -> tuple[ActivityStore, SearchIndex, FileCatalogue, BlobStore]:
        storage = self._storage
        return storage.open_activity(), storage.open_index(), storage.open_catalogue(), storage.open_blobs()

    def make_servers(self, host: Host) -> dict[str, Server]:
        """Return new servers for the protocols that the configuration turns on, as protocol name → server."""
        made = {}
        for protocol in protocols():
            settings = self.config.protocols.get(protocol.name)
            if settings is None or not settings.starts:
                continue
            try:
                made[protocol.name] = protocol.server(host, settings)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        return made

    def own_apps(self, unfinished: Unfinished) -> list[HttpApp]:
        """Return new HTTP applications that belong to no protocol: API, logins, console, insights and logs."""
        hub = self.local_hub
        api, logs = Api(hub, unfinished), LogApi(hub, self._storage.open_pages, unfinished)
        insights = Insights(hub, self.report, unfinished)
        spend = Spend(hub, self.folder, unfinished)
        tables = (*self.login_app.table, *api.table, *logs.table, *insights.table, *spend.table)
        return [api, self.login_app, ConsoleApp(hub, self.services, unfinished, tables), insights, spend, logs]

    async def stop(self) -> None:
        """Finish the running work of the room, and close the store."""
        await self._closing.aclose()
