"""Golden test of the hub's own protocol: members, tokens, the team, channels, objectives and activity."""

from pathlib import Path

from tests.golden.native import sockets
from tests.golden.native_client import EVERYTHING, Native, Sockets
from tests.golden.recorder import Recorder

OTHERS = ["objectives.cancel", "objectives.reassign", "objectives.watch"]


async def play(folder: Path, recorder: Recorder) -> None:
    """Change members, channels, objectives and all other state except messages, and record the conversation."""
    async with sockets(folder, recorder) as hub:
        operator = await hub.operator()
        ada_token = (await operator.ask("add_member", name="ada", kind="human", permissions=EVERYTHING))["token"]
        bob_token = (await operator.ask("add_member", name="bob"))["token"]
        ada = await hub.join("ada", ada_token)
        bob = await hub.join("bob", bob_token)
        recorder.section("members")
        await _members(operator, ada, bob)
        recorder.section("tokens")
        await _tokens(hub, ada, bob)
        recorder.section("the team")
        await _team(ada, bob)
        recorder.section("ways to reach a member")
        await _reach(hub, ada, bob)
        recorder.section("channels")
        await _channels(ada, bob)
        recorder.section("objectives")
        await _objectives(hub, ada, bob, ada_token)
        recorder.section("activity")
        await _activity(hub, ada, bob, ada_token)
        recorder.section("members that go")
        await operator.ask("retoken", name="bob", token="names share no such token here")
        await operator.ask("rotate_token", name="bob")
        await bob.hear()
        await bob.carrier.ended()
        await ada.ask("remove_member", name="cid")
        await ada.ask("remove_member", name="cid")
        await ada.ask("members")
        await ada.leave()
        await operator.leave()


async def _members(operator: Native, ada: Native, bob: Native) -> None:
    await ada.ask("add_member", name="cid", kind="script", permissions=["log.read", "a.word.of.a.newer.hub"])
    await ada.ask("add_member", name="not a name")
    await ada.ask("add_member", name="owner")
    await ada.ask("add_member", name="dan", token="short")
    await bob.ask("add_member", name="eve")
    said = {"title": "Reviewer", "description": "Reads it all", "instructions": "Be kind.", "kind": "agent"}
    await ada.ask("update_member", name="cid", permissions=["activity.read"], **said)
    await ada.ask("update_member", name="cid", title="")
    await bob.ask("update_member", name="bob", title="Boss")
    await ada.ask("update_member", name="nobody", title="x")
    await bob.ask("busy")
    await operator.ask("members")
    await bob.ask("busy", busy=False)
    await bob.ask("remove_member", name="cid")
    await ada.ask("remove_member", name="ada")


async def _tokens(hub: Sockets, ada: Native, bob: Native) -> None:
    token = (await bob.ask("issue_token", name="bob", label="laptop"))["token"]
    await hub.stage.turn()
    ends = hub.stage.recorder.clock.now_ms + 86_400_000
    issued = await ada.ask("issue_token", name="bob", label="for a day", expires_at_ms=ends)
    await ada.ask("issue_token", name="bob", token="a-token-that-somebody-else-chose")
    laptop = await hub.join("bob/laptop", token)
    await bob.ask("tokens", name="bob")
    await bob.ask("tokens", name="ada")
    await bob.ask("issue_token", name="ada")
    await ada.ask("issue_token", name="bob", expires_at_ms=1)
    await bob.ask("revoke_token", name="bob", id=issued["view"]["id"])
    await bob.ask("revoke_token", name="bob", id="no such token")
    listed = (await bob.ask("tokens", name="bob"))["tokens"]
    await bob.ask("revoke_token", name="bob", id=next(one["id"] for one in listed if one["label"] == "laptop"))
    await laptop.hear()
    await laptop.carrier.ended()


async def _team(ada: Native, bob: Native) -> None:
    await bob.ask("read_team")
    presets = {"lead": ["objectives.create", "members.manage"], "nothing": []}
    await ada.ask("update_team", name="Crew", directive="Ship it", context="A port", presets=presets)
    await ada.ask("update_team", presets={"nothing": None}, aliases={"robert": "bob", "chief": "ada"})
    await ada.ask("update_team", aliases={"chief": None})
    await ada.ask("send", target="@robert", body="by another name")
    await ada.ask("update_team", aliases={"bob": "ada"})
    await ada.ask("update_team", aliases={"x": "nobody"})
    await bob.ask("update_team", name="Mine")


async def _reach(hub: Sockets, ada: Native, bob: Native) -> None:
    legs = [{"way": "push", "wait_ms": 3000}, {"way": "notify", "wait_ms": 60_000}]
    await bob.ask("reach", name="bob", reach={"legs": legs, "urgent_ms": 1000, "notify": "ada"})
    await ada.ask("reach", name="bob")
    message = await ada.send("@bob", "seen by nobody")
    await ada.ask("follow", id=message)
    await hub.stage.turn(4)
    await ada.hear()
    await ada.ask("read_receipts", id=message)
    await ada.ask("fetch")
    await bob.ask("reach", name="bob", reach={"legs": []})
    await bob.ask("reach", name="bob", reach={"legs": [legs[0], legs[0]]})
    await bob.ask("reach", name="ada", reach={"legs": legs})
    await bob.ask("reach", name="nobody")


