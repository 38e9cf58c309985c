"""The spool's folder for a command that has no hub, and who speaks from it.

Above: the other commands of this folder, and the command line through `SpoolMailboxProvider`. Below: the folder's
`config.json`, and the relay that takes the place of the folder where one is stored there.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.hub_or_spool import named_token

if TYPE_CHECKING:
    from tieline.cli.session import Link
    from tieline.protocols.backchannel.commands.local import LocalMailbox
    from tieline.protocols.backchannel.identity import Identity

_SPOOL_HOME = "spool-home"


def spool_root(link: "Link") -> Path:
    """Return the spool's folder: named by `--spool`, else by the environment, else in a named home, else the user's."""
    from tieline.protocols.backchannel.identity import HOME_VARIABLE, default_root
    from tieline.wire.home import HOME_VARIABLE as HUB_HOME_VARIABLE

    if link.spool is not None:
        return link.spool.expanduser().absolute()
    if not os.environ.get(HOME_VARIABLE) and (link.home is not None or os.environ.get(HUB_HOME_VARIABLE)):
        return link.folder / _SPOOL_HOME
    return default_root()


def stored_identity(link: "Link") -> "Identity":
    """Return the identity that `init`, `join` or another program stored. Environment variables override it."""
    from tieline.protocols.backchannel.identity import read_identity

    return read_identity(spool_root(link)).with_environment()


def speaker_without_hub(link: "Link") -> str:
    """Return the name that speaks: from the flag, the environment, or the stored identity."""
    from tieline.client.client import MEMBER_VARIABLE

    name = link.member or os.environ.get(MEMBER_VARIABLE) or stored_identity(link).agent
    if not name:
        hint = f"add --as NAME, set {MEMBER_VARIABLE}, or store a name with 'tieline init NAME'"
        raise Failure(Exit.USAGE, "nobody is named who does this", hint)
    return name


class SpoolMailboxProvider:
    """Provider of a mailbox on a spool, or through a relay."""

    def stored(self, link: "Link") -> "Identity":
        """The identity that is kept in the spool's folder."""
        return stored_identity(link)

    def mailbox(self, link: "Link") -> "LocalMailbox":
        """Return the named spool; else the stored relay; else the spool that is found."""
        from tieline.protocols.backchannel.commands.local import LocalMailbox
        from tieline.protocols.backchannel.commands.postbox import RelayPostbox, SpoolPostbox

        identity = stored_identity(link) if link.spool is None else None
        if identity is not None and identity.url is not None:
            from tieline.protocols.backchannel.client import RelayClient

            return LocalMailbox(link, RelayPostbox(RelayClient(identity.url, named_token(link) or identity.token)))
        from tieline.protocols.backchannel.spool import Spool

        return LocalMailbox(link, SpoolPostbox(Spool(spool_root(link))))
