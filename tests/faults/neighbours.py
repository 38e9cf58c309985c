"""Processes that use an adopted spool and are killed at any moment: `python -m tests.faults.neighbours ROLE …`.

They know the layout of a spool, but not the hub that has adopted it. The role `write ROOT NAME FIRST TARGET…` sends
numbered messages to the targets in turn. It prints each number with its target after it has renamed all copies. The
role `take ROOT AGENT` takes messages, and prints each one after it has renamed the file.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.protocols.backchannel.raw import Raw


def say(text: str) -> None:
    """Print a line and flush it at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(root: str, name: str, first: str, *targets: str) -> None:
    """Send numbered messages to `targets` in turn, until killed. The first number is `first`."""
    spool = Raw(Path(root))
    number = int(first)
    while True:
        target = targets[number % len(targets)]
        spool.send(name, target, f"{name}/{number}")
        say(f"{number} {target}")
        number += 1
        time.sleep(0.002)


def take(root: str, agent: str) -> None:
    """Take the messages of an agent until killed. A message that was taken but not printed is still in `cur/`."""
    spool = Raw(Path(root))
    cur = spool.root / "spool" / agent / "cur"
    cur.mkdir(parents=True, exist_ok=True)
    while True:
        for message in spool.inbox(agent):
            claimed = cur / f"{message['id']}.json"
            try:
                (spool.new(agent) / claimed.name).rename(claimed)
            except FileNotFoundError:
                continue
            say(message["body"])
            claimed.unlink()
        time.sleep(0.002)


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"write": write, "take": take}
    roles[sys.argv[1]](*sys.argv[2:])
