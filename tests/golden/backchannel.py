"""Golden test of backchannel's relay API: every route under `/v1/`, event streams, and other protocols."""

from pathlib import Path

from tests.golden.native_client import FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.golden.web import Web
from tests.server.hubs import ALONE
from tieline.wire.prefix_ids import from_prefix_id

_ROOM = "the token of the room"
_CONFIGURATION = f'[backchannel]\nroom_token = "{_ROOM}"\n'


async def play(folder: Path, recorder: Recorder) -> None:
    """Request every route, with success and with refusals, and record the conversation."""
    async with stage(folder, recorder, _CONFIGURATION, **ALONE | {"backchannel": True}) as there:
        recorder.section("without a token")
        stranger = Web(there, "stranger")
        await stranger.ask("GET", "/v1/health")
        await stranger.ask("GET", "//v1/health")
        await stranger.ask("POST", "/v1/health")
        await stranger.ask("GET", "/v1/agents")
        await stranger.ask("GET", "/v1/agents", origin="https://example.org")
        await stranger.ask("GET", "/v1/nowhere")
        recorder.section("registration")
        ann, ben = await _register(there, stranger)
        await there.there.add("ada")
        ada = await Sockets(there).join("ada", there.there.tokens["ada"], receive=True)
        recorder.section("agents and channels")
        await _channels(ann, ben, ada)
        recorder.section("messages")
        await _messages(ann, ben, ada)
        recorder.section("events")
        await _events(there, ann, ben, ada)
        recorder.section("rooms")
        await _rooms(there, stranger, ben)


async def _register(there: Stage, stranger: Web) -> tuple[Web, Web]:
    lobby = Web(there, "lobby", _ROOM)
    ann_token = (await lobby.ask("POST", "/v1/register", {"name": "ann"})).value["token"]
    ben_token = (await lobby.ask("POST", "/v1/register", {"name": "ben", "agent": "counts for nothing"})).value["token"]
    ann, ben = Web(there, "ann", ann_token), Web(there, "ben", ben_token)
    await lobby.ask("POST", "/v1/register", {"name": "ann"})
    await ann.ask("POST", "/v1/register", {"name": "ann"})
    await ann.ask("POST", "/v1/register", {"name": "cid"})
    await stranger.ask("POST", "/v1/register", {"name": "cid"})
    await stranger.ask("POST", "/v1/register", {"name": "ann"})
    await lobby.ask("POST", "/v1/register", {"name": "not a name"})
    await lobby.ask("POST", "/v1/register", {"name": "operator"})
    await lobby.ask("POST", "/v1/register", {"name": "owner"})
    await lobby.ask("POST", "/v1/register", {})
    await lobby.ask("POST", "/v1/register", b"no JSON")
    await lobby.ask("GET", "/v1/agents")
    return ann, ben


async def _channels(ann: Web, ben: Web, ada: Native) -> None:
    await ada.ask("sub", channel="builds")
    await ann.ask("POST", "/v1/subscribe", {"channel": "#builds", "agent": "somebody else"})
    await ben.ask("POST", "/v1/subscribe", {"channel": "dev"})
    await ann.ask("GET", "/v1/channels")
    await ann.ask("GET", "/v1/agents")
    await ben.ask("POST", "/v1/unsubscribe", {"channel": "#dev"})
    await ben.ask("POST", "/v1/unsubscribe", {"channel": "#general"})
    await ben.ask("POST", "/v1/subscribe", {"channel": "not a name"})
    await ben.ask("POST", "/v1/subscribe", {})


