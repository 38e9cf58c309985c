"""`tieline cluster`: several hubs of one team on one database. Shows which of them leads, and lets another one lead.

Used by: a person. Uses: the lease in the database, so it works while no hub answers.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say
from tieline.cli.session import HomeOption, JsonOption, ended_by

if TYPE_CHECKING:
    from tieline.stores.postgres import LeaseView

cluster_app = typer.Typer(
    help="Several hubs of one team: see which leads, and let another one lead.", no_args_is_help=True
)

_TERMS = 5  # the last ones; the table `term` has all
_AWAY_SECONDS = 15.0
"""Time after which a hub that gave no sign counts as away. It gives one each 5 seconds."""
_POLL_SECONDS = 0.1  # a change of leaders takes about a second


class ClusterHub(Struct, frozen=True):
    """One hub of the team."""

    address: str
    """The address at which the other hubs reach it."""
    hub: str
    """Its home, machine and process."""
    role: str
    """`leader`, `follower`, or `away`."""


class ClusterTerm(Struct, frozen=True):
    """A term of the team, with the hub that led in it."""

    term: int
    hub: str
    began_at_ms: int


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The hubs of a team that share a database, and the one that leads."""

    term: int
    leader: str
    """Home, machine and process of the leader; empty if nobody leads."""
    address: str
    """The address of the leader; empty if nobody leads, or if it expects no other hubs."""
    hubs: tuple[ClusterHub, ...]
    terms: tuple[ClusterTerm, ...]
    """The last terms, the newest first."""


@cluster_app.command("status")
def status(home: HomeOption = None, json: JsonOption = False) -> None:
    """Show which hub leads the team, and the other hubs. Exit code 1 if nobody leads.

    The command reads the database that the home names, so it also works while no hub answers.
    """
    ended_by(lambda: _show(home, json=json), json=json)


@cluster_app.command("promote")
def promote(
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="The hub's [cluster] address. Default: this home's hub.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Longest time to wait for it.")] = 30.0,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Let another hub lead, for example before the leader's machine is rebooted. Nothing that was accepted is lost.

    The leader hands over. Sessions end, and clients connect again.
    """
    ended_by(lambda: _promote(home, address, timeout, json=json), json=json)


@contextmanager
def _view(home: Path) -> "Iterator[LeaseView]":
    from tieline.core.store import StoreError
    from tieline.server.config import ConfigError
    from tieline.server.storage import DatabaseStorage, in_database, store_url

    try:
        url = store_url(home)
        if not in_database(url):
            hint = "name the database: TIELINE_STORE, or url in [store] of tieline.toml"
            raise Failure(Exit.FAILED, f"the hub of {home} keeps everything in its home, so it is alone", hint)
        storage = DatabaseStorage(url, home)
        # To look at a database makes nothing there.
        storage.open_reading().close()
        view = storage.open_lease()
        try:
            yield view
        finally:
            view.close()
    except (StoreError, ConfigError) as error:
        raise Failure(Exit.FAILED, str(error), getattr(error, "hint", "")) from error


def _look(view: "LeaseView") -> ClusterStatus:
    held = view.read()
    leads = held.seconds > 0
    address = held.address.partition("#")[0].removeprefix("https://") if leads else ""
    hubs = [
        ClusterHub(
            one.address,
            one.hub,
            "leader" if leads and one.address == address else "follower" if one.seconds < _AWAY_SECONDS else "away",
        )
        for one in view.hubs()
    ]
    return ClusterStatus(
        term=held.term,
        leader=held.hub if leads else "",
        address=address,
        hubs=tuple(hubs),
        terms=tuple(ClusterTerm(*one) for one in view.terms(_TERMS)),
    )


def _tell(found: ClusterStatus, *, json: bool) -> None:
    if json:
        print_json(found)
        return
    print_table(("address", "role", "hub"), [(one.address, one.role, one.hub) for one in found.hubs], empty="")
    if found.leader and not found.address:
        say(neutral_line(f"{found.leader} leads, and expects no other hubs."))
    for one in found.terms:
        say(neutral_line(f"term {one.term} began {local_time(one.began_at_ms)}: {one.hub}"))


def _show(home: Path | None, *, json: bool) -> None:
    from tieline.wire.home import find_home

    with _view(find_home(home)) as view:
        found = _look(view)
    _tell(found, json=json)
    if not found.leader:
        raise Failure(Exit.FAILED, "nobody leads the team", "start a hub: tieline serve")


def _promote(home: Path | None, address: str | None, timeout: float, *, json: bool) -> None:
    from tieline.server.config import ClusterSection
    from tieline.server.config_origin import in_use
    from tieline.wire.home import find_home

    folder = find_home(home)
    wanted = address or in_use(folder).section("cluster", ClusterSection).address
    if not wanted:
        raise Failure(Exit.FAILED, f"the hub of {folder} is not one of several", "name the address of a hub")
    with _view(folder) as view:
        known = {one.address: one.role for one in _look(view).hubs}
        if known.get(wanted, "away") == "away":
            raise Failure(Exit.FAILED, f"no hub runs at {wanted}", "tieline cluster status lists them")
        deadline = time.monotonic() + timeout
        if known[wanted] != "leader":
            view.prefer(wanted)
        while (found := _look(view)).address != wanted:
            if time.monotonic() > deadline:
                view.prefer("")
                raise Failure(Exit.TIMED_OUT, f"the hub at {wanted} does not lead yet", "tieline cluster status")
            time.sleep(_POLL_SECONDS)
    _tell(found, json=json)
