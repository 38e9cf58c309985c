"""backchannel's extension of the command line: commands without a hub, joining a relay, and importing a spool.

Used by: the command line, which finds `BackchannelCommands` through the protocol's declaration. Uses: the spool, the
relay's client, and the hub's home. `local` runs the commands without a hub on a `postbox`. `spool_location` finds the
spool. `joining`, `inviting` and `importing` have more commands. `upkeep` reports faults of the spool, and `failures`
reports errors.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tieline.cli.extension import Command, Extension
from tieline.protocols.backchannel.identity import AGENT_VARIABLE, HOME_VARIABLE

if TYPE_CHECKING:
    from tieline.cli.doctor_finding import Examined
    from tieline.cli.failure import Failure
    from tieline.cli.mailbox import MailboxProvider
    from tieline.cli.session import Link

_PANEL = "Team"


class BackchannelCommands(Extension):
    """backchannel's extension of the command line: its commands, its errors, and its checks for `tieline doctor`."""

    variables = (HOME_VARIABLE, AGENT_VARIABLE)
    prefixes = ("BCH_",)
    counts = MappingProxyType({"spool": str, "agents": int, "unread": int, "kept": int})

    def commands(self) -> Iterator[Command]:
        """Yield the commands `init`, `invite` and `join`, and the import of a spool."""
        from tieline.protocols.backchannel.commands.importing import import_spool
        from tieline.protocols.backchannel.commands.inviting import invite_app
        from tieline.protocols.backchannel.commands.joining import init, join

        yield Command(
            name="invite",
            run=invite_app,
            panel=_PANEL,
            summary="Let somebody join; join a hub; store your name here.",
            examples={
                "": ("tieline invite --as carol --expires 2d",),
                "list": ("tieline invite list",),
                "revoke": ("tieline invite revoke 297efe0a10d7",),
                "rotate": ("tieline invite rotate",),
            },
        )
        yield Command(
            name="join",
            run=join,
            panel=_PANEL,
            examples={"": ("tieline join INVITE --as carol",)},
        )
        yield Command(
            name="init",
            run=init,
            panel=_PANEL,
            examples={"": ("tieline init bob",)},
        )
        examples = {"": ("tieline import backchannel ~/.backchannel",)}
        yield Command(name="backchannel", run=import_spool, group="import", examples=examples)

    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the types of what `--json` prints: for invitations, imports, and commands on a spool or a relay."""
        from tieline.protocols.backchannel.commands.documents import DOCUMENTS

        return DOCUMENTS

    def failure(self, error: Exception) -> "Failure | None":
        """Return the message and exit code for an error of a spool or of backchannel's HTTP client; else `None`."""
        from tieline.protocols.backchannel.commands.failures import failure_of

        return failure_of(error)

    def mailbox_provider(self) -> "MailboxProvider":
        """Return the object that opens a spool, or a relay (backchannel's HTTP server), for commands without a hub."""
        from tieline.protocols.backchannel.commands.spool_location import SpoolMailboxProvider

        return SpoolMailboxProvider()

    def look_at_data(self, link: "Link", *, repair: bool) -> "Examined":
        """Check the spool for faults, for `tieline doctor`. With `repair`, repair the faults that can be repaired."""
        from tieline.protocols.backchannel.commands.upkeep import examine

        return examine(link, repair=repair)