async def _messages(ann: Web, ben: Web, ada: Native) -> None:
    sent = await ann.ask("POST", "/v1/send", {"to": "@ben", "body": "hello ben"})
    full = {"priority": "urgent", "scope": "github.com/x/y", "thread": sent.value["id"], "refs": ["a", "b"], "own": 1}
    await ann.ask("POST", "/v1/send", {"to": "ben", "body": "all of it", **full})
    await ben.ask("GET", "/v1/inbox/ben")
    await ben.ask("POST", "/v1/take", {"id": sent.value["id"]})
    await ben.ask("POST", "/v1/take", {"id": sent.value["id"], "keep": True})
    await ben.ask("POST", "/v1/take", {"id": "no id"})
    await ben.ask("POST", "/v1/take", {})
    await ann.ask("POST", "/v1/send", {"to": "@ada", "body": "to another protocol", **full})
    await ada.hear()
    await ann.ask("POST", "/v1/send", {"to": "#builds", "body": "to a channel"})
    await ada.hear()
    await ann.ask("POST", "/v1/send", {"to": "#general", "body": "to everybody's channel"})
    await ada.hear()
    await ann.ask("POST", "/v1/send", {"to": "*", "body": "to everybody"})
    await ada.hear()
    await ada.send("@ben", "from another protocol", **FULL, reply_to=from_prefix_id(sent.value["id"]))
    await ada.send("*", "to everybody from there", priority="urgent")
    await ben.ask("GET", "/v1/inbox/ben")
    await ben.ask("GET", "/v1/inbox/ann")
    for to, body in (("@nobody", "x"), ("@be", "x"), ("#empty", "x"), ("@", "x"), ("#not a name", "x"), ("@ben", "")):
        await ann.ask("POST", "/v1/send", {"to": to, "body": body})
    await ann.ask("POST", "/v1/send", {"to": "@ben", "body": "x", "priority": "high"})
    await ann.ask("POST", "/v1/send", {"to": "@ben"})
    await ann.ask("POST", "/v1/send", {"to": "obj:obj-0", "body": "x"})
    await ann.ask("POST", "/v1/take", {"id": "x" * 70_000})


async def _events(there: Stage, ann: Web, ben: Web, ada: Native) -> None:
    stream = await ben.stream("/v1/events/ben")
    waiting = [await stream.hear() for _ in range(5)]
    await ann.ask("POST", "/v1/send", {"to": "@ben", "body": "while it watches"})
    await stream.hear()
    await ada.send("@ben", "from elsewhere,\nin two lines", title="T")
    await stream.hear()
    await ben.ask("POST", "/v1/take", {"id": waiting[0]["id"]})
    await stream.leave()
    await ben.ask("GET", "/v1/events/ann")
    await Web(there, "stranger").ask("GET", "/v1/events/ben")
    await Web(there, "wrong", "wrong").ask("GET", "/v1/events/ben")
    ada_here = Web(there, "ada-here", there.there.tokens["ada"])
    await ada_here.ask("GET", "/v1/inbox/ada")


async def _rooms(there: Stage, stranger: Web, ben: Web) -> None:
    there.recorder.expect("room", r"\b[0-9a-f]{32}\b")
    there.recorder.expect("room-token", r"\btie_room_[0-9a-f]{32}_[A-Za-z0-9_-]{32,43}")
    made = (await stranger.ask("POST", "/v1/rooms")).value
    for place in ("nowhere", "../../tieline.db"):
        await Web(there, "lost", made["roomToken"], x_backchannel_room=place).ask("POST", "/v1/register", {"name": "x"})
    await ben.ask("GET", "/v1/agents", x_backchannel_room="nowhere")
    await ben.ask("GET", "/v1/health", x_backchannel_room="nowhere")
    await ben.ask("GET", "/v1/agents", x_backchannel_room=made["roomId"])
    await Web(there, "lobby", _ROOM, x_backchannel_room=made["roomId"]).ask("POST", "/v1/register", {"name": "ann"})
    newcomer = Web(there, "newcomer", made["roomToken"], x_backchannel_room=made["roomId"])
    token = (await newcomer.ask("POST", "/v1/register", {"name": "ann"})).value["token"]
    await newcomer.ask("POST", "/v1/register", {"name": "ann"})
    inside = Web(there, "inside", token, x_backchannel_room=made["roomId"])
    await inside.ask("POST", "/v1/send", {"to": "@ann", "body": "to oneself"})
    await inside.ask("POST", "/v1/send", {"to": "@ben", "body": "to somebody in another room"})
    await inside.ask("GET", "/v1/inbox/ann")
    await Web(there, "by-token", token).ask("GET", "/v1/agents")
