"""Checks of a hub's home folder: its permissions, its files, the free disk space, and the hub's listeners.

Used by: `doctor`. Uses: the file system and the listeners. The checks only read files and open connections. They change
nothing.
"""

import contextlib
import http.client
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tieline import __version__
from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.cli.extension import extensions, extensions_by_name
from tieline.server.home import is_free
from tieline.wire.address import is_loopback, parse_address
from tieline.wire.folder import own_folder
from tieline.wire.home import CONFIG_FILE, HUB_SOCKET, KEY_FILE, RESTORE_FOLDER, RUN_FILE, Running, read_running
from tieline.wire.room import ROOMS_FOLDER
from tieline.wire.tls import open_http
from tieline.wire.unix import PATH_BYTES_MAX

if TYPE_CHECKING:
    from tieline.server.config import Http

_OTHERS = 0o077
"""Permission bits of everybody but the owner of a file."""
_FREE_BYTES_MIN = 256 * 1024 * 1024
_FREE_BYTES_FEW = 1024 * 1024 * 1024
_ANSWER_SECONDS = 2.0  # a hub that works answers in milliseconds
_OK = 200
_HEALTH_BYTES_MAX = 64 * 1024  # the answer is a few lines
_SECRETS = {
    KEY_FILE: "whoever reads it can act as any member",
    CONFIG_FILE: "it holds the secrets by which members prove who they are",
    "tls.key": "whoever reads it can pretend to be this hub",
    "audit.key": "whoever reads it can sign a forged audit",
}


def has_hub(home: Path) -> bool:
    """Return true if a hub was ever started in this home folder."""
    return any((home / name).exists() for name in (KEY_FILE, RUN_FILE, "tieline.db", "activity.db"))


def look_at_home(home: Path) -> Iterator[DoctorFinding]:
    """Check a home folder without asking its hub: permissions, configuration, disk space, length of socket paths.

    Yield a finding for each check.
    """
    yield from _openness(home)
    yield from _configuration(home)
    yield from _room(home)
    yield from _paths(home)
    yield from _rooms(home)


def look_at_place(home: Path) -> Iterator[DoctorFinding]:
    """Check that a hub can start in the folder `home`, if it exists.

    Yield a finding if the hub would refuse this folder.
    """
    if not home.exists():
        return
    try:
        own_folder(home)
    except OSError as error:
        what, _, do = str(error).partition(": ")
        yield wrong("home", what, "the hub does not start here", do or "name another folder with --home")
    if (home / RESTORE_FOLDER).exists() and is_free(home):
        what = f"{home} is half restored, because a restore did not end"
        yield wrong("home", what, "the hub does not start here", "delete the folder, and restore again")


def _openness(home: Path) -> Iterator[DoctorFinding]:
    loose = list(look_at_place(home))
    if home.stat().st_mode & _OTHERS and not loose:
        why = "other users of the machine may read it, and reach the hub's sockets"
        loose.append(wrong("home", f"{home} is open to others ({_mode(home)})", why, f"chmod 700 {home}"))
    for path in sorted(home.iterdir()):
        # A file may vanish during the check, and a link has no permissions of its own.
        with contextlib.suppress(FileNotFoundError):
            if path.is_symlink() or not path.stat().st_mode & _OTHERS:
                continue
            why = _SECRETS.get(path.name, "only the hub's owner may read the hub's data")
            mode = "700" if path.is_dir() else "600"
            loose.append(wrong("home", f"{path} is open to others ({_mode(path)})", why, f"chmod {mode} {path}"))
    yield from loose
    if not loose:
        yield well("home", f"only the owner can read {home} and everything in it")


def _mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


def _configuration(home: Path) -> Iterator[DoctorFinding]:
    from tieline.server.config import ConfigError, Http, load_config
    from tieline.server.config_origin import in_use

    path = home / CONFIG_FILE
    if not path.exists():
        yield note("home", f"there is no {CONFIG_FILE}; the next start makes one with new secrets")
        return
    try:
        config = load_config(home)
    except (ConfigError, OSError) as error:
        yield wrong("home", str(error), "the hub does not start with it", f"correct {path}")
        return
    yield well("home", f"{CONFIG_FILE} can be used")
    yield from _exposure(in_use(home).section("http", Http))
    for name, extension in extensions_by_name().items():
        yield from extension.look_at_settings(config.protocols[name], path)


def _exposure(http: "Http") -> Iterator[DoctorFinding]:
    """Yield a finding if a hub with this configuration does not start, because others could reach it without TLS."""
    host = parse_address(http.listen)[0]
    if not (is_loopback(host) or http.is_secure or http.insecure):
        do = f"set tls = true in [http] of {CONFIG_FILE}, or start it with --tls"
        yield wrong("home", f"the hub listens on {host} without TLS", "it does not start so", do)


def notifies(home: Path) -> bool:
    """Return true if the hub's configuration names a command that notifies a human.

    Also return true if the configuration cannot be read.
    """
    from tieline.server.config import ConfigError, load_config

    try:
        return bool(load_config(home).notify.command)
    except ConfigError:
        return True


