"""Golden test of ac7: messages, both kinds of streams, history, channels, and presence of members."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.golden.native_client import FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.golden.web import Web
from tests.golden.websocket import WebSocket
from tests.server.hubs import ALONE


@contextlib.asynccontextmanager
async def ac7(folder: Path, recorder: Recorder) -> AsyncIterator[Stage]:
    """Start a hub that speaks ac7 and its own protocol, and yield it."""
    async with stage(folder, recorder, **ALONE | {"ac7": True}) as there:
        yield there


async def seat(there: Stage, name: str, *permissions: str) -> Web:
    """Make a member with these permissions. Return an HTTP client with its token."""
    await there.there.add(name, permissions=permissions)
    return Web(there, name, there.there.tokens[name])


async def play(folder: Path, recorder: Recorder) -> None:
    """Send messages to every kind of target, receive and read them, and record the conversation."""
    recorder.expect("end-of-id", r'"slug":"no-slug-here-([0-9a-f]{8})"')
    async with ac7(folder, recorder) as there:
        ann, ben = await seat(there, "ann", "members.manage"), await seat(there, "ben")
        await there.there.add("ada")
        ada = await Sockets(there).join("ada", there.there.tokens["ada"], receive=True)
        recorder.section("doors")
        await _doors(there, ann)
        recorder.section("pushes")
        await _pushes(ann, ben, ada)
        recorder.section("streams")
        await _streams(there, ann, ben, ada)
        recorder.section("channels")
        await _channels(ann, ben, ada)
        recorder.section("history")
        await _history(ann, ben)
        recorder.section("who is there")
        await ann.ask("POST", "/presence/busy", {"busy": True})
        await ben.ask("GET", "/roster")
        await ann.ask("POST", "/presence/busy", {"busy": False})
        await ann.ask("POST", "/presence/busy", {})
        await ben.ask("GET", "/briefing")
        recorder.section("streams that are opened again")
        await _again(there, ann, ben)
        recorder.section("CommandSuite")
        await ben.ask("GET", "/instructions", x_csuite_protocol="2")
        await ben.ask("POST", "/presence/activity", {"state": "working"}, x_csuite_protocol="2")
        await ben.ask("GET", "/roster", x_csuite_protocol="2")
        await ben.ask("POST", "/presence/activity", {"state": "asleep"}, x_csuite_protocol="2")


async def _doors(there: Stage, ann: Web) -> None:
    await Web(there, "stranger").ask("GET", "/roster")
    await Web(there, "wrong", "tie_wrong").ask("GET", "/roster")
    await ann.ask("GET", "/roster", x_ac7_protocol="1")
    await ann.ask("GET", "/roster", x_ac7_protocol="2")
    await ann.ask("GET", "/roster", x_ac7_protocol="x")
    await ann.ask("GET", "/roster", origin="https://example.org")
    await ann.ask("GET", "/push/subscriptions")
    await ann.ask("GET", "/push")
    await ann.ask("GET", "/members/x/nowhere")
    await ann.ask("POST", "/push", b"no JSON")
    await ann.ask("POST", "/push", {"to": "ben"})


async def _pushes(ann: Web, ben: Web, ada: Native) -> None:
    await ann.ask("POST", "/push", {"to": "ben", "body": "hello ben"})
    own = {"from": "forged", "ts": 1, "thread": "chan:general", "tieline": {}, "msg_id": "x", "level": "x", "k": [1]}
    words = {"priority": "urgent", "scope": "s", "refs": ["r"], "conversation": "c-1", "reply_to": "x"}
    await ann.ask("POST", "/push", {"to": "ada", "title": "T", "level": "notice", "body": "all", "data": own | words})
    await ada.hear()
    await ann.ask("POST", "/push", {"body": "to everybody"})
    await ada.hear()
    await ann.ask("POST", "/push", {"body": "to everybody's channel", "data": {"thread": "chan:general"}})
    await ada.hear()
    await ada.send("@ben", "from another protocol", **FULL)
    await ada.send("#general", "from another protocol, to everybody's channel")
    for form in (
        {"to": "nobody", "body": "x"},
        {"to": "not a name", "body": "x"},
        {"to": "ben", "body": ""},
        {"body": "x", "data": {"thread": "chan:nowhere"}},
        {"body": "x", "data": {"thread": "obj:obj-0"}},
        {"body": "x", "data": {"thread": "else"}},
        {"to": "ben", "body": "x", "level": "loud"},
        {"to": "ben", "body": "x", "attachments": [{"path": "/nowhere"}]},
    ):
        await ben.ask("POST", "/push", form)


async def _streams(there: Stage, ann: Web, ben: Web, ada: Native) -> None:
    events = await ben.stream("/subscribe?name=ben")
    await events.hear()
    socket = await WebSocket.dial(
        there, "ann/socket", "/subscribe?name=ann", Authorization=ann.headers["authorization"]
    )
    assert socket is not None
    await socket.hear()
    await ann.ask("POST", "/push", {"to": "ben", "body": "while both listen"})
    await events.hear()
    await socket.hear()
    await ada.send("*", "to both from elsewhere", title="T", kind="status")
    await events.hear()
    await socket.hear()
    await ben.ask("POST", "/push", {"to": "ada", "body": "seen by its own sender"})
    await events.hear()
    await ada.hear()
    await ben.ask("GET", "/roster")
    await ben.ask("GET", "/subscribe?name=ann")
    await ben.ask("GET", "/subscribe")
    await WebSocket.dial(there, "stranger/socket", "/subscribe?name=ann")
    await events.leave()
    await socket.leave()


async def _again(there: Stage, ann: Web, ben: Web) -> None:
    last = (await ben.ask("GET", "/history?limit=1")).value["messages"][0]["id"]
    await ann.ask("POST", "/push", {"to": "ben", "body": "missed"})
    events = await ben.stream("/subscribe?name=ben", last_event_id=last)
    await events.hear()
    await events.hear()
    await events.leave()
    socket = await WebSocket.dial(
        there, "ben/socket", f"/subscribe?name=ben&since={last}", Authorization=ben.headers["authorization"]
    )
    assert socket is not None
    for _ in range(3):
        await socket.hear()
    await socket.leave()


async def _channels(ann: Web, ben: Web, ada: Native) -> None:
    made = (await ann.ask("POST", "/channels", {"slug": "plans"})).value["id"]
    await ben.ask("POST", "/channels", {"slug": "plans"})
    await ben.ask("POST", "/channels", {"slug": "Not A Slug"})
    await ben.ask("GET", "/channels")
    await ben.ask("GET", "/channels/plans")
    await ben.ask("POST", "/push", {"body": "not in it", "data": {"thread": f"chan:{made}"}})
    await ben.ask("POST", "/channels/plans/members", {})
    await ann.ask("POST", "/channels/plans/members", {"member": "ada", "role": "admin"})
    await ben.ask("POST", "/push", {"body": "in it", "title": "T", "data": {"thread": f"chan:{made}"}})
    await ada.hear()
    await ada.send("#plans", "and from elsewhere")
    await ben.ask("POST", "/push", {"body": "by its slug", "data": {"thread": "chan:plans"}})
    await ada.hear()
    await ben.ask("PATCH", "/channels/plans", {"slug": "mine"})
    await ann.ask("PATCH", "/channels/plans", {"slug": "ideas"})
    await ann.ask("GET", f"/channels/{made}")
    await ben.ask("GET", "/channels/plans")
    await ben.ask("DELETE", "/channels/ideas/members/ben")
    await ann.ask("DELETE", "/channels/ideas/members/nobody")
    await ann.ask("DELETE", "/channels/general")
    await ben.ask("DELETE", "/channels/ideas")
    await ann.ask("DELETE", "/channels/ideas")
    await ann.ask("POST", "/push", {"body": "too late", "data": {"thread": f"chan:{made}"}})
    await ann.ask("GET", f"/history?channel={made}")
    await ada.ask("create_channel", name="No_Slug.Here")
    await ada.ask("channels")
    await ben.ask("GET", "/channels")


async def _history(ann: Web, ben: Web) -> None:
    newest = (await ben.ask("GET", "/history?limit=2")).value["messages"]
    await ben.ask("GET", f"/history?limit=1&before={newest[-1]['ts']}")
    await ben.ask("GET", "/history?with=ada")
    await ben.ask("GET", "/history?with=nobody")
    await ben.ask("GET", "/history?channel=general&limit=2")
    await ben.ask("GET", "/history?channel=ideas")
    await ann.ask("GET", "/history?channel=nowhere")
    await ann.ask("GET", "/history?limit=many")
    await ann.ask("GET", "/history?before=x")
