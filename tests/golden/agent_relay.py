"""Golden test of Agent Relay: handshakes, messages, synchronous sends, channels, shadows, queries, resume."""

import json
from pathlib import Path
from typing import Any

from tests.golden.framed import Framed
from tests.golden.native_client import FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.protocols.agent_relay.wire import Frame, frame
from tests.server.hubs import ALONE

_SLOW = "[agent_relay]\nheartbeat_ms = 600000\n"
_BRISK = "[agent_relay]\nheartbeat_ms = 500\nrequire_resume_token = true\n"
_RELAY = ALONE | {"agent_relay": True}


class Agent:
    """Test client: one connection of an agent, which numbers its frames."""

    def __init__(self, framed: Framed, name: str) -> None:
        self.framed = framed
        self.name = name
        self.welcome: Frame = {}
        self._number = 0

    async def say(self, kind: str, payload: Frame | None = None, **fields: Any) -> str:
        """Write a frame. Return its id."""
        self._number += 1
        made = frame(kind, payload, **{"id": f"{self.framed.name}-{self._number}"} | fields)
        await self.framed.say(json.dumps(made, separators=(",", ":")))
        return str(made["id"])

    async def send(self, to: str, body: str, payload: Frame | None = None, /, **fields: Any) -> str:
        """Send a message. Return the id of its frame."""
        return await self.say("SEND", {"kind": "message", "body": body, **(payload or {})}, to=to, **fields)

    async def hear(self) -> Frame:
        """Wait for the next frame. Return the frame."""
        found: Frame = json.loads(await self.framed.hear())
        return found

    async def ask(self, kind: str, payload: Frame | None = None, /, **fields: Any) -> Frame:
        """Write a frame. Return the next frame that comes."""
        await self.say(kind, payload, **fields)
        return await self.hear()

    async def hello(self, **payload: Any) -> Frame:
        """Send HELLO. Return the payload of the answer WELCOME."""
        self.welcome = (await self.ask("HELLO", {"agent": self.name, **payload}))["payload"]
        return self.welcome

    async def ack(self, delivery: Frame, **payload: Any) -> None:
        """Acknowledge a delivery."""
        await self.say("ACK", {"ack_id": delivery["id"], "seq": delivery["delivery"]["seq"], **payload})

    async def leave(self) -> None:
        """Close the connection."""
        await self.framed.leave()


class Relay:
    """Test helper: makes clients for the hub's Agent Relay socket."""

    def __init__(self, there: Stage) -> None:
        self.stage = there
        there.recorder.expect("uptime", r'"uptime":(\d+)', alike=True)
        there.recorder.expect("bytes", r'"(?:totalMemory|freeMemory|heapUsed)":(\d+)', alike=True)
        there.recorder.expect("hub", r'"h-([0-9a-f]{8})-')

    async def dial(self, name: str, label: str = "") -> Agent:
        """Open a connection and send nothing. The transcript names it `label`, or else `name`."""
        socket = self.stage.there.running.places["relay_socket"]
        assert socket is not None
        return Agent(await Framed.dial(self.stage, label or name, socket), name)

    async def join(self, name: str, label: str = "", /, **payload: Any) -> Agent:
        """Open a connection and send HELLO. The transcript names it `label`, or else `name`."""
        agent = await self.dial(name, label)
        await agent.hello(**payload)
        return agent


async def play(folder: Path, recorder: Recorder) -> None:
    """Send every kind of frame of the protocol, and record the conversation."""
    async with stage(folder, recorder, _SLOW, **_RELAY) as there:
        relay = Relay(there)
        recorder.section("opening a session")
        await _doors(relay)
        ann = await relay.join("ann", capabilities={"ack": True, "accept": True, "max_inflight": 4, "resume": True})
        ben = await relay.join("ben", cli="claude", task="port it", model="m-1", entityType="agent")
        await ann.hear()
        await ben.ask("HELLO", {"agent": "ben"})
        await there.there.add("ada", permissions=("members.manage", "messages.shadow"))
        ada = await Sockets(there).join("ada-native", there.there.tokens["ada"], receive=True)
        recorder.section("messages")
        await _messages(ann, ben, ada)
        recorder.section("answers to wait for")
        await _sync(ann, ben, ada)
        recorder.section("topics and channels")
        await _channels(relay, ann, ben)
        recorder.section("shadows")
        await _shadows(relay, ann, ben)
        recorder.section("questions")
        await _questions(relay, ann, ben)
        recorder.section("resume")
        await _resume(relay, ann, ben)
        recorder.section("requests without HELLO, a tool, a group, a body that is no text")
        await _requests(relay, ann)
        await _more_messages(ann, ben, ada)
        recorder.section("the end")
        await ann.ask("BYE")
        await ann.framed.ended()
        newer = await relay.join("ben", "ben/2")
        await newer.hear()
        await ben.hear()
        await ben.hear()
        await ben.framed.ended()
        await there.there.hub.stop()
        await newer.hear()
        await newer.hear()
        await newer.framed.ended()
    async with stage(folder / "brisk", recorder, _BRISK, **_RELAY) as there:
        recorder.section("a heart that beats fast")
        relay = Relay(there)
        ann = await relay.join("ann")
        await ann.hear()
        await ann.ask("BYE")
        await ann.framed.ended()
        recorder.section("a resume that needs its token")
        again = await relay.dial("ann")
        await again.ask("RESUME", {"agent": "ann", "session_id": ann.welcome["session_id"]})
        token = ann.welcome["resume_token"]
        await again.ask("RESUME", {"agent": "ann", "session_id": ann.welcome["session_id"], "resume_token": token})
        await again.leave()


