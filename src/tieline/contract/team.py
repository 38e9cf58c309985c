"""The team: the common goal of all members of a hub, and named sets of permissions."""

from msgspec import Struct


class Team(Struct, frozen=True, omit_defaults=True):
    """Facts about the team that the hub tells every member."""

    name: str = ""
    directive: str = ""
    """Purpose of the team."""
    context: str = ""
    """Background that every member of the team should know."""
    presets: dict[str, tuple[str, ...]] = {}
    """Sets of permissions by name, for creating members."""
    aliases: dict[str, str] = {}
    """Other names by which members can be addressed: alias → name of the member."""
