"""The context of a reader, such as a git remote. It decides which messages with a scope the reader gets.

Used by: `drain` and `watch`. Uses: git. A sender can limit a message to a scope. Readers in another context do not get
this message. The default context is the git remote of the current folder. Messages with a scope are rare, so git runs
only when such a message comes.
"""

import subprocess
from functools import cache

from tieline.contract.scope import matches

_GIT_SECONDS_MAX = 5.0  # a repository on a dead network disk must not hold the command


class Context:
    """Context of a reader: the one that `--match` names, else the git remote of the current folder, else none.

    The context decides which messages with a scope are for the reader.
    """

    def __init__(self, named: str | None) -> None:
        self._named = named

    def takes(self, scope: str | None) -> bool:
        """Return true if a message with this scope is for a reader in this context.

        A message without a scope is for every reader.
        """
        if not scope:
            return True
        return matches(scope, git_remote() if self._named is None else self._named)


@cache
def git_remote() -> str | None:
    """Return the URL of the current folder's git remote: `origin`, else the first remote; `None` if there is none."""
    command = ["git", "config", "--get-regexp", r"^remote\..*\.url$"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, check=False, capture_output=True, text=True, timeout=_GIT_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    remotes = dict(line.split(" ", maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    return remotes.get("remote.origin.url") or next(iter(remotes.values()), None)
