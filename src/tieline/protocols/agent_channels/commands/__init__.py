"""agent-channels on the command line: checks of its sockets, for `tieline doctor`.

Used by: the command line, which finds `ChannelsCommands` through the protocol's declaration. Uses: the folder of the
sockets.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tieline.cli.doctor_finding import DoctorFinding
from tieline.cli.extension import Extension
from tieline.protocols.agent_channels import FOLDER

_GENERAL = "general.sock"
"""Socket of the general channel, which every hub has."""


class ChannelsCommands(Extension):
    """agent-channels' part of the command line: its sockets, and a check that finds inboxes without a socket."""

    sockets = (str(FOLDER / _GENERAL),)

    def listeners(self, places: Mapping[str, str | None]) -> Iterator[str]:
        """Yield the path of the general channel's socket, which answers while the hub runs.

        `places` are the entries of the hub's file `run.json`.
        """
        folder = places.get("channels_dir")
        if folder is not None:
            yield str(Path(folder, _GENERAL))

    def look_at_members(self, places: Mapping[str, str | None], names: Sequence[str]) -> Iterator[DoctorFinding]:
        """Yield the problems that `tieline doctor` reports: members in `names` whose inbox has no socket.

        `places` are the entries of the hub's file `run.json`.
        """
        from tieline.protocols.agent_channels.commands.inboxes import inbox_paths

        folder = places.get("channels_dir")
        if folder is not None:
            yield from inbox_paths(folder, names)
