"""The configuration of agent-relay."""

from pathlib import Path

from tieline.wire.protocol import Flag, Settings, on_off

TEMPLATE = """\
[agent_relay]
enabled = true
# Whether a RESUME must show the resume token, not only the session's id.
require_resume_token = false
"""


class RelaySettings(Settings, frozen=True):
    """The section `[agent_relay]`."""

    require_resume_token: bool = False
    heartbeat_ms: int = 5000
    frame_bytes_max: int = 1024 * 1024
    socket: str = ""
    """The path of the socket; empty for the default socket in the home."""

    @property
    def socket_path(self) -> Path | None:
        """The configured path of the socket, or `None` for the default."""
        return Path(self.socket).expanduser().absolute() if self.socket else None


FLAGS = (
    Flag(
        ("--relay-socket",),
        "The agent-relay socket; else one in the home.",
        lambda path: {"socket": str(path)},
        metavar="PATH",
        is_path=True,
    ),
    on_off("agent-relay", "Speak the Agent Relay Protocol."),
)
