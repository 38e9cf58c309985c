"""Processes that use one spool and may be killed at any moment: `python -m tests.faults.spooler ROLE ROOT …`.

ROLE is one of four. `drain` prints `ready`, waits for a line, takes all messages and prints them. `write` sends
numbered messages until it is killed, and prints each number after its message was accepted. `read` takes messages until
it is killed, and prints each message after it is durably claimed. `stop` stops at a given step, and prints a line.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.spool import Spool, SpoolDraft


def say(text: str) -> None:
    """Print a line and flush it at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def drain(root: str) -> None:
    """Take all messages of bob like `tieline drain`, and print their bodies."""
    spool = Spool(Path(root))
    say("ready")
    sys.stdin.readline()
    taken: list[str] = []
    with spool.claims("bob") as claims:
        spool.recover("bob")
        while waiting := spool.inbox("bob"):
            mine = [message for message in waiting if claims.claim(message.id) is not None]
            claims.sync()
            taken += [message.body for message in mine]
            for message in mine:
                claims.finish(message.id)
    say(json.dumps(taken))


def write(root: str, name: str) -> None:
    """Send numbered messages to bob and to a channel in turn, until killed."""
    spool = Spool(Path(root))
    spool.register(name)
    number = 0
    while True:
        target = "#all" if number % 3 == 0 else "@bob"
        spool.send(SpoolDraft(sender=name, to=target, body=f"{name}/{number}" + "x" * (number % 7) * 3000))
        say(f"{number} {target}")
        number += 1


def read(root: str, agent: str) -> None:
    """Take the messages of an agent and print their bodies, until killed."""
    spool = Spool(Path(root))
    with spool.claims(agent) as claims:
        while True:
            spool.recover(agent)
            for message in spool.inbox(agent):
                if claims.claim(message.id) is not None:
                    claims.sync()
                    say(message.body.rstrip("x"))
                    claims.finish(message.id)
            time.sleep(0.001)


def stop(root: str, step: str) -> None:
    """Use the spool up to one exact step, print a line, and wait until killed."""

    def here(*_: object) -> None:
        say("here")
        time.sleep(600)  # the test kills it here

    def half(descriptor: int, data: bytes) -> None:
        write_all(descriptor, bytes(data)[: len(data) // 2])
        here()

    spool = Spool(Path(root))
    write_all = os.write
    # The step itself is replaced, so the process stops exactly before it.
    replaced = {"half-written": (os, "write", half), "written": (disk, "sync", here), "synced": (Path, "rename", here)}
    if step in replaced:
        setattr(*replaced[step])
        spool.send(SpoolDraft(sender="alice", to="@bob", body="half" * 1000))
    else:
        assert step == "claimed", step
        spool.claims("bob").claim(spool.inbox("bob")[0].id)
        here()


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"drain": drain, "write": write, "read": read, "stop": stop}
    roles[sys.argv[1]](*sys.argv[2:])
