"""The configuration of backchannel: settings of its relay (the HTTP server), and of the spool that the hub adopts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from msgspec.structs import replace

from tieline.protocols.backchannel.identity import ADMIN_TOKEN_VARIABLE, TOKEN_VARIABLE
from tieline.wire.protocol import Flag, Settings, on_off

ROOM_HEADER = b"x-backchannel-room"
"""Name of the HTTP header that names the room of a request."""

_TEMPLATE = """\
[backchannel]
enabled = true
# Token to register a new name, and for nothing else. If empty, everybody who reaches the HTTP port can register.
room_token = "{room_token}"
# Clients that may make rooms (hubs of their own behind this port): "open" for everybody who reaches the port, "token"
# for clients that show the room token, "off" for nobody. If empty, "open" on a loopback address and "token" elsewhere.
rooms = ""
# Make the local agents of a spool members, too. An empty spool means BACKCHANNEL_HOME; without that, a folder in this
# home, or ~/.backchannel if no home is named.
adopt = true
spool = ""
"""


def template() -> str:
    """Return the text of the configuration section for a new hub, with a new room token."""
    # Slow to import, and needed only once for each home.
    import secrets

    return _TEMPLATE.format(room_token=secrets.token_urlsafe(24))


class BackchannelSettings(Settings, frozen=True):
    """The section `[backchannel]` of `tieline.toml`: tokens, the permission to make rooms, and the spool.

    The room token is stored as plain text, because an invite must contain it.
    """

    room_token: str = ""
    rooms: Literal["", "open", "token", "off"] = ""
    admin_token: str = ""
    """Token with which a client may make rooms, instead of the room token. An environment variable can set it too."""
    adopt: bool = True
    spool: str = ""
    spool_alone: bool = False
    """True if an option of `tieline serve` names the spool (folder of messages).

    The spool is then used even if the relay (HTTP server) is off.
    """

    @property
    def newcomer_token(self) -> str:
        """The room token, with which anybody can become a member; empty if nobody needs one, or the relay is off."""
        return self.room_token if self.enabled else ""

    @property
    def starts(self) -> bool:
        """True if the hub must start backchannel, for its HTTP API (the relay), or only for its spool."""
        return self.enabled or self.spool_alone

    @property
    def spool_path(self) -> Path | None:
        """Folder of the spool that the settings name; `None` if they name none."""
        return Path(self.spool).expanduser().absolute() if self.spool else None

    def rooms_policy(self, *, is_loopback: bool) -> str:
        """Return which clients may make rooms: "open" (all), "token" (those that know the token) or "off" (none)."""
        return self.rooms or ("open" if is_loopback and not self.admin_token else "token")

    def check(self) -> None:
        """Raise `ValueError` if a token is needed to make rooms and none is configured."""
        if self.rooms == "token" and not (self.room_token or self.admin_token):
            raise ValueError(f'[backchannel] rooms = "token" needs a room_token, or {ADMIN_TOKEN_VARIABLE}')

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Return a copy with the tokens from the environment variables, if they are set there."""
        return replace(
            self,
            room_token=environment.get(TOKEN_VARIABLE) or self.room_token,
            admin_token=environment.get(ADMIN_TOKEN_VARIABLE) or self.admin_token,
        )


FLAGS = (
    on_off("backchannel", "Speak backchannel's relay API."),
    Flag(
        ("--spool",),
        "Spool whose agents become members. Default: BACKCHANNEL_HOME, else a folder in the home.",
        lambda folder: {"spool": str(folder), "adopt": True, "spool_alone": True},
        metavar="DIR",
        is_path=True,
        excludes="--no-spool",
    ),
    Flag(("--no-spool",), "Use no spool.", lambda _: {"adopt": False}),
)
