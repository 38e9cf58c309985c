"""The configuration of ac7."""

from tieline.wire.protocol import Flag, Settings

TEMPLATE = """\
[ac7]
enabled = true
# Whether a member is told, in a message, that a session of it is online.
announce = true
"""


class Ac7Settings(Settings, frozen=True):
    """The section `[ac7]`."""

    announce: bool = True


FLAGS = (Flag(("--no-ac7",), "Do not speak ac7.", lambda _: {"enabled": False}),)
