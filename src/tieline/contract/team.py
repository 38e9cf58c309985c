"""The team: what all members of a hub work for, and named sets of permissions."""

from msgspec import Struct


class Team(Struct, frozen=True, omit_defaults=True):
    """What is said to every member about the team that it is in."""

    name: str = ""
    directive: str = ""
    """What the team is for."""
    context: str = ""
    """What everybody on it should know."""
    presets: dict[str, tuple[str, ...]] = {}
    """Sets of permissions by name, for those who make members."""
    aliases: dict[str, str] = {}
    """Other names by which members can be written to, each with the name that it stands for."""