async def _doors(relay: Relay) -> None:
    early = await relay.dial("early")
    await early.ask("PING", {"nonce": "n-1"})
    await early.ask("STATUS")
    await early.ask("SEND", {"kind": "message", "body": "x"}, to="ann")
    await early.ask("BYE")
    await early.framed.ended()
    for payload in (
        '{"v":1,"type":"HELLO","id":"1","ts":1,"payload":{}}',
        '{"v":1,"type":"HELLO","id":"1","ts":1,"payload":{"agent":"not a name"}}',
        '{"v":1,"type":"HELLO","id":"1","ts":1,"payload":{"agent":"ann","token":"tie_wrong"}}',
        '{"v":2,"type":"HELLO","id":"1","ts":1,"payload":{"agent":"ann"}}',
        '{"v":1,"id":"1","ts":1,"payload":{}}',
        "[]",
        "no JSON",
    ):
        stranger = await relay.dial("stranger")
        await stranger.framed.say(payload)
        await stranger.hear()
        await stranger.hear()
        await stranger.framed.ended()
    noise = await relay.dial("stranger")
    await noise.framed.say_raw(bytes.fromhex("00000000"))
    await noise.hear()
    await noise.hear()
    await noise.framed.ended()


async def _told(*agents: Agent) -> None:
    """Wait until each of these agents got the notice that another agent opened a session."""
    for agent in agents:
        assert (await agent.hear())["type"] == "AGENT_READY"


async def _requests(relay: Relay, ann: Agent) -> None:
    """Send requests without HELLO, each on its own connection. Then act as a tool, which has a reserved name."""
    one = await relay.dial("gus", "gus/1")
    await one.say("SEND", {"kind": "message", "body": "without HELLO"}, to="ann", sender="gus")
    delivery = await ann.hear()
    await one.leave()
    await ann.ack(delivery)
    await ann.send("gus", "to look at")
    await ann.hear()
    requests: list[tuple[str, Frame]] = [
        ("STATUS", {}),
        ("LIST_CONNECTED_AGENTS", {}),
        ("INBOX", {"agent": "gus", "unreadOnly": True}),
        ("INBOX", {"agent": "nobody-yet"}),
        ("INBOX", {"agent": "ada"}),
        ("MESSAGES_QUERY", {"agent": "gus", "order": "asc", "sinceTs": 1, "limit": 1}),
        ("MESSAGES_QUERY", {}),
        ("CHANNEL_JOIN", {"channel": "#dev"}),
    ]
    for number, (kind, payload) in enumerate(requests, start=2):
        asker = await relay.dial("gus", f"gus/{number}")
        await asker.ask(kind, payload)
        await asker.leave()
    thief = await relay.dial("gus", "gus/thief")
    await thief.ask("SEND", {"kind": "message", "body": "as another"}, to="ann", sender="ada")
    await thief.leave()
    tool = await relay.join("__status__", "tool")
    await tool.ask("STATUS")
    await tool.ask("LIST_CONNECTED_AGENTS")
    await tool.ask("SEND", {"kind": "message", "body": "x"}, to="ann")
    await tool.ask("BYE")
    await tool.framed.ended()


async def _more_messages(ann: Agent, ben: Agent, ada: Native) -> None:
    await ben.say("CHANNEL_MESSAGE", {"channel": "dm:ada:ann:ben", "body": "for three"})
    await ann.hear()
    await ada.hear()
    await ben.send("#dev", "answer in the channel", topic="dev")
    await ann.ack(await ann.hear())
    await ben.send("ann", "", {"body": {"any": ["JSON", 1]}})
    await ann.ack(await ann.hear())


