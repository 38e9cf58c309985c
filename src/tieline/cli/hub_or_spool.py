"""Decides if a command works on a hub or on a spool (a folder of messages), and as which member.

Used by: `session`. Uses: the home of a hub, and the protocol that works without one. A command uses the first of these:
the spool that `--spool` names; the hub that an address or the home names; the hub or relay (a server that serves a
spool) that `join` stored; the default spool. A home that has a hub's database and no running hub is an error, because
members of that hub would miss messages in a spool.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.mailbox import find_mailbox_provider

if TYPE_CHECKING:
    from tieline.cli.mailbox import Mailbox, Stored
    from tieline.cli.session import Link

_DATABASE = "tieline.db"


def stored_identity(link: "Link") -> "Stored | None":
    """Return the name, address and token that `tieline init` or `join` stored in the spool's folder.

    Environment variables override the stored values. Return `None` if no protocol can store them.
    """
    provider = find_mailbox_provider()
    return None if provider is None else provider.stored(link)


def joined_hub(link: "Link") -> "Stored | None":
    """Return the name, address and token that `tieline join` stored, if a command must use that hub; else `None`.

    The result is `None` if `join` stored no address of a hub, if the command names a spool or an address, or if a hub
    runs in the home.
    """
    from tieline.wire.home import read_running

    if link.spool is not None or link.address is not None or read_running(link.folder) is not None:
        return None
    identity = stored_identity(link)
    return identity if identity is not None and identity.is_hub else None


def find_mailbox(link: "Link") -> "Mailbox | None":
    """Return the mailbox (messages in a folder) for a command that works without a hub; `None` if there is a hub."""
    from tieline.wire.home import read_running

    provider = find_mailbox_provider()
    if link.spool is not None:
        if link.address is not None:
            raise Failure(Exit.USAGE, "--spool and --url exclude each other")
        if provider is None:
            raise Failure(Exit.USAGE, "--spool is not available: no installed protocol works without a hub")
        return provider.mailbox(link)
    if provider is None or link.address is not None or read_running(link.folder) is not None:
        return None
    identity = provider.stored(link)
    if identity.url is not None:
        return None if identity.is_hub else provider.mailbox(link)
    _refuse_stopped_hub(link.folder)
    if named_token(link) is not None:
        message = "a token is given, but no hub is configured"
        raise Failure(Exit.UNREACHABLE, message, "name the hub with --url, or start one with 'tieline serve'")
    return provider.mailbox(link)


def named_token(link: "Link") -> str | None:
    """Return the token that an option or the environment names; `None` if there is none."""
    from tieline.client.connection import TOKEN_VARIABLE

    return link.token or os.environ.get(TOKEN_VARIABLE) or None


def _refuse_stopped_hub(home: Path) -> None:
    """Raise `Failure` if the folder `home` has a hub that does not run, because only the hub has its messages."""
    from tieline.wire.home import KEY_FILE

    if not any((home / name).exists() for name in (_DATABASE, KEY_FILE)):
        return
    message = f"the hub in {home} is not running, and only the hub has its members' messages"
    hint = f"start it with 'tieline serve --home {home}', or name a spool with --spool DIR to work without it"
    raise Failure(Exit.UNREACHABLE, message, hint)
