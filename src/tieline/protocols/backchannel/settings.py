"""The configuration of backchannel: its relay, and the spool that the hub adopts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from tieline.protocols.backchannel.identity import TOKEN_VARIABLE
from tieline.wire.protocol import Flag, Settings, on_off

_TEMPLATE = """\
[backchannel]
enabled = true
# Whoever shows this may register a name, and nothing else; empty lets everybody who reaches the HTTP port do so.
room_token = "{room_token}"
# Whether local agents of a spool are members too, and where it is; empty for BACKCHANNEL_HOME, else a folder of this
# home, or ~/.backchannel where no home was named.
adopt = true
spool = ""
"""


def template() -> str:
    """The section of a new hub, with a room token of its own."""
    # Slow to import, and needed only once for each home.
    import secrets

    return _TEMPLATE.format(room_token=secrets.token_urlsafe(24))


class BackchannelSettings(Settings, frozen=True):
    """The section `[backchannel]`. The room token is stored as plain text, because an invite contains it."""

    room_token: str = ""
    adopt: bool = True
    spool: str = ""
    spool_alone: bool = False
    """Adopt the spool even if the relay is off, because an option of `tieline serve` names the spool."""

    @property
    def starts(self) -> bool:
        """True if there is a relay, or a spool without a relay."""
        return self.enabled or self.spool_alone

    @property
    def spool_path(self) -> Path | None:
        """The spool that the settings name, if any."""
        return Path(self.spool).expanduser().absolute() if self.spool else None

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Take the room token from the environment, if it is set there."""
        room_token = environment.get(TOKEN_VARIABLE)
        return replace(self, room_token=room_token) if room_token else self


FLAGS = (
    on_off("backchannel", "Speak backchannel's relay API."),
    Flag(
        ("--spool",),
        "The spool to adopt; else BACKCHANNEL_HOME, else one in the home.",
        lambda folder: {"spool": str(folder), "adopt": True, "spool_alone": True},
        metavar="DIR",
        is_path=True,
        excludes="--no-spool",
    ),
    Flag(("--no-spool",), "Adopt no spool.", lambda _: {"adopt": False}),
)
