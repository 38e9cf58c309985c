"""The context: where a reader is, which decides which scoped messages are for it.

Above: `drain` and `watch`. Below: git. Whoever names no context is where the current folder's repository comes from;
scoped messages are rare, so nobody asks git before there is one.
"""

import subprocess
from functools import cache

from tieline.contract.scope import matches

_GIT_SECONDS_MAX = 5.0  # a repository on a dead network disk must not hold the command


class Context:
    """The context that `--match` names, else the git remote of the current folder, else none."""

    def __init__(self, named: str | None) -> None:
        self._named = named

    def takes(self, scope: str | None) -> bool:
        """Whether a message of this scope is for a reader here."""
        if not scope:
            return True
        return matches(scope, git_remote() if self._named is None else self._named)


@cache
def git_remote() -> str | None:
    """The address that the repository around the current folder comes from: `origin`, else its first remote."""
    command = ["git", "config", "--get-regexp", r"^remote\..*\.url$"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, check=False, capture_output=True, text=True, timeout=_GIT_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    remotes = dict(line.split(" ", maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    return remotes.get("remote.origin.url") or next(iter(remotes.values()), None)
