"""`tieline status`: the state of the hub of this machine, on one screen.

Used by: a person, a script, or the health check of a container. Uses: the hub's `run.json`, its health, an operator's
session, and the files of the home. The command changes nothing. `doctor` finds out more and takes longer.
"""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tieline import __version__, commit
from tieline.cli.failure import Exit, Failure
from tieline.cli.last_backup import LastBackup, last_backup
from tieline.cli.output import neutral_line, print_json, say
from tieline.cli.session import HomeOption, JsonOption, Link, ended_by

if TYPE_CHECKING:
    from tieline.wire.home import Running

_WAITING_MAX = 3  # members with the most waiting messages; more would not fit on one screen
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


class Door(Struct, frozen=True):
    """A protocol by which members reach the hub: its sockets and addresses, and the number of open sessions."""

    protocol: str
    places: tuple[str, ...]
    sessions: int


class Waiting(Struct, frozen=True):
    """Number of messages that wait for a member. Held messages wait until a person or the hub releases them."""

    member: str
    backlog: int
    held: int


class ReaderLag(Struct, frozen=True):
    """A reader of a log, such as the pipeline: the rows that it has not read, and the time of its last position."""

    name: str
    log: str
    unread: int
    at_ms: int


class Hub(Struct, frozen=True, kw_only=True):
    """The running hub: its process, its doors (the protocols by which members reach it), and its members."""

    pid: int
    version: str
    started_at_ms: int
    http: str
    url: str
    """Address for programs on other machines, with the fingerprint of the certificate if the hub made it itself."""
    problems: tuple[str, ...]
    """Failures that the hub reports, each with advice."""
    doors: tuple[Door, ...]
    members: int
    connected: int
    backlog: int
    held: int
    waiting: tuple[Waiting, ...]
    """Members with the most waiting messages."""
    readers: tuple[ReaderLag, ...]
    role: str = ""
    """`leader` or `follower`, if the team may have several hubs; else empty."""
    term: int = 0
    """The term of the leader; 0 without several hubs."""
    leader: str = ""
    """The leader that this hub knows, for people."""


class Disk(Struct, frozen=True):
    """Bytes that the home uses, in total and by its largest parts, and bytes that are free on its disk."""

    used_bytes: int
    parts: dict[str, int]
    free_bytes: int


class Status(Struct, frozen=True, kw_only=True):
    """The state of a home and its hub; `hub` is `None` if no hub runs there."""

    version: str
    commit: str
    home: str
    hub: Hub | None
    disk: Disk | None
    backup: LastBackup | None
    pipeline_at_ms: int | None
    """Time of the pipeline's last report in the home; `None` if it never ran there."""


def status(home: HomeOption = None, json: JsonOption = False) -> None:
    """Show the hub of this machine: doors, members, waiting messages, disk, last backup and pipeline.

    Exit code 0 if the hub runs and reports no failure, 1 if it reports one, 4 if no hub runs.
    """
    ended_by(lambda: _show(Link(home=home), json=json), json=json)


def _show(link: Link, *, json: bool) -> None:
    from tieline.wire.address import PIN

    found = look(link.folder)
    url = link.way()[0] if found.hub is None and link.home is None else None
    if json:
        print_json(found)
    else:
        # First of all, because commands here use that hub, and what follows is about this machine.
        if url is not None:
            say(neutral_line(f"{'uses':<10}the hub at {url.partition(PIN)[0]}"))
        for label, text in _lines(found):
            say(neutral_line(f"{label:<10}{text}"), style="yellow" if label == "problem" else "")
    if found.hub is None:
        hint = f"tieline serve --home {found.home}"
        if url is not None:
            hint = f"you use the hub at {url.partition(PIN)[0]}; 'tieline whoami' asks it"
        raise Failure(Exit.UNREACHABLE, f"no hub is running in {found.home}", hint)
    if found.hub.problems:
        raise Failure(Exit.FAILED, "the hub reports a failure", "tieline doctor")


def look(home: Path) -> Status:
    """Return the state of a home and its hub. Raises `Failure` if the hub runs but does not answer."""
    import asyncio

    from tieline.wire.home import read_running

    running = read_running(home)
    return Status(
        version=__version__,
        commit=commit(),
        home=str(home),
        hub=None if running is None else asyncio.run(_ask(home, running)),
        disk=_disk(home) if home.is_dir() else None,
        backup=last_backup(home),
        pipeline_at_ms=_pipeline_at_ms(home),
    )


async def _ask(home: Path, running: "Running") -> Hub:
    import asyncio

    from tieline.cli.doctor_home import ask_health
    from tieline.wire.home import RUN_FILE

    # The home is named, so that an address in the environment does not lead to another hub.
    async with await Link(home=home).open_operator() as operator:
        members = await operator.members()
        logs = await operator.readers()
    silent, reported = await asyncio.to_thread(ask_health, running.pinned)
    problems = [f"{what}: {reason} ({do})" if do else f"{what}: {reason}" for what, reason, do in reported]
    if silent:
        problems.insert(0, f"{running.http} does not answer: {silent}")
    ends = {log.log: log.end for log in logs.logs}
    busiest = sorted((member for member in members if member.backlog), key=lambda member: -member.backlog)
    return Hub(
        pid=running.pid,
        version=running.version,
        started_at_ms=(home / RUN_FILE).stat().st_mtime_ns // 1_000_000,
        http=running.http,
        url=running.invited_to,
        problems=tuple(problems),
        doors=_doors(home, running, [protocol for member in members for protocol in member.sessions]),
        members=len(members),
        connected=sum(bool(member.sessions) for member in members),
        backlog=sum(member.backlog for member in members),
        held=sum(member.held for member in members),
        waiting=tuple(Waiting(member.name, member.backlog, member.held) for member in busiest[:_WAITING_MAX]),
        readers=tuple(ReaderLag(one.name, one.log, ends[one.log] - one.position, one.at_ms) for one in logs.readers),
        role=running.role,
        term=running.term,
        leader=running.leader,
    )


