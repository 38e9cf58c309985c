"""A group: a folder of channels, and the `group.json` that lists the channels that are ready.

Used by: agents that start a conversation, and the hub's server. Uses: `channel`. A group does not know the purpose of a
channel. The socket of a channel is `<folder>/<name>.sock`.

Readers can trust `group.json`. It is replaced atomically, and only after every channel in it listens. A channel is
removed from `group.json` before it stops. The time to write the file grows with the number of channels, so `change`
writes it once for many channels. Opening a socket is slow, so a group that opens many sockets yields to other tasks.
"""

import asyncio
import builtins
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tieline.protocols.agent_channels.channel import Channel

GROUP_FILE = "group.json"

_SLICE_SECONDS = 0.005
"""Longest time in which a group opens sockets before it lets the event loop run other tasks."""

# Description of a channel in a group: its name, or a mapping with the name under "name".
Description = str | Mapping[str, str]


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _plain_channel(name: str, path: Path) -> Channel:
    del name
    return Channel(path)


class ChannelGroup:
    """Group of channels in one folder. The channels start and stop together."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        channels: Iterable[Description] = (),
        *,
        channel_factory: Callable[[str, Path], Channel] = _plain_channel,
        now: Callable[[], datetime] = _utc_now,
        pid: int | None = None,
    ) -> None:
        """Set the parameters of the group. `start` opens it.

        `channel_factory` makes a channel from its name and socket path. It lets the owner of the group choose the
        socket's permissions and handle the messages. `group.json` shows the values of `now` and `pid`.
        """
        self.path = Path(path)
        self._channel_factory = channel_factory
        self._now = now
        self._pid = os.getpid() if pid is None else pid
        # Names of the channels for the next start, in order. Kept across `stop`.
        self._names: dict[str, None] = {}
        for description in channels:
            self._names[self._new_name(description)] = None
        # The running channels by name; empty unless started.
        self._channels: dict[str, Channel] = {}
        self._started = False
        # Allows one change at a time, so that `group.json` never shows a state that another change has undone.
        self._changing = asyncio.Lock()

    @property
    def started(self) -> bool:
        """True if the group is started, so that its channels accept clients."""
        return self._started

    def list(self) -> builtins.list[str]:
        """Return the names of the running channels, in the order they were added."""
        return [*self._channels]

    def __contains__(self, name: object) -> bool:
        return name in self._channels

    def channel(self, name: str) -> Channel:
        """Return the running channel with this name. Raises `ChannelNotFound`, a `KeyError`, if there is none."""
        try:
            return self._channels[name]
        except KeyError:
            raise ChannelNotFound(name) from None

    async def start(self) -> None:
        """Create the folder, start all channels, then write `group.json`.

        If a step fails, all channels are stopped again.
        """
        async with self._changing:
            if self._started:
                raise RuntimeError("ChannelGroup already started")
            self.path.mkdir(parents=True, exist_ok=True)
            opened, failed = await self._open(self._names)
            try:
                for error in failed.values():
                    raise error
                self._channels = opened
                # spec, Channel Groups: group.json is written after all channels listen.
                self._write()
            except BaseException:
                self._channels = {}
                await _stop_all(opened.values())
                raise
            self._started = True

    async def stop(self, *, remove_dir: bool = False) -> None:
        """Remove `group.json` and stop every channel. With `remove_dir`, also remove the folder if it is empty."""
        async with self._changing:
            if not self._started:
                return
            self._started = False
            channels, self._channels = self._channels, {}
            (self.path / GROUP_FILE).unlink(missing_ok=True)
            await _stop_all(channels.values())
            # spec, ChannelGroup: removeDir removes the directory, too.
            if remove_dir:
                self._remove_folder()

    async def add_channel(self, description: Description) -> Channel:
        """Start another channel, then add it to `group.json`. Returns the channel."""
        for error in (await self.change(add=[description])).values():
            raise error
        return self.channel(_name(description))

    async def remove_channel(self, name: str) -> None:
        """Remove a channel from `group.json`, then stop it."""
        await self.change(remove=[name])

    async def change(self, add: Iterable[Description] = (), remove: Iterable[str] = ()) -> dict[str, OSError]:
        """Start the channels in `add`, write `group.json` once, then stop the channels in `remove`.

        Returns the errors of channels that could not be started, by name.
        """
        async with self._changing:
            self._check_started()
            names = [self._new_name(description) for description in add]
            leaving = {name: self.channel(name) for name in remove}
            opened, failed = await self._open(names)
            if not opened and not leaving:
                return failed
            before = self._channels
            self._channels = {name: channel for name, channel in before.items() if name not in leaving} | opened
            try:
                self._write()
            except BaseException:
                # `group.json` does not list the new channels, so nobody can find them: stop them.
                self._channels = before
                await _stop_all(opened.values())
                raise
            self._names = dict.fromkeys((*(name for name in self._names if name not in leaving), *opened))
            await _stop_all(leaving.values())
            return failed

    async def _open(self, names: Iterable[str]) -> tuple[dict[str, Channel], dict[str, OSError]]:
        """Start the channels with these names.

        Returns two dictionaries by name: the channels that were started, and the errors of channels that could not be
        started.
        """
        opened: dict[str, Channel] = {}
        failed: dict[str, OSError] = {}
        rested = time.monotonic()
        try:
            for name in names:
                channel = self._make(name)
                try:
                    await channel.start()
                except OSError as error:
                    failed[name] = error
                else:
                    opened[name] = channel
                if time.monotonic() - rested > _SLICE_SECONDS:
                    await asyncio.sleep(0)
                    rested = time.monotonic()
        except BaseException:
            await _stop_all(opened.values())
            raise
        return opened, failed

    def _make(self, name: str) -> Channel:
        return self._channel_factory(name, self.path / f"{name}.sock")

    def _check_started(self) -> None:
        if not self._started:
            raise RuntimeError("ChannelGroup not started — call start() first")

    def _new_name(self, description: Description) -> str:
        name = _name(description)
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(
                f"Channel name {name!r} cannot be a file name: it must not be empty, '.', '..' or hold '/'"
            )
        if name in self._names:
            raise ValueError(f'Channel "{name}" already exists in group')
        return name

    def _write(self) -> None:
        created = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        value = {"created": created, "pid": self._pid, "channels": [{"name": name} for name in self._channels]}
        text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
        # Write a temporary file and rename it, so that no reader sees half of the file.
        temporary = self.path / f".{GROUP_FILE}"
        # Remove a file left by a dead process, or a link that somebody put there, instead of writing to it.
        temporary.unlink(missing_ok=True)
        temporary.write_bytes(text)
        temporary.replace(self.path / GROUP_FILE)

    def _remove_folder(self) -> None:
        try:
            self.path.rmdir()
        except OSError:
            # The folder holds files of others. They are not ours to remove, so the folder stays.
            if not self.path.is_dir():
                raise


class ChannelNotFound(KeyError):
    """Raised if no running channel of the group has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f'Channel "{self.name}" not found in group'


def _name(description: Description) -> str:
    return description if isinstance(description, str) else description["name"]


async def _stop_all(channels: Iterable[Channel]) -> None:
    await asyncio.gather(*(channel.stop() for channel in channels))
