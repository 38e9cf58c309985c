"""Finds the spool's folder for a command that runs without a hub, and the name under which the command acts.

Used by: the other commands of this folder, and the command line through `SpoolMailboxProvider`. Uses: `config.json` in
the spool's folder. If this file names a relay (an HTTP server), commands use the relay instead of the spool.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import NobodyNamed
from tieline.cli.hub_or_spool import named_token

if TYPE_CHECKING:
    from tieline.cli.session import Link
    from tieline.protocols.backchannel.commands.local import LocalMailbox
    from tieline.protocols.backchannel.identity import Identity

_SPOOL_HOME = "spool-home"


def spool_root(link: "Link") -> Path:
    """Return the spool's folder: the first of the following four folders that is set.

    They are the option `--spool`, the variable `BACKCHANNEL_HOME`, a folder in the hub's home if the user named the
    home, and the user's default folder.
    """
    from tieline.protocols.backchannel.identity import HOME_VARIABLE, default_root
    from tieline.wire.home import HOME_VARIABLE as HUB_HOME_VARIABLE

    if link.spool is not None:
        return link.spool.expanduser().absolute()
    if not os.environ.get(HOME_VARIABLE) and (link.home is not None or os.environ.get(HUB_HOME_VARIABLE)):
        return link.folder / _SPOOL_HOME
    return default_root()


def stored_identity(link: "Link") -> "Identity":
    """Return the stored identity (name, address, token) of the user. Environment variables override stored values.

    `init`, `join` or another program has stored the identity.
    """
    from tieline.protocols.backchannel.identity import read_identity

    return read_identity(spool_root(link)).with_environment()


def speaker_without_hub(link: "Link") -> str:
    """Return the name under which a command acts: from the option, the environment, or the stored identity.

    Raise `NobodyNamed` if none of them has a name.
    """
    from tieline.client.connection import MEMBER_VARIABLE

    name = link.member or os.environ.get(MEMBER_VARIABLE) or stored_identity(link).agent
    if not name:
        hint = f"add --as NAME, set {MEMBER_VARIABLE}, or store a name with 'tieline init NAME'"
        raise NobodyNamed(hint)
    return name


class SpoolMailboxProvider:
    """Opens the spool, or the relay (backchannel's HTTP server), for commands that run without a hub."""

    def stored(self, link: "Link") -> "Identity":
        """Return the identity (name, address, token) that is stored in the spool's folder.

        Environment variables override stored values.
        """
        return stored_identity(link)

    def mailbox(self, link: "Link") -> "LocalMailbox":
        """Return the object that runs commands without a hub, for the place where the user's messages are.

        The place is the spool that an option names; else the relay (HTTP server) that the user has joined; else the
        default spool.
        """
        from tieline.protocols.backchannel.commands.local import LocalMailbox
        from tieline.protocols.backchannel.commands.postbox import RelayPostbox, SpoolPostbox

        identity = stored_identity(link) if link.spool is None else None
        if identity is not None and identity.pinned_url is not None:
            from tieline.protocols.backchannel.client import RelayClient

            client = RelayClient(identity.pinned_url, named_token(link) or identity.token, identity.room)
            return LocalMailbox(link, RelayPostbox(client))
        from tieline.protocols.backchannel.spool import Spool

        return LocalMailbox(link, SpoolPostbox(Spool(spool_root(link))))
