"""Golden test of an adopted spool of backchannel: the files that the hub writes, takes and refuses."""

import json
from pathlib import Path

from tests.golden.native_client import FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.protocols.backchannel.adopted_spools import eventually
from tests.protocols.backchannel.raw import Raw
from tests.server.hubs import ALONE, until

_BEFORE = "2026-12-31T12:00:00.000Z"


class Spool:
    """Test helper: the folder of the spool, with its files in the transcript."""

    def __init__(self, there: Stage) -> None:
        assert there.there.running.places["spool"] is not None
        self.stage = there
        self.root = Path(there.there.running.places["spool"])
        self._written = 0

    async def joined(self, name: str, *channels: str) -> None:
        """Wait until an agent is a member of the hub, has a session, and is subscribed to these channels."""
        operator = await self.stage.there.operator()

        async def is_there() -> bool:
            there = [one.name for one in await operator.members() if "spool" in one.sessions]
            joined = [f"#{one.name}" for one in await operator.channels() if name in one.subscribers]
            return name in there and set(channels) <= set(joined)

        await eventually(is_there)

    async def reached(self, body: str, state: str) -> None:
        """Wait until the hub has a message with this body, and its delivery has this state."""
        operator = await self.stage.there.operator()

        async def is_there() -> bool:
            found = [message.id for message in await operator.history() if message.body == body]
            receipts = [receipt for one in found for receipt in await operator.receipts(one)]
            return any(receipt.state == state for receipt in receipts)

        await eventually(is_there)

    async def show(self, name: str, *, having: str = "") -> None:
        """Wait until a file of the spool exists and contains `having`, then record its content."""
        path = self.root / name
        await until(lambda: path.exists() and having in path.read_text())
        self.stage.recorder.heard(name, path.read_text())

    async def show_new(self, agent: str) -> Path:
        """Wait until an agent has exactly one unread message, then record its file. Return the path."""
        folder = self.root / "spool" / agent / "new"
        await until(lambda: len(self.listed(folder)) == 1)
        (path,) = folder.iterdir()
        self.stage.recorder.heard(str(path.relative_to(self.root)), path.read_text())
        return path

    async def write(self, agent: str, body: str, sender: str, **fields: object) -> None:
        """Write a message file into an agent's mailbox, like a program that does not know the hub."""
        self._written += 1
        made = {"id": f"00000000-0000-4000-8000-{self._written:012}", "from": sender, "to": f"@{agent}", "body": body}
        message = {**made, "priority": "normal", "ts": _BEFORE, **fields}
        await self.stage.turn()
        self.stage.recorder.said(f"spool/{agent}/new/{made['id']}.json", json.dumps(message))
        Raw(self.root).put(agent, message)

    async def take(self, agent: str) -> None:
        """Wait for an unread message of an agent, record it, and remove its file, like a reader that has handled it."""
        path = await self.show_new(agent)
        body = json.loads(path.read_text())["body"]
        await self.reached(body, "offered")
        await self.stage.turn()
        self.stage.recorder.said(str(path.relative_to(self.root)), "(is taken)")
        path.unlink()
        await self.reached(body, "acked")

    @staticmethod
    def listed(folder: Path) -> list[str]:
        """Return the sorted names in a folder; an empty list if the folder is missing."""
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    async def show_tree(self, agent: str) -> None:
        """Record the folders of an agent's mailbox and their permissions."""
        folder = self.root / "spool" / agent
        found = [path for path in sorted(folder.iterdir()) if path.is_dir()]
        lines = [f"{path.relative_to(folder)} {path.stat().st_mode & 0o777:o}" for path in found]
        self.stage.recorder.heard(f"spool/{agent}", *lines)


async def play(folder: Path, recorder: Recorder) -> None:
    """Send messages from the hub into the spool and from the spool to the hub, and record the conversation."""
    async with stage(folder, recorder, **ALONE | {"backchannel": True, "adopt": True}) as there:
        spool, hub = Spool(there), Sockets(there)
        recorder.section("a member of the hub has a record and a mailbox")
        await there.there.add("ada", permissions=("members.manage", "log.read"))
        await spool.show("agents/ada.json")
        await spool.show("spool/ada/hub/mailbox.json")
        await spool.show_tree("ada")
        ada = await hub.join("ada", there.there.tokens["ada"], receive=True)
        recorder.section("a local agent is a member of the hub")
        await _local(spool, ada, "lou", "#builds")
        await spool.show("spool/lou/hub/mailbox.json", having="#builds")
        recorder.section("from the hub to a local agent")
        await _out(spool, ada)
        recorder.section("from a local agent to the hub")
        await _in(spool, ada)
        recorder.section("from a local agent to a local agent")
        await _local(spool, ada, "lea")
        await spool.write("lea", "from lou to lea", "lou")
        await spool.reached("from lou to lea", "offered")
        await ada.ask("read_history", everything=True, limit=1)
        await spool.take("lea")
        recorder.section("channels")
        await ada.ask("sub", channel="builds")
        await spool.show("agents/ada.json", having="#builds")
        await ada.send("#builds", "to a channel of both")
        await spool.take("lou")
        await spool.write("ada", "to the channel from here", "lou", to="#builds")
        await ada.hear()
        await ada.ask("channels")
        recorder.section("a local agent that goes")
        await ada.ask("remove_member", name="lea")
        await until(lambda: not (spool.root / "agents" / "lea.json").exists())
        await ada.ask("members")


async def _local(spool: Spool, ada: Native, name: str, *channels: str) -> None:
    record = {"name": name, "subscriptions": [*channels], "createdAt": _BEFORE, "lastSeen": _BEFORE}
    await spool.stage.turn()
    spool.stage.recorder.said(f"agents/{name}.json", json.dumps(record))
    (spool.root / "spool" / name / "new").mkdir(parents=True)
    (spool.root / "agents" / f"{name}.json").write_text(json.dumps(record))
    await spool.joined(name, *channels)
    await ada.ask("members")


async def _out(spool: Spool, ada: Native) -> None:
    plain = await ada.send("@lou", "hello lou")
    await spool.reached("hello lou", "offered")
    await ada.ask("follow", id=plain)
    await spool.show("spool/lou/hub/placed")
    await spool.take("lou")
    await ada.hear()
    await ada.ask("read_receipts", id=plain)
    await ada.send("@lou", "all of it", **FULL, reply_to=plain)
    await spool.take("lou")
    brief = await ada.send("@lou", "not for long", ttl_ms=2000)
    await spool.reached("not for long", "offered")
    await ada.ask("follow", id=brief)
    await spool.show_new("lou")
    await spool.stage.turn()
    await ada.hear()
    await until(lambda: not spool.listed(spool.root / "spool" / "lou" / "new"))


async def _in(spool: Spool, ada: Native) -> None:
    await spool.write("ada", "hello ada", "lou")
    await ada.hear()
    more = {"priority": "low", "scope": "repo", "thread": "t-1", "refs": ["a"], "own": {"k": 1}}
    await spool.write("ada", "all of it", "lou", **more)
    await ada.hear()
    await spool.write("ada", "from nobody", "somebody")
    await ada.hear()
    refused = spool.root / "spool" / "ada" / "refused"
    await spool.write("ada", "as ada herself", "ada")
    await until(lambda: len(spool.listed(refused)) == 1)
    await spool.write("ada", "", "lou")
    await until(lambda: len(spool.listed(refused)) == 2)
    for name in spool.listed(refused):
        await spool.show(f"spool/ada/refused/{name}")
    await until(lambda: spool.listed(spool.root / "spool" / "ada" / "hub") == ["mailbox.json"])
    await spool.show_tree("ada")
