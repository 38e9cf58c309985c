"""Rooms other than the common room: makes rooms, finds the room of a request, and removes rooms that nobody joined.

Used by: the HTTP port, for which all rooms together are one application, and protocols, which make rooms through
`RoomMaker`. Uses: `room`. A room is opened by its first request and closed when nobody has used it for a while.

Each room has a folder, with a file that holds the hash of the room's token. A folder whose name begins with a dot
belongs to a room that is half made or half removed; the next start removes it. The room id in a request is only looked
up in a table, so no request can name a path.
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from tieline.core.store import StoreError
from tieline.protocols import protocols
from tieline.server.config import Config, ConfigError
from tieline.server.home import Home, HomeBusy
from tieline.server.native_stream import NativeStream
from tieline.server.room import Room
from tieline.server.storage import remove_data
from tieline.wire.folder import own_folder, sync_folder
from tieline.wire.home import write_private
from tieline.wire.http import SESSION_COOKIE, Answer, HttpApp, bearer, clear, failure, header, logins, refuse
from tieline.wire.protocol import Host
from tieline.wire.room import ROOM_FILE, ROOMS_MAX, NewRoom, new_room, room_of

EMPTY_SECONDS = 24 * 3600.0
"""Seconds without use after which a room without members is removed."""

_IDLE_SECONDS = 600.0
"""Seconds without a request after which a room is closed."""
_SWEEP_SECONDS = 60.0  # soon enough for what waits for ten minutes and for a day
_ID = re.compile(r"[0-9a-f]{32}\Z")
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\Z")
_HEALTH = "/healthz"  # about the whole hub, so clients of every room may ask
_UNKNOWN = failure(401, "unknown token")
_NOT_FOUND = failure(404, "not found")
_CLOSED = failure(503, "this room cannot be opened at the moment; try again later")

log = structlog.get_logger(__name__)


class _Record(Struct, frozen=True):
    """Content of the file `room.json` of a room: the hash of the room's token.

    The modification time of the file is the time of the room's last use.
    """

    token: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the token that admits newcomers, in hexadecimal digits."""


class _OpenRoom(Struct, frozen=True, eq=False):
    """An open room, and the HTTP applications that answer its requests."""

    room: Room
    apps: Sequence[HttpApp]

    @property
    def failed(self) -> bool:
        return self.room.local_hub.failure.done()


class _Known:
    """Entry in the table of rooms: a room that exists, open or closed, with its folder and the time of its last use.

    If the room cannot be opened, `trouble` is the reason.
    """

    def __init__(self, path: Path, record: _Record, used_at: float) -> None:
        self.path = path
        self.record = record
        # Seconds since the epoch.
        self.used_at = used_at
        # Requests that are being answered.
        self.users = 0
        # True once the room was seen with a member.
        self.joined = False
        # The reason why the room cannot be opened.
        self.trouble = ""
        self.open: _OpenRoom | None = None
        # Held while the room is opened, closed or removed.
        self.lock = asyncio.Lock()

    def is_used_since(self, used_at: float) -> bool:
        """Return true if the room was used after the time `used_at`, or if it answers a request now."""
        return bool(self.users) or self.used_at != used_at


