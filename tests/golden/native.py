"""Golden test of the hub's own protocol on its Unix socket: sessions, messages, deliveries and receipts."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.golden.framed import Framed
from tests.golden.native_client import EVERYTHING, FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import stage
from tests.server.hubs import ALONE


@contextlib.asynccontextmanager
async def sockets(folder: Path, recorder: Recorder) -> AsyncIterator[Sockets]:
    """Start a hub that speaks only its own protocol, and yield a maker of clients for its Unix socket."""
    async with stage(folder, recorder, **ALONE) as there:
        yield Sockets(there)


async def play(folder: Path, recorder: Recorder) -> None:
    """Open sessions, send and receive all frames about messages, and record the conversation."""
    async with sockets(folder, recorder) as hub:
        recorder.section("an operator makes members")
        operator = await hub.operator()
        ada_token = (await operator.ask("add_member", name="ada", kind="human", permissions=EVERYTHING))["token"]
        bob_token = (await operator.ask("add_member", name="bob"))["token"]
        await operator.ask("add_member", name="cid", kind="script", token="a-token-that-the-operator-chose")
        await operator.ask("add_member", name="bob")
        await operator.ask("send", target="@bob", body="an operator has no voice")
        recorder.section("opening a session")
        ada = await hub.join("ada", ada_token)
        bob = await hub.join("bob", bob_token, receive=True, window=8)
        cid = await hub.join("cid", "a-token-that-the-operator-chose")
        await _doors(hub)
        recorder.section("saying something")
        await _said(ada, bob, cid)
        recorder.section("deliveries")
        await _delivered(hub, ada, bob, bob_token)
        recorder.section("what became of a message")
        await _followed(hub, ada, bob)
        recorder.section("history and search")
        await _read(ada, bob)
        recorder.section("a live view")
        await _live(hub, ada, bob, ada_token)
        recorder.section("pauses")
        await _paused(hub, ada, bob, bob_token)
        recorder.section("the log")
        await ada.ask("read_log", start=0, limit=6)
        await ada.ask("read_log", log="main", start=10_000)
        await ada.ask("read_log", log="activity")
        await ada.ask("read_log", log="else")
        await bob.ask("read_log")
        await ada.ask("advance_reader", name="lake", position=4)
        await ada.ask("advance_reader", name="lake", position=3)
        await ada.ask("advance_reader", name="lake", position=3, rewind=True)
        await ada.ask("advance_reader", name="lake", position=0, log="activity", epoch="another")
        await ada.ask("readers")
        await bob.ask("readers")
        await ada.ask("forget_reader", name="lake")
        await ada.ask("forget_reader", name="lake")
        recorder.section("a leaked secret")
        leaked = (await ada.ask("send", target="@bob", body="the password is hunter2", title="secret"))["id"]
        await bob.hear()
        await ada.ask("redact", id=leaked, reason="a password")
        await operator.ask("redact", id=leaked, reason="")
        await operator.ask("redact", id="unknown", reason="a password")
        await operator.ask("redact", id=leaked, reason="a password")
        await operator.ask("redact", id=leaked, reason="a password")
        await bob.ask("read_history", peer="ada", limit=1)
        recorder.section("an invitation")
        await ada.ask("invite", member="dora", uses=1)
        made = await operator.ask("invite", member="dora", uses=1)
        await operator.ask("invitations")
        await operator.ask("revoke_invitation", id=made["view"]["id"])
        await operator.ask("revoke_invitation", id=made["view"]["id"])
        recorder.section("the end of the hub")
        await hub.stage.there.hub.stop()
        for session in (operator, ada, bob, cid):
            await session.hear()
            await session.carrier.ended()


async def _doors(hub: Sockets) -> None:
    """Try to open sessions in all ways that the hub refuses."""
    for frames in (
        [{"t": "hello", "v": 2, "token": "x"}],
        [{"t": "hello", "v": 1}],
        [{"t": "hello", "v": 1, "token": "tie_wrong"}],
        [{"t": "hello", "v": 1, "key": "wrong"}],
        [{"t": "hello", "v": 1, "token": "a-token-that-the-operator-chose", "member": "bob"}],
        [{"t": "hello", "v": 1, "token": "a-token-that-the-operator-chose", "member": "not a name"}],
        [{"t": "members", "n": 1}],
        [{"t": "unheard of", "n": 1}],
    ):
        stranger = await hub.dial("stranger")
        await stranger.say(*frames)
        await stranger.hear()
        await stranger.carrier.ended()
    for payload in ('{"t":"hello"}', "no JSON", '[{"t":"hello","v":"one"}]'):
        stranger = await hub.dial("stranger")
        await stranger.carrier.say(payload)
        await stranger.hear()
        await stranger.carrier.ended()
    twice = await hub.join("cid/2", "a-token-that-the-operator-chose")
    await twice.hello()
    await twice.carrier.ended()
    noise = await Framed.dial(hub.stage, "stranger", hub.path)
    await noise.say_raw(bytes.fromhex("ffffffff"))
    await noise.hear()
    await noise.ended()


async def _said(ada: Native, bob: Native, cid: Native) -> None:
    first = await ada.send("@bob", "hello bob")
    await bob.hear()
    full = {**FULL, "reply_to": first}
    await ada.send("@bob", "everything that a message can say", **full)
    await bob.hear()
    await ada.send("@bob", "everything that a message can say", **full)
    await ada.ask("send", target="@bob", body="something else under the same id", wire_id="ada-1")
    later = await ada.send("@bob", "instead of the first", supersedes=first)
    await bob.hear()
    await ada.ask("send", target="@bob", body="not mine to replace", supersedes="01900000-0000-7000-8000-000000000000")
    await bob.ask("send", target="@ada", body="an answer", reply_to=later)
    await cid.send("*", "to everybody")
    await bob.hear()
    await ada.send("#general", "to everybody, as a channel")
    await bob.hear()
    await bob.ask("sub", channel="#builds")
    await ada.send("#builds", "to a channel")
    await bob.hear()
    for target, body in (
        ("@nobody", "x"),
        ("@bbo", "nearly"),
        ("bob", "no target"),
        ("#empty", "nobody subscribes"),
        ("obj:obj-0", "no thread"),
        ("@bob", ""),
    ):
        await ada.ask("send", target=target, body=body)
    await ada.send("#empty", "kept in the log", allow_empty=True)
    await ada.ask("send", target="@bob", body="x", ttl_ms=-1)
    await ada.ask("send", target="@bob", body="x", title="long" * 2000)
    await ada.ask("send", target="obj:obj-0", body="x", kind="event", data={"kind": "objective", "event": {}})
    await bob.ask("unsub", channel="builds")
    await bob.ask("unsub", channel="builds")
    await bob.ask("sub", channel="not a name")


async def _delivered(hub: Sockets, ada: Native, bob: Native, bob_token: str) -> None:
    await bob.ask("fetch")
    await bob.ask("fetch", after=2, limit=1, unseen=True)
    await bob.say({"t": "see", "keys": [[3, 3]], "evidence": "it was shown"})
    await bob.say({"t": "ack", "keys": [[2, 2], [4, 5]]})
    await bob.say({"t": "ack", "keys": [[3, 3]], "evidence": "handled"})
    await bob.ask("discard", keys=[[6, 6]], reason="not mine")
    await bob.ask("fetch", unseen=True)
    claimed = await ada.send("@bob", "for one session alone")
    await bob.hear()
    second = await hub.join("bob/2", bob_token, receive=True)
    await second.hear()
    await second.ask("claim", id=claimed)
    await bob.ask("claim", id=claimed)
    await bob.ask("claim", id="01900000-0000-7000-8000-000000000000")
    recent = await ada.send("@bob", "redelivered in the next session")
    await bob.hear()
    await second.hear()
    await second.leave()
    third = await hub.join("bob/3", bob_token, receive=True, window=1)
    await third.hear()
    await ada.send("@bob", "beyond a window of one")
    await bob.hear()
    await third.say({"t": "ack", "keys": [[8, 8]]})
    await third.hear()
    await third.leave()
    await ada.ask("read_receipts", id=recent)
    await bob.ask("members")


async def _followed(hub: Sockets, ada: Native, bob: Native) -> None:
    followed = await ada.send("@bob", "how far does it come?")
    await bob.hear()
    await ada.ask("follow", id=followed)
    await bob.say({"t": "see", "keys": [[10, 10]], "evidence": "read"})
    await ada.hear()
    await bob.say({"t": "ack", "keys": [[10, 10]]})
    await ada.hear()
    await ada.ask("follow", id=followed, until="nowhere")
    await ada.ask("follow", id="01900000-0000-7000-8000-000000000000")
    await ada.ask("read_receipts", id=followed)
    await ada.ask("read_receipts", id=followed, after="bob")
    await ada.ask("read_receipts", id="01900000-0000-7000-8000-000000000000")
    brief = await ada.send("@bob", "not for long", ttl_ms=2000)
    await bob.hear()
    await ada.ask("follow", id=brief, until="expired")
    await hub.stage.turn()
    await ada.hear()


async def _read(ada: Native, bob: Native) -> None:
    await ada.ask("read_history", limit=2)
    await ada.ask("read_history", peer="bob", before=12, limit=2)
    await ada.ask("read_history", peer="#builds")
    await bob.ask("read_history", peer="#general")
    await bob.ask("read_history", peer="cid")
    await ada.ask("read_history", after=30, everything=True)
    await bob.ask("read_history", everything=True)
    await bob.ask("read_history", peer="nobody")
    await bob.ask("read_history", peer="@cid")
    await ada.ask("read_history", peer="obj:obj-0")
    await ada.ask("search", query="everything", **{"from": "ada"})
    await ada.ask("search", query='"a message can" sa*', place="@bob", limit=1)
    await ada.ask("search", query="everything", place="t-1", from_ms=0, to_ms=4_102_444_800_000, before=1000)
    await ada.ask("search", query="nowhere")
    await ada.ask("search", query="")


async def _live(hub: Sockets, ada: Native, bob: Native, ada_token: str) -> None:
    view = await hub.join("ada/view", ada_token)
    await view.ask("tail", after=40)
    await view.hear()
    await bob.send("@ada", "seen while it is said")
    await view.hear()
    await view.ask("tail", after=10_000, everything=True)
    await bob.ask("tail", everything=True)
    await view.leave()


async def _paused(hub: Sockets, ada: Native, bob: Native, bob_token: str) -> None:
    await ada.ask("pause_thread", thread="@ada+@bob")
    held = await bob.send("@ada", "held")
    await ada.ask("pauses")
    await ada.ask("read_stuck", older_ms=0, limit=2)
    await ada.ask("read_receipts", id=held)
    await ada.ask("fetch")
    await ada.ask("resume_thread", thread="@ada+@bob")
    await ada.ask("pause_thread", thread="thread:t-1")
    await ada.ask("allow_thread", thread="thread:t-1", for_ms=60_000)
    await ada.ask("allow_thread", thread="#general")
    await ada.ask("pauses")
    await bob.ask("pauses")
    await bob.ask("pause_thread", thread="@ada+@bob")
    await ada.ask("pause_thread", thread="nothing")
    await ada.ask("resume_thread", thread="#builds")
