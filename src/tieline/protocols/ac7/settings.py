"""The configuration of ac7."""

from tieline.wire.protocol import Flag, Settings

TEMPLATE = """\
[ac7]
enabled = true
# Send a member a message when one of its sessions comes online.
announce = true
"""


class Ac7Settings(Settings, frozen=True):
    """Configuration of ac7: the section `[ac7]`. With `announce`, a member gets a message when its stream opens."""

    announce: bool = True


FLAGS = (Flag(("--no-ac7",), "Do not speak ac7.", lambda _: {"enabled": False}),)
