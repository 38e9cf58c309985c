"""The team: the common goal of all members of a hub, and named sets of permissions."""

from collections.abc import Iterable

from msgspec import Struct

from tieline.contract.permission import KNOWN


class Team(Struct, frozen=True, omit_defaults=True):
    """Record of the hub's team: its name and purpose, which every member learns, and named sets of permissions."""

    name: str = ""
    directive: str = ""
    """Purpose of the team."""
    context: str = ""
    """Background that every member of the team should know."""
    presets: dict[str, tuple[str, ...]] = {}
    """Named sets of permissions. A member refers to a set by its name. If a permission is removed from the set, the
    member loses the permission too."""
    aliases: dict[str, str] = {}
    """Other names for members. The key is the alias, and the value is the member's own name."""

    def presets_among(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return those of the words that are names of presets (named sets of permissions)."""
        return tuple(word for word in words if word in self.presets and word not in KNOWN)

    def permissions_of(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return all permissions that these words give. A word is a permission, or a preset (set of permissions)."""
        words = set(words)
        named = self.presets_among(words)
        given = {permission for preset in named for permission in self.presets[preset]}
        return tuple(sorted((words - set(named)) | given))
