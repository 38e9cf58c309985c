"""A foreign program for tests that knows only the layout of a spool, like the first program of backchannel.

It uses plain files without sync and locks, and overwrites records. It is also a process: `python -m
tests.protocols.backchannel.raw ROOT COMMAND …`, which prints its result as JSON.
"""

import json
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]


_last_ms = 0


def now() -> str:
    """Return a timestamp for a message. Each call returns a later one, so that messages have an order."""
    global _last_ms  # noqa: PLW0603 - one clock for the process
    _last_ms = max(_last_ms + 1, time.time_ns() // 1_000_000)
    moment = datetime.fromtimestamp(_last_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Raw:
    """Test client: one spool, used through plain files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def new(self, agent: str) -> Path:
        """Return the folder of an agent's unread messages."""
        return self.root / "spool" / agent / "new"

    def init(self, name: str, *channels: str) -> None:
        """Create the mailbox and the record of an agent, and subscribe it to channels."""
        (self.root / "agents").mkdir(parents=True, exist_ok=True)
        self.new(name).mkdir(parents=True, exist_ok=True)
        known = self.record(name) or {"name": name, "subscriptions": [], "createdAt": now()}
        self.write_record({**known, "subscriptions": [*known["subscriptions"], *channels], "lastSeen": now()})

    def record(self, name: str) -> Json | None:
        """Return an agent's record, or `None` if it has none."""
        try:
            record: Json = json.loads((self.root / "agents" / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return record

    def write_record(self, record: Json) -> None:
        """Overwrite an agent's record."""
        (self.root / "agents" / f"{record['name']}.json").write_text(json.dumps(record, indent=2))

    def agents(self) -> dict[str, Json]:
        """Return all agents' records by name."""
        names = sorted(path.stem for path in (self.root / "agents").glob("*.json"))
        # One may be removed between the look at the folder and the look at the file.
        return {name: record for name in names if (record := self.record(name)) is not None}

    def send(self, sender: str, to: str, body: str, **fields: Any) -> Json:
        """Send a message to an agent, or to all subscribers of a channel except the sender. Return the message."""
        if to.startswith("#"):
            names = [name for name, record in self.agents().items() if to in record["subscriptions"] and name != sender]
        else:
            names = [to.removeprefix("@")]
            assert self.record(names[0]) is not None, f"unknown agent {names[0]}"
        assert names, "nobody to deliver to"
        message = {"id": str(uuid.uuid4()), "from": sender, "to": to, "body": body, "priority": "normal", "ts": now()}
        message |= fields
        for name in names:
            self.put(name, message)
        return message

    def put(self, agent: str, message: Json) -> None:
        """Write a message file to `tmp/` and rename it into `new/`, so that readers never see an incomplete file."""
        temporary = self.root / "spool" / agent / "tmp" / f"{message['id']}.json"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        self.new(agent).mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(message))
        temporary.rename(self.new(agent) / temporary.name)

    def names(self, agent: str) -> list[str]:
        """Return the names of the files in an agent's `new/`."""
        return [path.name for path in self.new(agent).iterdir()]

    @staticmethod
    def read(path: Path) -> Json:
        """Return the message in a file."""
        message: Json = json.loads(path.read_text())
        return message

    def inbox(self, agent: str) -> list[Json]:
        """Return an agent's unread messages, oldest first."""
        found = []
        for name in self.names(agent):
            try:
                found.append(self.read(self.new(agent) / name))
            except FileNotFoundError:
                continue
        return sorted(found, key=lambda message: message["ts"])

    def take(self, agent: str, message_id: str) -> Json | None:
        """Claim a message by renaming its file, then delete the file.

        Return the message, or `None` if another reader has it.
        """
        claimed = self.root / "spool" / agent / "cur" / f"{message_id}.json"
        claimed.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.new(agent) / claimed.name).rename(claimed)
        except FileNotFoundError:
            return None
        message = self.read(claimed)
        claimed.unlink()
        return message

    def drain(self, agent: str) -> list[Json]:
        """Take all unread messages of an agent. Return them."""
        taken = (self.take(agent, message["id"]) for message in self.inbox(agent))
        return [message for message in taken if message is not None]

    def wait(self, agent: str, count: int, seconds: float = 20.0) -> list[Json]:
        """Take messages of an agent until there are `count`. Return them. Fail after `seconds`."""
        taken: list[Json] = []
        deadline = time.monotonic() + seconds
        while len(taken) < count:
            assert time.monotonic() < deadline, f"{agent} waits for {count} and has {taken}"
            taken += self.drain(agent)
            time.sleep(0.005)
        return taken


def main(root: str, command: str, *args: str) -> None:
    """Run one command, and print its result as JSON."""
    spool = Raw(Path(root))
    match command:
        case "init":
            spool.init(*args)
            answer: Any = None
        case "send":
            answer = spool.send(*args)
        case "wait":
            answer = spool.wait(args[0], int(args[1]))
        case "agents":
            answer = spool.agents()
        case _:
            raise AssertionError(command)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
