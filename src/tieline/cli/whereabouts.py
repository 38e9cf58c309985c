"""Whereabouts: whether a command works with a hub, a relay or a spool, and who speaks where nobody is named.

Above: `session`. Below: the home of a hub, and the folder of a spool with its `config.json`. The order is: the spool
that `--spool` names; the hub that an address or the home names; the relay that `join` stored; the spool. A home that
has a hub's database and no running hub is an error, because whoever keeps messages there would miss these.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from tieline.cli.postbox import Postbox
    from tieline.cli.session import Link
    from tieline.protocols.backchannel.identity import Identity

_DATABASE = "tieline.db"
_SPOOL_HOME = "spool-home"


def spool_root(link: "Link") -> Path:
    """The folder of the spool: named, else the environment's, else in the home that was named, else the user's."""
    from tieline.protocols.backchannel.identity import HOME_VARIABLE, default_root
    from tieline.wire.home import HOME_VARIABLE as HUB_HOME_VARIABLE

    if link.spool is not None:
        return link.spool.expanduser().absolute()
    if not os.environ.get(HOME_VARIABLE) and (link.home is not None or os.environ.get(HUB_HOME_VARIABLE)):
        return link.folder / _SPOOL_HOME
    return default_root()


def stored_identity(link: "Link") -> "Identity":
    """What `init` or `join` stored, or another program of backchannel, with the variables that override it."""
    from tieline.protocols.backchannel.identity import read_identity

    return read_identity(spool_root(link)).with_environment()


def joined_hub(link: "Link") -> "Identity | None":
    """The identity by which `join` made this folder a client of a hub elsewhere, where nothing nearer is named."""
    from tieline.wire.home import read_running

    if link.spool is not None or link.address is not None or read_running(link.folder) is not None:
        return None
    identity = stored_identity(link)
    return identity if identity.is_hub else None


def find_postbox(link: "Link") -> "Postbox | None":
    """Where a command leaves and finds messages without a hub; `None` when there is a hub to talk to."""
    from tieline.wire.home import read_running

    if link.spool is not None:
        if link.address is not None:
            raise Failure(Exit.USAGE, "--spool names a folder and --url a hub: name one of them")
        return _spool(link)
    if link.address is not None or read_running(link.folder) is not None:
        return None
    identity = stored_identity(link)
    if identity.url is not None:
        return None if identity.is_hub else _relay(link, identity)
    _refuse_stopped_hub(link.folder)
    if _token(link) is not None:
        message = "a token is given, and there is no hub to show it to"
        raise Failure(Exit.UNREACHABLE, message, "name the hub with --url, or start one with 'tieline serve'")
    return _spool(link)


def _token(link: "Link") -> str | None:
    from tieline.client.client import TOKEN_VARIABLE

    return link.token or os.environ.get(TOKEN_VARIABLE) or None


def _refuse_stopped_hub(home: Path) -> None:
    """A hub that keeps messages in this home must be asked, so it must run."""
    from tieline.wire.home import KEY_FILE

    if not any((home / name).exists() for name in (_DATABASE, KEY_FILE)):
        return
    message = f"the hub in {home} is not running, and it keeps its members' messages"
    hint = f"start it with 'tieline serve --home {home}', or name a spool with --spool DIR to work without it"
    raise Failure(Exit.UNREACHABLE, message, hint)


def _spool(link: "Link") -> "Postbox":
    from tieline.cli.postbox import SpoolPostbox
    from tieline.protocols.backchannel import Spool

    return SpoolPostbox(Spool(spool_root(link)))


def _relay(link: "Link", identity: "Identity") -> "Postbox":
    from tieline.cli.postbox import RelayPostbox
    from tieline.protocols.backchannel.client import RelayClient

    assert identity.url is not None, "asked for with an address"
    return RelayPostbox(RelayClient(identity.url, _token(link) or identity.token))


def speaker_without_hub(link: "Link") -> str:
    """Who speaks: by flag, by the environment, or by what is stored."""
    from tieline.client.client import MEMBER_VARIABLE

    name = link.member or os.environ.get(MEMBER_VARIABLE) or stored_identity(link).agent
    if not name:
        hint = f"add --as NAME, set {MEMBER_VARIABLE}, or store a name with 'tieline init NAME'"
        raise Failure(Exit.USAGE, "nobody is named who does this", hint)
    return name
