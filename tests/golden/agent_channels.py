"""Golden test of agent-channels: sockets of channels and inboxes in a folder, and the list `group.json`."""

import json
from pathlib import Path
from typing import Any

from tests.golden.framed import Framed
from tests.golden.native_client import FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.server.hubs import ALONE, until


class Group:
    """Test helper: makes clients for the hub's folder of sockets."""

    def __init__(self, there: Stage) -> None:
        self.stage = there
        self._folder = there.there.home / "channels" / "main"
        there.recorder.expect("pid", r'"pid": (\d+)')
        # Of another clock than the hub's.
        there.recorder.expect("now", r'"created": "(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"', alike=True)

    async def dial(self, name: str, socket: str) -> Framed:
        """Connect to a socket once it exists, and send nothing. The transcript names the connection `name@socket`."""
        path = self._folder / f"{socket}.sock"
        await until(path.exists)
        return await Framed.dial(self.stage, f"{name}@{socket}", path)

    async def post(self, socket: str, *payloads: str) -> Framed:
        """Connect to a socket and write frames at once, like a client that only sends."""
        await self.stage.turn()
        writer = await self.dial("writer", socket)
        writer.say_at_once(*payloads)
        return writer

    async def list(self, *names: str) -> None:
        """Wait until `group.json` lists exactly these sockets, and record its content in the transcript."""
        path = self._folder / "group.json"

        def complete() -> bool:
            listed: list[dict[str, Any]] = json.loads(path.read_text())["channels"]
            return {one["name"] for one in listed} == set(names)

        await until(complete)
        self.stage.recorder.heard("group.json", path.read_text())
        sockets = sorted(f"{one.name} {one.stat().st_mode & 0o777:o}" for one in self._folder.glob("*.sock"))
        self.stage.recorder.heard("the folder", *sockets)


async def play(folder: Path, recorder: Recorder) -> None:
    """Send to and listen at every kind of socket, and record the conversation."""
    async with stage(folder, recorder, **ALONE | {"agent_channels": True}) as there:
        group, hub = Group(there), Sockets(there)
        recorder.section("sockets come and go with members and channels")
        await group.list("general")
        await there.there.add("ada", "bob")
        await group.list("general", "inbox-ada", "inbox-bob")
        ada = await hub.join("ada", there.there.tokens["ada"], receive=True)
        await ada.ask("sub", channel="builds")
        await group.list("general", "inbox-ada", "inbox-bob", "builds")
        recorder.section("a channel")
        await _channel(group, ada)
        recorder.section("everybody's channel")
        await _general(group, ada)
        recorder.section("an inbox")
        await _inbox(group, ada)
        recorder.section("no frames")
        await _noise(group)
        recorder.section("a member that goes")
        await ada.ask("unsub", channel="builds")
        await group.list("general", "inbox-ada", "inbox-bob")
        await ada.leave()


async def _channel(group: Group, ada: Native) -> None:
    first, second = await group.dial("first", "builds"), await group.dial("second", "builds")
    await first.say('{"msg":"hello builds"}')
    await second.hear()
    await ada.hear()
    labels = '"title":"A title","level":"warning","priority":"urgent","scope":"s","thread":"t","refs":["r"]'
    await second.say(f'{{ "msg": "all of it", "data": {{"n": 1.0, {labels}}}, "type": "own", "v": 2}}')
    await first.hear()
    await ada.hear()
    await first.say('{"msg":"as somebody else","data":{"from":"ada","tieline":{"id":"forged"}}}')
    await second.hear()
    await ada.hear()
    await first.say('{"msg":"half a pair: \\ud83d","data":{"from":"a name of its own"}}')
    await second.hear()
    await ada.hear()
    answered = await ada.send("#builds", "from another protocol", **FULL, allow_empty=True)
    await first.hear()
    await second.hear()
    await first.say(json.dumps({"msg": "an answer", "data": {"reply_to": answered}}))
    await second.hear()
    await ada.hear()
    await first.leave()
    await second.leave()


async def _general(group: Group, ada: Native) -> None:
    listener = await group.dial("listener", "general")
    await ada.send("*", "to everybody")
    await listener.hear()
    await ada.send("#general", "to the channel of everybody", priority="urgent")
    await listener.hear()
    await listener.say('{"msg":"for every member"}')
    await ada.hear()
    await listener.leave()


async def _inbox(group: Group, ada: Native) -> None:
    message = await ada.send("@bob", "before anybody listens", refs=["https://example.org"])
    bob = await group.dial("bob", "inbox-bob")
    # Waiting messages: the ones for every member, and this one.
    for _ in range(4):
        await bob.hear()
    await ada.send("@bob", "while somebody listens")
    await bob.hear()
    writer = await group.post("inbox-bob", '{"msg":"from a stranger"}')
    await bob.hear()
    await ada.ask("read_receipts", id=message)
    await ada.ask("follow", id=message, until="acked")
    await bob.say('{"msg":"to my own inbox"}')
    await writer.hear()
    post = await group.post("inbox-ada", '{"msg":"and to ada","data":{"priority":"urgent"}}')
    await ada.hear()
    await post.leave()
    await writer.leave()
    await bob.leave()


async def _noise(group: Group) -> None:
    for payload in (
        "no JSON",
        "[]",
        "{}",
        '{"msg":""}',
        '{"msg":1}',
        '{"msg":"x","data":null}',
        '{"msg":"x","data":[]}',
        '{"msg":"x","msg":"y"}',
    ):
        stranger = await group.dial("stranger", "general")
        await stranger.say(payload)
        await stranger.ended()
    for data in ("00000000", "ffffffff"):
        stranger = await group.dial("stranger", "general")
        await stranger.say_raw(bytes.fromhex(data))
        await stranger.ended()