class Rooms:
    """All rooms other than the common room (the hub itself). A room is a hub behind the same HTTP port.

    As an HTTP application, this class passes each request to its room. It also implements `RoomMaker`: it makes new
    rooms.
    """

    def __init__(self, folder: Path, host: Host, config: Config, site: HttpApp) -> None:
        self._folder = folder
        # The common room, as protocols see it: other rooms have the same port.
        self._host = host
        self._config = config.in_room()
        # The pages of the console are the same in every room.
        self._site = site
        # Applications that answer requests for rooms that do not exist.
        self._strangers: Sequence[HttpApp] = ()
        # Headers by which a request may name its room.
        self._headers = tuple(protocol.room_header for protocol in protocols() if protocol.room_header)
        self._known: dict[str, _Known] = {}
        self._making = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    # Lifecycle.

    async def start(self, strangers: Sequence[HttpApp] = ()) -> None:
        """Read from disk which rooms exist, and remove rooms that an earlier process made or removed only by half.

        `strangers` are applications that answer requests for rooms that do not exist.
        """
        self._strangers = strangers
        if self._folder.exists():
            self._known = await asyncio.to_thread(self._read)
        self._sweeper = asyncio.create_task(self._sweep_often())

    async def stop(self) -> None:
        """Close all rooms."""
        self._ending.set()
        if self._sweeper is not None:
            await self._sweeper
        for known in self._known.values():
            async with known.lock:
                await self._close(known)

    def _read(self) -> dict[str, _Known]:
        own_folder(self._folder)
        found: dict[str, _Known] = {}
        for path in sorted(self._folder.iterdir()):
            if _UNFINISHED.match(path.name):
                shutil.rmtree(path, ignore_errors=True)
                continue
            file = path / ROOM_FILE
            try:
                if not _ID.match(path.name):
                    raise ValueError("its name is no id of a room")
                record = msgspec.json.decode(file.read_bytes(), type=_Record)
                found[path.name] = _Known(path, record, file.stat().st_mtime)
            except (OSError, ValueError) as error:
                log.warning("a folder among the rooms is left alone", folder=str(path), reason=str(error))
        return found

    # The RoomMaker port.

    async def create(self) -> NewRoom | None:
        """Make a room on disk, and return its id and token. Return `None` if there are too many rooms."""
        async with self._making:
            if len(self._known) >= ROOMS_MAX:
                await self._sweep()
            if len(self._known) >= ROOMS_MAX:
                return None
            made = new_room()
            record = _Record(sha256(made.token.encode()).hexdigest())
            path = await asyncio.to_thread(self._make, made.id, record)
            self._known[made.id] = _Known(path, record, self._now())
        return made

    def _make(self, room_id: str, record: _Record) -> Path:
        own_folder(self._folder)
        unfinished, path = self._folder / f".{room_id}", self._folder / room_id
        try:
            unfinished.mkdir(0o700)
            write_private(unfinished / ROOM_FILE, msgspec.json.encode(record))
            sync_folder(unfinished)
            unfinished.rename(path)
            sync_folder(self._folder)
        except OSError:
            # Nobody gets the token of this room, and a full disk must not fill with such folders.
            for folder in (unfinished, path):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return path

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Return true if the request names a room.

        Also return true for a room that does not exist, because the common room must not answer such a request.
        """
        return room_of(scope, self._headers) is not None and scope["path"] != _HEALTH

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the room that the request names. The room answers the request."""
        known = self._known.get(room_of(scope, self._headers) or "")
        if known is None:
            await self._answer_lost(scope, receive, send)
            return
        known.users += 1
        try:
            opened = await self._open(known)
            if isinstance(opened, Answer):
                await refuse(scope, receive, send, opened)
            elif opened is None:
                await self._answer_lost(scope, receive, send)
            else:
                await _answer(opened.apps, _NOT_FOUND, scope, receive, send)
        finally:
            known.users -= 1
            known.used_at = self._now()

    async def _answer_lost(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a room that does not exist.

        A browser may still have the cookie of a room that was removed. The answer contains the console's pages or
        deletes the cookie, so that the user can log in again.
        """
        lost = _UNKNOWN
        if bearer(scope) is None and all(header(scope, name) is None for name in self._headers):
            lost = replace(lost, headers=tuple(clear(scope, name) for name in (SESSION_COOKIE, *logins(scope))))
        await _answer((*self._strangers, self._site), lost, scope, receive, send)

    def close(self) -> None:
        """End all open streams of all rooms, because the hub stops."""
        for known in self._known.values():
            if known.open is not None:
                _close_apps(known.open)

    def _now(self) -> float:
        return self._host.now_ms() / 1000

    # Opening and closing.

    async def _open(self, known: _Known) -> _OpenRoom | Answer | None:
        """Return the room of the table entry `known`, and open the room first if it is closed.

        Return an error answer if the room cannot be opened. Return `None` if the room was removed meanwhile.
        """
        if known.open is not None and not known.open.failed:
            return known.open
        async with known.lock:
            if known.open is not None and known.open.failed:
                await self._close(known)
            # A room whose folder is deleted must not come back with the same token and no members.
            if known.open is None and not (known.path / ROOM_FILE).exists():
                self._known.pop(known.path.name, None)
                return None
            if known.open is None:
                await self._try_to_open(known)
            return known.open or _CLOSED

    async def _try_to_open(self, known: _Known) -> None:
        try:
            known.open = await self._start_room(known)
            known.trouble = ""
        except (OSError, StoreError, ConfigError, HomeBusy) as error:
            # A fault that lasts is one line in the log, however many requests meet it.
            if known.trouble != str(error):
                known.trouble = str(error)
                log.error("a room cannot be opened", room=str(known.path), reason=known.trouble)

    async def _start_room(self, known: _Known) -> _OpenRoom:
        home = Home(known.path)
        try:
            room = await Room.open(home, self._config)
        except BaseException:
            home.release()
            raise
        try:
            await room.services.start()
            host = replace(
                self._host,
                hub=room.local_hub,
                home=home.path,
                operator=room.operator,
                now_ms=room.clock_and_ids.now_ms,
                services=room.services,
                rooms=self,
                room_token_digest=bytes.fromhex(known.record.token),
            )
            served = [server.http for server in room.make_servers(host).values() if server.http is not None]
            own = room.own_apps(host.unfinished)
            return _OpenRoom(room, (*served, *own, self._site, NativeStream(room.local_hub)))
        except BaseException:
            await room.stop()
            home.release()
            raise

    async def _close(self, known: _Known) -> None:
        opened, known.open = known.open, None
        if opened is None:
            return
        _close_apps(opened)
        await opened.room.stop()
        opened.room.home.release()
        with contextlib.suppress(OSError):
            os.utime(known.path / ROOM_FILE, (known.used_at, known.used_at))

    # Upkeep.

    async def _sweep_often(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await self._ending.wait()
                    return
            try:
                await self._sweep()
            except Exception as error:
                log.exception("the upkeep of rooms failed", reason=str(error))

    async def _sweep(self) -> None:
        """Close rooms that nobody has used for a while, and remove old rooms that never had a member."""
        for room_id, known in list(self._known.items()):
            used_at = known.used_at
            unused = self._now() - used_at
            if known.users or unused < _IDLE_SECONDS:
                continue
            async with known.lock:
                if known.is_used_since(used_at):
                    continue
                if self._known.get(room_id) is not known:
                    # Another sweep removed the room while this one waited for the lock.
                    continue
                empty = unused >= EMPTY_SECONDS and await self._is_empty(known)
                if known.is_used_since(used_at):
                    continue
                await self._close(known)
                if empty and not known.is_used_since(used_at):
                    del self._known[room_id]
                    await asyncio.to_thread(_remove, known.path, self._config.store.url)
                    log.info("a room that nobody joined is removed", room=room_id)

    async def _is_empty(self, known: _Known) -> bool:
        """Return true if a room has no members.

        This check opens a closed room. If the room had a member at an earlier check, it is not checked again.
        """
        if known.joined:
            return False
        if known.open is None:
            await self._try_to_open(known)
        # Nobody knows if a room that cannot be opened has members, so the room stays.
        members = await known.open.room.services.operator.members() if known.open is not None else None
        known.joined = members != []
        return not known.joined


async def _answer(apps: Sequence[HttpApp], otherwise: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Let the first application in `apps` that serves the request answer it.

    If none does, send the answer `otherwise`.
    """
    app = next((app for app in apps if app.serves(scope)), None)
    if app is None:
        await refuse(scope, receive, send, otherwise)
    else:
        await app(scope, receive, send)


def _close_apps(opened: _OpenRoom) -> None:
    for app in opened.apps:
        app.close()


def _remove(path: Path, url: str) -> None:
    # The data go first: without its folder, nobody would find them again.
    remove_data(url, path)
    unwanted = path.with_name(f".{path.name}")
    path.rename(unwanted)
    shutil.rmtree(unwanted)