async def _messages(ann: Agent, ben: Agent, ada: Native) -> None:
    await ann.send("ben", "hello ben")
    await ann.hear()
    delivery = await ben.hear()
    await ben.ack(delivery)
    full = {"data": {"k": [1, {"deep": True}], "title": "T", "priority": "urgent"}, "thread": "t-1", "own": 1}
    meta = {"requires_ack": True, "ttl_ms": 60_000, "importance": 80, "replyTo": "x"}
    await ann.send("ben", "all of it", full, topic="builds", payload_meta=meta, sender="somebody else")
    await ann.hear()
    await ben.say("NACK", {"ack_id": (await ben.hear())["id"], "code": "BUSY", "reason": "later"})
    await ben.send("ann", "no answer unless refused", {"kind": "action"})
    await ann.ack(await ann.hear())
    await ann.send("*", "to all who are connected")
    await ann.hear()
    await ben.hear()
    await ada.hear()
    await ann.send("@users", "to every human")
    await ann.hear()
    await ann.send("ada", "to a member of another wire", {"data": {"level": "warning"}})
    await ann.hear()
    got = (await ada.hear())["message"]["id"]
    await ada.send("@ann", "and back", **FULL, reply_to=got)
    await ann.ack(await ann.hear())
    once = await ann.send("ben", "once", id="fixed")
    await ann.hear()
    await ben.ack(await ben.hear())
    await ann.send("ben", "once", id=once)
    await ann.hear()
    await ann.send("ben", "something else", id=once)
    await ann.hear()
    for to in ("nobody", "_router", "not a name", "obj:obj-0", ""):
        await ben.send(to, "refused")
        await ben.hear()
        await ann.send(to, "refused")
        await ann.hear()
    await ben.ask("SEND", {"kind": "message"}, to="ann")
    await ben.ask("SEND", {"kind": "message", "body": "x"})
    await ben.say("UNHEARD_OF")
    await ben.say("PONG", {"nonce": "n-0"})
    await ben.ask("SPAWN", {"name": "x"})
    await ben.hear()
    await ben.ask("RELEASE", {"name": "x"})
    await ben.hear()


async def _sync(ann: Agent, ben: Agent, ada: Native) -> None:
    def waits(correlation: str | None, timeout_ms: int = 60_000) -> Frame:
        wanted = {"correlationId": correlation, "timeoutMs": timeout_ms, "blocking": True}
        return {"sync": {key: value for key, value in wanted.items() if value is not None}}

    await ann.send("ben", "ready?", payload_meta=waits("q-1"))
    await ann.hear()
    await ann.send("ben", "the same again?", payload_meta=waits("q-1"))
    await ann.hear()
    await ben.ack(await ben.hear(), correlationId="q-1", response="yes", responseData={"n": 1})
    await ann.hear()
    await ann.send("ben", "in a moment?", payload_meta=waits("q-2", 30))
    await ann.hear()
    late = await ben.hear()
    await ann.hear()
    await ben.ack(late)
    await ann.send("ben", "under no id?", payload_meta=waits(None))
    await ann.hear()
    await ann.send("*", "everybody?", payload_meta=waits("q-3"))
    await ann.hear()
    await ada.ask("pause_thread", thread="@ann+@ben")
    await ann.send("ben", "held?", payload_meta=waits("q-4"))
    await ann.hear()
    await ann.hear()
    await ada.ask("resume_thread", thread="@ann+@ben")
    await ben.ack(await ben.hear())


async def _channels(relay: Relay, ann: Agent, ben: Agent) -> None:
    await ann.say("SUBSCRIBE", topic="builds")
    await ben.send("*", "to a topic", topic="builds")
    await ann.ack(await ann.hear())
    await ann.say("UNSUBSCRIBE", topic="builds")
    await ben.send("*", "to nobody", topic="builds")
    await ann.ask("SUBSCRIBE", topic="all.*")
    await ann.say("CHANNEL_JOIN", {"channel": "#dev", "displayName": "Ann"})
    await ben.say("CHANNEL_JOIN", {"channel": "#dev", "displayName": "Ben", "avatarUrl": "https://example.org/b"})
    await ann.hear()
    await ben.say("CHANNEL_MESSAGE", {"channel": "#dev", "body": "in the channel", "data": {"k": 1}, "own": True})
    await ann.hear()
    await ann.send("#dev", "a SEND to the channel")
    await ann.hear()
    await ben.ack(await ben.hear())
    await ben.say("CHANNEL_MESSAGE", {"channel": "dm:ann:ben", "body": "for two"})
    await ann.hear()
    await ben.ask("CHANNEL_MESSAGE", {"channel": "dm:ann:eve", "body": "of two others"})
    await ben.ask("CHANNEL_JOIN", {"channel": "#dev", "member": "ada"})
    await ben.say("CHANNEL_LEAVE", {"channel": "#dev", "reason": "done"})
    await ann.hear()
    await ben.ask("CHANNEL_MESSAGE", {"channel": "#dev", "body": "not in it any more"})
    await ben.ask("CHANNEL_JOIN", {"channel": "#users"})
    await ben.ask("CHANNEL_JOIN", {})
    boss = await relay.join("ada", token=relay.stage.there.tokens["ada"], capabilities={"ack": False})
    await _told(ann, ben)
    await boss.say("CHANNEL_JOIN", {"channel": "#dev", "member": "ben"})
    await ann.hear()
    await ben.hear()
    await boss.ask("BYE")
    await boss.framed.ended()