async def _channels(ada: Native, bob: Native) -> None:
    made = (await ada.ask("create_channel", name="#plans"))["channel"]["id"]
    await ada.ask("create_channel", name="plans")
    await bob.ask("change_channel", channel="plans", change={"do": "rename", "name": "mine"})
    await bob.ask("change_channel", channel="#plans", change={"do": "enter"})
    await ada.ask("change_channel", channel=made, change={"do": "admit", "name": "cid", "role": "admin"})
    await ada.ask("change_channel", channel="plans", change={"do": "dismiss", "name": "cid"})
    await ada.send("#plans", "before it is renamed")
    await ada.ask("change_channel", channel="plans", change={"do": "rename", "name": "ideas"})
    await bob.ask("view_channel", channel="ideas")
    await bob.ask("view_channel", channel="plans")
    await bob.ask("channels")
    await ada.ask("change_channel", channel="ideas", change={"do": "dismiss", "name": "ada"})
    await ada.ask("change_channel", channel="ideas", change={"do": "archive"})
    await bob.ask("send", target="#ideas", body="too late")
    await bob.ask("read_history", peer=f"chan:{made}")
    await bob.ask("view_channel", channel=made)
    await bob.ask("sub", channel="own")
    await ada.ask("sub", channel="own")
    await bob.ask("unsub", channel="own")
    await ada.ask("view_channel", channel="own")
    await ada.ask("change_channel", channel="general", change={"do": "archive"})
    await ada.ask("view_channel", channel="nowhere")


async def _objectives(hub: Sockets, ada: Native, bob: Native, ada_token: str) -> None:
    hearing = await hub.join("ada/hears", ada_token, receive=True)
    await hearing.hear_batch()
    await ada.ask("update_member", name="ada", permissions=EVERYTHING + OTHERS)
    attachment = {"path": "/ada/spec.md", "name": "spec.md", "size": 3, "media_type": "text/markdown"}
    more = {"body": "In three steps", "watchers": ["cid"], "attachments": [attachment]}
    work = await ada.ask("create_objective", title="Port it", outcome="It runs", assignee="bob", **more)
    await hearing.hear_batch()
    made = work["objective"]["id"]
    changes: list[tuple[Native, dict[str, object]]] = [
        (bob, {"do": "block", "reason": "no key"}),
        (bob, {"do": "unblock"}),
        (ada, {"do": "watch", "add": ["bob"], "remove": ["cid"]}),
        (ada, {"do": "reassign", "to": "cid", "note": "for a change"}),
        (ada, {"do": "reassign", "to": "bob"}),
        (bob, {"do": "complete", "result": "it runs"}),
    ]
    for who, change in changes:
        await who.ask("change_objective", id=made, change=change)
        await hearing.hear_batch()
    await bob.ask("change_objective", id=made, change={"do": "block", "reason": "again"})
    short = (await ada.ask("create_objective", title="Short", outcome="None", assignee="bob"))["objective"]["id"]
    await hearing.hear_batch()
    await bob.ask("change_objective", id=short, change={"do": "cancel"})
    await bob.send(f"obj:{short}", "in the thread")
    await hearing.hear_batch()
    await ada.ask("change_objective", id=short, change={"do": "cancel", "reason": "no time"})
    await hearing.hear_batch()
    await ada.ask("objectives")
    await bob.ask("objectives", statuses=["active", "cancelled"], assignee="bob", before=short, limit=1)
    await bob.ask("view_objective", id=made)
    await bob.ask("view_objective", id=made, after=10_000)
    await ada.ask("read_history", peer=f"obj:{short}")
    await bob.ask("create_objective", title="x", outcome="y", assignee="ada")
    await ada.ask("create_objective", title="", outcome="y", assignee="bob")
    await ada.ask("create_objective", title="x", outcome="y", assignee="nobody")
    await ada.ask("view_objective", id="obj-0")
    await hearing.leave()


async def _activity(hub: Sockets, ada: Native, bob: Native, ada_token: str) -> None:
    tail = await hub.join("ada/follows", ada_token)
    await tail.ask("follow_activity", member="bob")
    at_ms = hub.stage.recorder.clock.now_ms
    events = [
        {"kind": "log", "ts": at_ms, "text": "started"},
        {"kind": "tool", "ts": at_ms + 5, "env": {"API_KEY": "sk-ant-api03-secret"}, "deep": [{"x": 1.5}]},
    ]
    await bob.ask("activity", events=events)
    await tail.hear()
    await bob.ask("read_activity", member="bob")
    await ada.ask("read_activity", member="bob", kinds=["tool"], from_ms=0, to_ms=at_ms + 5, limit=1)
    await ada.ask("read_log", log="activity")
    await bob.ask("activity", events=[])
    await bob.ask("activity", events=[{"no": "kind"}])
    await tail.hear()
    await bob.ask("read_activity", member="ada")
    await bob.ask("follow_activity", member="ada")
    await ada.ask("read_activity", member="nobody")
    await tail.leave()