def _room(home: Path) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(home).free
    text = f"{free / 2**30:.1f} GiB are free on the disk of {home}"
    if free < _FREE_BYTES_MIN:
        why = "a hub that cannot write accepts nothing until there is free space"
        yield wrong("home", text, why, f"df -h {home}; free some space, or move the home and name it with --home")
    elif free < _FREE_BYTES_FEW:
        yield note("home", text)
    else:
        yield well("home", text)


def _paths(home: Path) -> Iterator[DoctorFinding]:
    # The longest path of the sockets that every hub has.
    sockets = [socket for extension in extensions() for socket in extension.sockets]
    longest = max((HUB_SOCKET, *sockets), key=len)
    size = len(os.fsencode(home / longest))
    if size > PATH_BYTES_MAX:
        what = f"{home / longest} has {size} bytes, and the address of a Unix socket holds {PATH_BYTES_MAX}"
        yield wrong("home", what, "local agents cannot connect there", "tieline serve --home DIR, with a shorter path")


def _rooms(home: Path) -> Iterator[DoctorFinding]:
    rooms = home / ROOMS_FOLDER
    found = [path for path in rooms.iterdir() if not path.name.startswith(".")] if rooms.is_dir() else []
    if found:
        count = "1 room" if len(found) == 1 else f"{len(found)} rooms"
        yield well("home", f"{count} besides the common one, each with a home of its own in {rooms}")


def look_at_process(home: Path) -> Iterator[DoctorFinding]:
    """Compare the file `run.json` (the hub's process id, version and addresses) with the running process.

    Also check that the hub answers at these addresses. Yield a finding for each check.
    """
    running = read_running(home)
    start = f"tieline serve --home {home}"
    if running is None:
        if not (home / RUN_FILE).exists():
            yield note("hub", "no hub is running here", start)
            return
        try:
            said = Running.decode((home / RUN_FILE).read_bytes())
            what = f"the hub did not stop cleanly: process {said.pid} is gone, and {RUN_FILE} is still there"
        except (msgspec.MsgspecError, OSError) as error:
            what = f"{home / RUN_FILE} cannot be read: {error}"
        yield wrong("hub", what, "no messages are delivered; nothing that it accepted is lost", start)
        return
    yield well("hub", f"version {running.version} is running as process {running.pid}")
    if running.role:
        yield well("cluster", f"it is a {running.role}; {running.leader or 'nobody'} leads, in term {running.term}")
    # The process id may belong to another program by now, so the advice is to look first and not to kill at once.
    restart = f"ps -p {running.pid}; if that is the hub, stop it; then {start}"
    if running.version != __version__:
        what = f"the hub is version {running.version}, and this command {__version__}"
        yield wrong("hub", what, "they may not understand each other", restart)
    yield from _listeners(running, restart)
    yield from look_at_transport(running)


def look_at_transport(running: Running) -> Iterator[DoctorFinding]:
    """Yield a finding if other machines can reach the hub's HTTP port without TLS."""
    address = urlsplit(running.http)
    if address.scheme != "https" and not is_loopback(address.hostname or ""):
        what = f"other machines can reach {running.http}, without TLS: tokens and messages can be read on the way"
        yield note(
            "hub", what, "start it with --tls, or on a loopback address behind a proxy with TLS; see SECURITY.md"
        )


def _listeners(running: Running, restart: str) -> Iterator[DoctorFinding]:
    others = [where for extension in extensions() for where in extension.listeners(running.places)]
    sockets = [running.hub_socket, *(where for where in others if not _is_url(where))]
    problems = {path: _socket_problem(path) for path in sockets}
    problems[running.http], reported = ask_health(running.pinned)
    for what, reason, do in reported:
        yield wrong("hub", f"{what}: {reason}", "the hub reports this itself", do or "look at what it logs")
    problems |= {url: _port_problem(url) for url in others if _is_url(url)}
    why = "clients that use it cannot reach the hub"
    for where, problem in problems.items():
        if problem:
            yield wrong("hub", f"{where} does not answer: {problem}", why, restart)
    if not any(problems.values()):
        yield well("hub", f"{running.http} and {len(sockets)} Unix sockets answer")


def _is_url(where: str) -> bool:
    return "://" in where


def _socket_problem(path: str) -> str:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(path)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def ask_health(url: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Ask a running hub for its health. Return the reason why the hub does not answer, and the faults that it reports.

    The reason is empty if the hub answers. Each fault is the name of a part of the hub, the reason and the advice.
    """
    # The owner's certificate names the address for others, and this is the one on this machine.
    with contextlib.closing(open_http(url, _ANSWER_SECONDS, verified=False)) as connection:
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            text = answer.read(_HEALTH_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__, []
    with contextlib.suppress(msgspec.MsgspecError, KeyError):
        reasons = msgspec.json.decode(text, type=dict[str, Any])["reasons"]
        return "", [(str(one["what"]), str(one["reason"]), str(one["do"])) for one in reasons]
    return "" if answer.status == _OK else f"status {answer.status}", []


def _port_problem(url: str) -> str:
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port), _ANSWER_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
