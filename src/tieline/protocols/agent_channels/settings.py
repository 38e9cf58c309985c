"""The configuration of agent-channels."""

from pathlib import Path

from tieline.wire.protocol import Flag, Settings, on_off

TEMPLATE = """\
[agent_channels]
enabled = true
# Also open a socket for each member. Whoever can open it reads and writes as that member: only you, in this home.
inboxes = true
"""


class ChannelsSettings(Settings, frozen=True):
    """Configuration of agent-channels: the section `[agent_channels]`.

    With `inboxes`, each member has an inbox socket.
    """

    inboxes: bool = True
    folder: str = ""
    """Folder of the sockets. Empty means the default folder in the hub's data folder."""

    @property
    def folder_path(self) -> Path | None:
        """The configured folder as an absolute path, or None if no folder is configured."""
        return Path(self.folder).expanduser().absolute() if self.folder else None


FLAGS = (
    Flag(
        ("--channels-dir",),
        "Folder of the agent-channels sockets. Default: a folder in the home.",
        lambda folder: {"folder": str(folder)},
        metavar="DIR",
        is_path=True,
    ),
    on_off("agent-channels", "Speak agent-channels."),
)