def _doors(home: Path, running: "Running", sessions: list[str]) -> tuple[Door, ...]:
    from tieline.protocols import protocols
    from tieline.server.config_origin import recorded

    effective = recorded(home)
    switched_off = {one.name for one in effective.settings if one.value is False} if effective else set()
    doors = [Door("tieline", (running.hub_socket,), sessions.count("tieline"))]
    for protocol in protocols():
        places = tuple(place for name in protocol.places if (place := running.places.get(name)))
        count = sum(sessions.count(name) for name in (protocol.name, *protocol.other_names))
        if places or f"{protocol.section}.enabled" not in switched_off:
            doors.append(Door(protocol.name, places, count))
    return tuple(doors)


def _disk(home: Path) -> Disk:
    parts = {path.name: _size(path) for path in home.iterdir()}
    largest = sorted(parts, key=lambda name: -parts[name])[:_WAITING_MAX]
    return Disk(sum(parts.values()), {name: parts[name] for name in largest}, shutil.disk_usage(home).free)


def _size(path: Path) -> int:
    """Return the bytes on disk of a file, or of all files in a folder. A file may vanish meanwhile."""
    try:
        if path.is_dir() and not path.is_symlink():
            return sum(_size(inner) for inner in path.iterdir())
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


class _ReportTime(Struct):
    """The time in a report of the pipeline, without the rest of the report."""

    refreshed_at_ms: int


def _pipeline_at_ms(home: Path) -> int | None:
    from tieline.wire.insights import FILE

    try:
        return msgspec.json.decode((home / FILE).read_bytes(), type=_ReportTime).refreshed_at_ms
    except (OSError, msgspec.MsgspecError):
        return None


# People read this.


def _lines(found: Status) -> list[tuple[str, str]]:
    now_ms = time.time_ns() // 1_000_000
    lines = [("home", found.home)]
    if found.hub is not None:
        lines += _hub_lines(found.hub, now_ms)
    if found.disk is not None:
        parts = ", ".join(f"{name} {_bytes(size)}" for name, size in found.disk.parts.items())
        lines.append(("disk", f"{_bytes(found.disk.used_bytes)} used ({parts}); {_bytes(found.disk.free_bytes)} free"))
    backup = "none yet"
    if found.backup is not None:
        checked = "verified" if found.backup.verified else "not verified"
        backup = (
            f"{_passed(now_ms, found.backup.at_ms)} ago, {checked}: {found.backup.file} ({_bytes(found.backup.bytes)})"
        )
    lines.append(("backup", backup))
    lines.append(("pipeline", _pipeline_line(found, now_ms)))
    lines.append(("version", f"{found.version} ({found.commit})" if found.commit else found.version))
    return lines


def _hub_lines(hub: Hub, now_ms: int) -> list[tuple[str, str]]:
    passed = _passed(now_ms, hub.started_at_ms)
    lines = [("hub", f"version {hub.version} is running as process {hub.pid}, for {passed}")]
    lines += [("problem", problem) for problem in hub.problems]
    if hub.role == "leader":
        lines.append(("cluster", f"this hub leads, in term {hub.term}"))
    elif hub.role:
        lines.append(("cluster", f"this hub follows {hub.leader}, in term {hub.term}"))
    lines.append(("http", hub.http))
    if hub.url != hub.http:
        lines.append(("elsewhere", hub.url))
    for index, door in enumerate(hub.doors):
        sessions = "1 session " if door.sessions == 1 else f"{door.sessions} sessions"
        places = ", ".join(door.places) or "on the HTTP port"
        lines.append(("" if index else "doors", f"{door.protocol:<16}{sessions}  {places}"))
    lines.append(("members", f"{hub.members}, {hub.connected} connected"))
    waiting = "1 message" if hub.backlog == 1 else f"{hub.backlog} messages"
    if hub.held:
        waiting += f", {hub.held} of them held"
    if hub.waiting:
        waiting += f"; most for {', '.join(f'{one.member} {one.backlog}' for one in hub.waiting)}"
    return [*lines, ("waiting", waiting)]


def _pipeline_line(found: Status, now_ms: int) -> str:
    report = "never ran" if found.pipeline_at_ms is None else f"report of {_passed(now_ms, found.pipeline_at_ms)} ago"
    readers = (
        []
        if found.hub is None
        else [f"{one.name} has {one.unread} rows of {one.log} to read" for one in found.hub.readers]
    )
    return "; ".join((report, *readers))


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:  # noqa: PLR2004 - the next unit
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _passed(now_ms: int, at_ms: int) -> str:
    """Return the time between two times as text, such as `3 hours`: in the largest unit with a number of at least 2."""
    passed = max(0, now_ms - at_ms)
    for unit_ms, unit in ((_DAY_MS, "days"), (_HOUR_MS, "hours"), (_MINUTE_MS, "minutes")):
        if passed >= 2 * unit_ms:
            return f"{passed // unit_ms} {unit}"
    return f"{passed // 1000} seconds"
