"""A hub of a team with several hubs: it leads if it has the lease of the database, else it follows.

Used by: `tieline serve`. Uses: the hub as it is without a team, and the follower. When the role changes, all sessions
end. A hub that loses its lease stops everything that it was, and begins anew, so nothing of its old memory stays.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from msgspec.structs import replace

from tieline.core.outage import LeaseHeld, OutOfDate
from tieline.core.store import DiskError, StoreError
from tieline.server.cluster.follower import Follower
from tieline.server.config import BackupSection, ConfigError, load_config
from tieline.server.home import Home
from tieline.server.hub import Options, RunningHub, effective_config, http_address
from tieline.services.assembly import Services
from tieline.wire.home import CONFIG_FILE, Running
from tieline.wire.protocol import Server

LEASE_SECONDS = 2.0
"""Time after the last renewal at which the lease ends, as the store sets it."""
CUT_OFF_SECONDS = 5.0
"""Time without a renewal of the lease after which a leader gives up. Another hub can lead after two seconds, if it
reaches the database. A database that restarts is often back within five, and then nothing has to change."""
_LOOK_SECONDS = 0.25
_STOP_SECONDS = 10.0
"""Longest time to stop the old role. A thread may hang in a call to a database that does not answer."""
_START_SECONDS = 300.0
"""Longest time to start a role. To restore a very large team from the database takes a minute."""
_AGAIN_SECONDS = 1.0
"""Pause after a role that could not be started."""

log = structlog.get_logger(__name__)

Prepare = Callable[[], Awaitable[None]]


def make_hub(options: Options, prepare: Prepare | None = None) -> "RunningHub | TeamMember":
    """Return the hub for these options: one of several if an address for the others is set, else one alone."""
    address = options.flags.get("cluster", {}).get("address", "")
    if not address and (options.home / CONFIG_FILE).exists():
        with contextlib.suppress(ConfigError, OSError):
            address = load_config(options.home).cluster.address
    return TeamMember(options, prepare) if address else RunningHub(options, prepare)


class TeamMember:
    """A hub that leads or follows. It has the interface of `RunningHub` for `tieline serve`."""

    def __init__(self, options: Options, prepare: Prepare | None = None) -> None:
        self._options = options
        self._prepare = prepare
        self._role: RunningHub | Follower | None = None
        self._home: Home | None = None
        self._changing: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.running: Running | None = None
        self.backup = BackupSection()

    # For `tieline serve`.

    @property
    def _leader(self) -> RunningHub | None:
        return self._role if isinstance(self._role, RunningHub) else None

    @property
    def servers(self) -> Mapping[str, Server]:
        """Servers of the active protocols, by name, if this hub leads."""
        return {} if self._leader is None else self._leader.servers

    @property
    def first_start(self) -> bool:
        """True if the home is new, and this hub leads."""
        return self._leader is not None and self._leader.first_start

    @property
    def owner(self) -> str:
        """The name that is reserved for the person who runs the hub, if this hub leads."""
        return "" if self._leader is None else self._leader.owner

    @property
    def services(self) -> Services | None:
        """Services beside messages, if this hub leads."""
        return None if self._leader is None else self._leader.services

    async def start(self) -> Running:
        """Lead, or follow the hub that leads. Return the addresses."""
        running = await self._take_role()
        self._changing = asyncio.create_task(self._change_roles())
        return running

    async def wait(self, asked: asyncio.Event) -> int:
        """Wait until the event `asked` is set, or until this hub cannot go on. Return the exit code of the process."""
        stopping = asyncio.create_task(asked.wait())
        await asyncio.wait((stopping, self._failed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return 1 if self._failed.done() else 0

    async def stop(self) -> None:
        """Stop the hub, in whichever role it is."""
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.gather(self._changing, return_exceptions=True)
        await self._leave_role()

    # Roles.

    async def _take_role(self, *, may_lead: bool = True) -> Running:
        """Become the leader if nobody leads, else a follower."""
        leader = RunningHub(self._options, self._prepare)
        try:
            if not may_lead:
                raise LeaseHeld("another hub shall lead")
            running = await leader.start()
        except (LeaseHeld, DiskError) as error:
            if isinstance(error, DiskError) and self.running is None:
                # The first start says it to the person who starts the hub.
                raise
            running = await self._follow()
        else:
            self._role = leader
            log.info("this hub leads its team", term=running.term)
        self.running = running
        # A port that the system chose stays, whatever the role.
        self._options = replace(self._options, http=_listens_at(self._options, running))
        return running

    async def _follow(self) -> Running:
        home = Home(self._options.home)
        try:
            config = effective_config(self._options, home)
            follower = Follower(home, config, http_address(config), home_named=self._options.home_named)
            self._home, self._role = home, follower
            return await follower.start()
        except BaseException:
            await self._leave_role()
            raise

    async def _leave_role(self) -> None:
        role, self._role = self._role, None
        if role is not None:
            await role.stop()
        home, self._home = self._home, None
        if home is not None:
            home.release()

    async def _change_roles(self) -> None:
        """Change the role whenever it is over."""
        while True:
            may_lead = True
            if isinstance(self._role, Follower):
                await asyncio.wait((self._role.over,))
                if (error := self._role.over.exception()) is not None:
                    log.warning("this hub cannot follow; it begins again", reason=str(error))
                    await asyncio.sleep(_AGAIN_SECONDS)
            elif self._role is not None:
                may_lead = await self._lead(self._role)
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._leave_role()
            except TimeoutError:
                self._fail(StoreError("the database does not answer, and a call to it does not end"))
                return
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self._take_role(may_lead=may_lead)
            except TimeoutError as error:
                self._fail(error)
                return
            except (StoreError, OSError) as error:
                log.warning("this hub can neither lead nor follow; it tries again", reason=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, this process cannot go on
                self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        log.error("this hub stops because it can neither lead nor follow", reason=str(error))
        self._failed.set_result(error)

    async def _lead(self, leader: RunningHub) -> bool:
        """Wait until this hub leads no more: another hub has taken over or shall, or the lease could not be renewed.

        Return false if another hub shall lead now.
        """
        assert leader.local_hub is not None, "it runs"
        lease: Any = leader.local_hub.lease
        while not leader.local_hub.failure.done():
            is_late = lease.age_seconds > LEASE_SECONDS
            leader.local_hub.health.lease = "the lease has ended, and could not be renewed" if is_late else ""
            if lease.preferred not in ("", leader.cluster_address):
                log.info("this hub hands over to another one, because a person wants it", to=lease.preferred)
                return False
            if lease.age_seconds > CUT_OFF_SECONDS:
                lease.lose(OutOfDate(f"the lease could not be renewed for {CUT_OFF_SECONDS:.0f} seconds"))
                break
            await asyncio.wait((leader.local_hub.failure,), timeout=_LOOK_SECONDS)
        return True


def _listens_at(options: Options, running: Running) -> str:
    """Return the address of the HTTP port for the next role."""
    port = running.http.rpartition(":")[2]
    named = options.http or ""
    if not named:
        return named
    return f"{named.rpartition(':')[0]}:{port}"