async def _shadows(relay: Relay, ann: Agent, ben: Agent) -> None:
    eve = await relay.join("eve")
    await _told(ann, ben)
    await eve.say("SHADOW_BIND", {"primaryAgent": "ben", "speakOn": ["SESSION_END"]})
    await ann.send("ben", "shown to eve too")
    await ann.hear()
    await ben.ack(await ben.hear())
    await eve.hear()
    await ben.send("ann", "said by ben")
    await ann.ack(await ann.hear())
    await eve.hear()
    await eve.ask("SHADOW_BIND", {"primaryAgent": "ada"})
    await eve.say("SHADOW_BIND", {"primaryAgent": "nobody"})
    await eve.ask("SHADOW_BIND", {})
    dan = await relay.join("dan")
    await _told(ann, ben, eve)
    await eve.say("SHADOW_BIND", {"primaryAgent": "dan", "receiveIncoming": False, "speakOn": ["ALL_MESSAGES"]})
    await dan.ask("BYE")
    await dan.framed.ended()
    await eve.hear()
    await eve.say("SHADOW_UNBIND", {"primaryAgent": "ben"})
    await eve.ask("BYE")
    await eve.framed.ended()


async def _questions(relay: Relay, ann: Agent, ben: Agent) -> None:
    await ann.ask("STATUS")
    await ann.ask("HEALTH")
    await ann.ask("METRICS", {"agent": "ben"})
    await ann.ask("LIST_AGENTS")
    await ann.ask("LIST_AGENTS", {"includeIdle": False})
    await ann.ask("LIST_CONNECTED_AGENTS")
    await ben.ask("INBOX", {"limit": 2})
    await ben.ask("INBOX", {"unreadOnly": True, "from": "ann"})
    await ben.ask("INBOX", {"channel": "#dev"})
    await ben.ask("INBOX", {"agent": "ann"})
    await ann.ask("MESSAGES_QUERY", {"limit": 2, "order": "asc"})
    await ann.ask("MESSAGES_QUERY", {"from": "ann", "to": "ben", "thread": "t-1", "sinceTs": 1})
    await ann.ask("REMOVE_AGENT", {"name": "dan"})
    boss = await relay.join("ada", token=relay.stage.there.tokens["ada"], capabilities={"ack": False})
    await _told(ann, ben)
    await boss.ask("REMOVE_AGENT", {"name": "dan"})
    await boss.ask("REMOVE_AGENT", {"name": "dan"})
    await boss.ask("REMOVE_AGENT", {})
    await boss.say("LOG", {"data": "kept as activity"})
    await boss.ask("BYE")
    await boss.framed.ended()


async def _resume(relay: Relay, ann: Agent, ben: Agent) -> None:
    fay = await relay.join("fay")
    await _told(ann, ben)
    await ann.send("fay", "one")
    await ann.hear()
    await fay.ack(await fay.hear())
    await ann.send("fay", "two", topic="t")
    await ann.hear()
    await fay.hear()
    await fay.leave()
    await ann.send("fay", "three")
    await ann.hear()
    again = await relay.join("fay", "fay/2", session={"resume_token": fay.welcome["resume_token"]})
    for _ in range(2):
        await again.hear()
    await again.leave()
    third = await relay.dial("fay", "fay/3")
    where = {"default": {"last_seq": 0}, "t": {"peers": {"ann": 1}}}
    synced = await third.ask("RESUME", {"agent": "fay", "session_id": again.welcome["session_id"], "streams": where})
    for _ in range(3):
        await third.ack(await third.hear())
    await third.ask("RESUME", {"agent": "fay", "session_id": synced["payload"]["session_id"]})
    await third.leave()
    late = await relay.dial("fay", "fay/late")
    await late.ask("RESUME", {"agent": "fay", "session_id": "never was"})
    await late.ask("RESUME", {"agent": "fay"})
    await late.hear()
    await late.framed.ended()
    thief = await relay.dial("fay", "fay/thief")
    await thief.hello(session={"resume_token": fay.welcome["resume_token"]})
    await thief.hear()
    await _told(ann, ben)
    await thief.leave()
