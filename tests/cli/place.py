"""Test helper that runs the command line in a home in which no hub has ever run."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cli.hub_process import TIELINE, environment, run_cli
from tieline.protocols.backchannel.spool import Spool, SpoolDraft


class Place:
    """A home in which no hub has ever run, and its spool (a folder in which local agents leave each other messages)."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "spool-home"
        self.spool = Spool(self.root)

    def cli(self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Run `tieline`, which must succeed. Return its output."""
        done = self.run(*args, cwd=cwd, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run `tieline` in this home and wait for its end. Return the exit code and output."""
        return run_cli(self.home, *args, stdin=stdin, env=env, cwd=cwd or self.home.parent)

    @contextlib.contextmanager
    def running(self, *args: str) -> "Iterator[subprocess.Popen[str]]":
        """Start `tieline` in the background. Kill it at the end."""
        with subprocess.Popen(
            [str(TIELINE), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home.parent,
            env=environment(self.home),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def send(self, *bodies: str, to: str = "@bob", scope: str | None = None, priority: str = "normal") -> list[str]:
        """Write messages from alice into the spool in one step, because a command for each is slow. Return the ids."""
        drafts = [SpoolDraft(sender="alice", to=to, body=body, scope=scope, priority=priority) for body in bodies]
        return [sent.message.id for sent in self.spool.send_many(drafts)]

    def waiting(self, name: str = "bob") -> list[str]:
        """Return the bodies of a member's unread messages in the spool."""
        return [message.body for message in self.spool.inbox(name)]

    def is_left(self, *bodies: str) -> bool:
        """True if exactly these messages are unread for bob, and bob has claimed none."""
        handled = list((self.root / "spool" / "bob" / "cur").glob("*.claim"))
        return not handled and self.waiting() == list(bodies)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def bodies(output: str) -> list[str]:
    return [item["message"]["body"] for item in json.loads(output)]
