"""The hub's server for backchannel: it runs the HTTP API (relay), and adopts a spool.

Used by: the hub's server, which runs protocols. Uses: `relay` and `adoption`.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from tieline.protocols.backchannel.adoption import Adoption
from tieline.protocols.backchannel.identity import HOME_VARIABLE, default_root
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.protocols.backchannel.relay import Relay
from tieline.protocols.backchannel.rooms import NoRoom, RoomCreation
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.wire.protocol import Host, Server

SPOOL_FOLDER = "spool-home"

log = structlog.get_logger(__name__)


def find_spool(home: Path, *, home_named: bool) -> Path:
    """Return the folder of the spool that a hub adopts if its configuration names none.

    It is the folder in the variable `BACKCHANNEL_HOME`. If the variable is not set, it is a folder in the hub's home if
    the user named the home (`home_named`), else `~/.backchannel`.
    """
    return default_root() if os.environ.get(HOME_VARIABLE) or not home_named else home / SPOOL_FOLDER


class BackchannelServer(Server):
    """Runs backchannel in a hub: its HTTP API (relay), and the adopted spool if there is one."""

    def __init__(self, host: Host, settings: BackchannelSettings) -> None:
        # The room token; `None` if the relay is off.
        self._room_token = settings.room_token if settings.enabled else None
        ids = MessageIds()
        if settings.enabled:
            self.http = Relay(
                host.hub,
                host.operator,
                is_open=host.room_token_digest is None and not settings.room_token,
                hub_makes_tokens=host.room_token_digest is not None,
                ids=ids,
                rooms=RoomCreation(host.rooms, settings, is_loopback=host.is_loopback),
                unfinished=host.unfinished,
            )
            self.no_room = NoRoom(self.http)
        # True if the settings name the spool. Then the hub does not start if it cannot adopt the spool.
        self._named = settings.spool_path is not None
        root = settings.spool_path or find_spool(host.home, home_named=host.home_named)
        # Only the common room has a spool.
        adopts = settings.adopt and host.room_token_digest is None
        self._adoption = Adoption(host.hub, host.operator, root, ids) if adopts else None

    async def prepare(self) -> None:
        """Connect the hub to the spool (folder of messages).

        The hub calls this before its sockets open, so that no client can use the name of an agent of the spool.
        """
        if self._adoption is None:
            return
        try:
            await self._adoption.start()
        except OSError as error:
            if self._named:
                raise
            log.warning("the spool is not adopted", spool=str(self._adoption.root), reason=str(error))
            await self._adoption.stop()
            self._adoption = None

    def places(self) -> Mapping[str, str]:
        """Return the folder of the adopted spool, for `run.json`; an empty mapping if no spool is adopted."""
        return {"spool": str(self._adoption.root)} if self._adoption is not None else {}

    def follow(self) -> None:
        """Start to check all mailboxes of the spool.

        The hub calls this after its sockets are open, so that it starts faster.
        """
        if self._adoption is not None:
            self._adoption.follow()

    def welcome(self, http: str, *, first: bool) -> Iterator[str]:
        """Yield a warning for the person who starts the hub, if registration needs no token."""
        del http, first
        if self._room_token == "":
            yield "Anybody who reaches that HTTP address can register with it: it has no room token."

    async def stop(self) -> None:
        """Release the spool (folder of messages), so that another hub can use it."""
        if self._adoption is not None:
            await self._adoption.stop()
