"""The hub that listens on a port of this machine already: finds its home, for the error of a second hub.

Used by: `serve`. Uses: the homes that this user can read, and `/healthz`. A hub tells nobody its home by HTTP, because
strangers can ask. So the home is found by files: the homes that are known, and the folders with sockets of processes.
"""

import contextlib
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

_SOCKETS = Path("/proc/net/unix")
"""List of the Unix sockets of this machine. Only Linux has it."""
_ANSWER_SECONDS = 1.0  # a hub that works answers in milliseconds
_HEALTH_BYTES_MAX = 64 * 1024  # the answer is a few lines
_PATH_FIELD = 7  # fields before the path of a socket; the path may have spaces


def find_home_of(address: tuple[str, int]) -> Path | None:
    """Return the home of the running hub that listens on this address.

    Return `None` if no hub listens there, or if this user cannot read its home.
    """
    from tieline.wire.home import read_running

    for home in dict.fromkeys(_homes()):
        try:
            running = read_running(home)
        except OSError:
            # The folder belongs to another user.
            continue
        if running is not None and _is_same(address, urlsplit(running.http)):
            return home
    return None


def is_hub(address: tuple[str, int]) -> bool:
    """Return true if a hub answers at this address, with or without TLS."""
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    return any(_is_health_of_hub(f"{scheme}://{shown}:{port}") for scheme in ("http", "https"))


def _is_health_of_hub(url: str) -> bool:
    import http.client

    import msgspec

    from tieline.wire.tls import open_http

    with contextlib.closing(open_http(url, _ANSWER_SECONDS, verified=False)) as connection:
        try:
            connection.request("GET", "/healthz")
            text = connection.getresponse().read(_HEALTH_BYTES_MAX)
            return {"status", "version"} <= msgspec.json.decode(text, type=dict[str, Any]).keys()
        except (OSError, http.client.HTTPException, msgspec.MsgspecError):
            return False


def _homes() -> Iterator[Path]:
    from tieline.wire.home import default_home, find_home

    yield find_home()
    yield default_home()
    try:
        lines = _SOCKETS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines[1:]:
        fields = line.split(maxsplit=_PATH_FIELD)
        if len(fields) > _PATH_FIELD and fields[_PATH_FIELD].startswith("/"):
            yield Path(fields[_PATH_FIELD]).parent


def _is_same(address: tuple[str, int], url: SplitResult) -> bool:
    """Return true if a listener on the address of `url` keeps another one from `address`."""
    host, port = address
    return port == url.port and (host == url.hostname or any(map(_is_every, (host, url.hostname or ""))))


def _is_every(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
