"""The configuration of agent-channels."""

from pathlib import Path

from tieline.wire.protocol import Flag, Settings, on_off

TEMPLATE = """\
[agent_channels]
enabled = true
# A socket for every member, which reads and writes for it: for whoever can open files of this home.
inboxes = true
"""


class ChannelsSettings(Settings, frozen=True):
    """The section `[agent_channels]`."""

    inboxes: bool = True
    folder: str = ""
    """Folder of the sockets. Empty means the default folder in the home."""

    @property
    def folder_path(self) -> Path | None:
        """The configured folder as an absolute path; None if not configured."""
        return Path(self.folder).expanduser().absolute() if self.folder else None


FLAGS = (
    Flag(
        ("--channels-dir",),
        "The folder of the agent-channels sockets; else one in the home.",
        lambda folder: {"folder": str(folder)},
        metavar="DIR",
        is_path=True,
    ),
    on_off("agent-channels", "Speak agent-channels."),
)
