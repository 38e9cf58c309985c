"""The configuration of the protocol agent-relay."""

from pathlib import Path

from tieline.wire.protocol import Flag, Settings, on_off

TEMPLATE = """\
[agent_relay]
enabled = true
# Require the resume token in a RESUME, not only the session's id.
require_resume_token = false
"""


class RelaySettings(Settings, frozen=True):
    """Configuration of agent-relay: the section `[agent_relay]` of `tieline.toml`."""

    require_resume_token: bool = False
    heartbeat_ms: int = 5000
    frame_bytes_max: int = 1024 * 1024
    socket: str = ""
    """The path of the socket; if empty, the socket is in the hub's folder."""

    @property
    def socket_path(self) -> Path | None:
        """Configured path of the socket, or `None` for the default path."""
        return Path(self.socket).expanduser().absolute() if self.socket else None


FLAGS = (
    Flag(
        ("--relay-socket",),
        "Path of the agent-relay socket. Default: a socket in the home.",
        lambda path: {"socket": str(path)},
        metavar="PATH",
        is_path=True,
    ),
    on_off("agent-relay", "Speak the Agent Relay Protocol."),
)
