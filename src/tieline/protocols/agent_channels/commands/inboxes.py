"""Check of a running hub: finds inboxes that have no socket.

Used by: `tieline doctor`. Uses: the folder of the sockets.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tieline.cli.doctor_finding import DoctorFinding, wrong
from tieline.contract.identifiers import INBOX_PREFIX
from tieline.protocols.agent_channels.group import GROUP_FILE
from tieline.wire.unix import PATH_BYTES_MAX

_SHOWN_MAX = 5  # this many names fit on a line


def inbox_paths(channels_dir: str, names: Sequence[str]) -> Iterator[DoctorFinding]:
    """Yield findings (problems that `tieline doctor` reports) about members whose inbox has no socket.

    `names` are the members to check. An inbox has no socket if the path of the socket is too long, or if the limit of
    open files is too low.
    """
    long = [
        name for name in names if len(os.fsencode(Path(channels_dir, f"{INBOX_PREFIX}{name}.sock"))) > PATH_BYTES_MAX
    ]
    listed = _listed(channels_dir)
    # If no inbox is listed, inbox sockets are turned off.
    off = not any(name.startswith(INBOX_PREFIX) for name in listed)
    left_out = [] if off else [name for name in names if INBOX_PREFIX + name not in listed and name not in long]
    files, limit = (
        "the limit of open files is too low",
        "raise it where the hub is started (ulimit -Hn), and start it anew",
    )
    for some, why, do in (
        (long, "its path would be too long", "tieline serve --channels-dir DIR, a shorter one"),
        (left_out, files, limit),
    ):
        if some:
            shown = ", ".join(some[:_SHOWN_MAX]) + ("…" if len(some) > _SHOWN_MAX else "")
            what = f"{len(some)} members have no inbox socket, because {why}: {shown}"
            yield wrong("hub", what, "agent-channels cannot reach them", do)


def _listed(channels_dir: str) -> set[str]:
    """Return the names of the sockets in `group.json`, or an empty set if the file is missing or invalid."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return {entry["name"] for entry in json.loads(Path(channels_dir, GROUP_FILE).read_bytes())["channels"]}
    return set()
