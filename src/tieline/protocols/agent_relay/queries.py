"""Questions that clients of this protocol ask beside the seed: each a frame, a command of the hub, and an answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import TargetKind

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.server import RelayServer

_LIMIT_MAX = 1000
_HIDDEN = frozenset({"Dashboard", "cli"})
"""Names under which tools of the protocol connect; they are no agents."""

_ENVELOPE_BYTES = 8192
"""Room for what is around the messages of an answer: the envelope, with the asker's id in it."""

_encoder = msgspec.json.Encoder()

Payload = dict[str, Any]


class Query(Struct, frozen=True):
    """One kind of question."""

    answer: str
    """The type of the frame that answers it, under the same id."""
    command: Callable[[SessionId, str, Payload], c.Command | Refusal]
    payload: Callable[[r.Reply, Payload, "RelayServer"], Payload]


def _limit(payload: Payload, default: int) -> int:
    limit = payload.get("limit", default)
    return max(1, min(limit, _LIMIT_MAX)) if isinstance(limit, int) else default


def _members(session: SessionId, _name: str, _payload: Payload) -> c.Command:
    return c.ListMembers(session)


def _inbox(session: SessionId, name: str, payload: Payload) -> c.Command | Refusal:
    agent = payload.get("agent", name)
    if agent != name:
        return Refusal(Code.FORBIDDEN, f"{name} may read its own inbox, not that of {agent}")
    return c.Fetch(session, 0, _limit(payload, 50))


def _history(session: SessionId, _name: str, payload: Payload) -> c.Command:
    peer = payload.get("to") or payload.get("from")
    return c.ReadHistory(session, peer if isinstance(peer, str) else None, None, _limit(payload, 100))


def _remove(session: SessionId, _name: str, payload: Payload) -> c.Command | Refusal:
    name = payload.get("name")
    if not isinstance(name, str):
        return Refusal(Code.INVALID_REQUEST, "REMOVE_AGENT needs payload.name")
    return c.RemoveMember(session, MemberName(name))


def _message(message: m.Message) -> Payload:
    said = message.content
    view: Payload = {"id": message.id, "from": message.sender, "to": str(said.target), "body": said.body}
    if said.target.kind is TargetKind.CHANNEL:
        view["channel"] = str(said.target)
    if said.thread is not None:
        view["thread"] = said.thread
    return view | {"timestamp": message.sent_at_ms}


def _fitting(messages: list[Payload], server: "RelayServer") -> list[Payload]:
    """As many of them, from the first on, as one frame has room for. One that no frame has room for is left out."""
    room = server.frame_bytes_max - _ENVELOPE_BYTES
    fitting: list[Payload] = []
    for message in messages:
        size = len(_encoder.encode(message)) + 1
        if size > server.frame_bytes_max - _ENVELOPE_BYTES:
            continue
        if size > room:
            break
        room -= size
        fitting.append(message)
    return fitting


def _inbox_payload(reply: r.Reply, payload: Payload, server: "RelayServer") -> Payload:
    assert isinstance(reply, r.Fetched), "a fetch is answered by a page"
    wanted_from, wanted_channel = payload.get("from"), payload.get("channel")
    messages = [_message(delivery.message) for delivery in reply.deliveries]
    if wanted_from is not None:
        messages = [message for message in messages if message["from"] == wanted_from]
    if isinstance(wanted_channel, str):
        channel = f"#{wanted_channel.removeprefix('#')}"
        messages = [message for message in messages if message.get("channel") == channel]
    return {"messages": _fitting(messages, server)}


def _history_payload(reply: r.Reply, payload: Payload, server: "RelayServer") -> Payload:
    assert isinstance(reply, r.History), "history is answered by messages"
    since = payload.get("sinceTs")
    thread = payload.get("thread")
    messages = [
        _message(message)
        for message in reply.messages
        if (not isinstance(since, int) or message.sent_at_ms >= since)
        and (thread is None or message.content.thread == thread)
    ]
    messages = _fitting(messages, server)
    if payload.get("order") == "asc":
        messages.reverse()
    return {"messages": messages}


def _agents(reply: r.Reply, *, connected_only: bool) -> list[Payload]:
    assert isinstance(reply, r.Roster), "a list of members is answered by a roster"
    shown: list[Presence] = [
        presence
        for presence in reply.members
        if presence.member.name not in _HIDDEN and (presence.sessions or not connected_only)
    ]
    return [{"name": presence.member.name, "idle": not presence.sessions} for presence in shown]


def _list_agents(reply: r.Reply, payload: Payload, _server: "RelayServer") -> Payload:
    return {"agents": _agents(reply, connected_only=payload.get("includeIdle") is False)}


def _list_connected(reply: r.Reply, _payload: Payload, _server: "RelayServer") -> Payload:
    return {"agents": _agents(reply, connected_only=True)}


def _status(reply: r.Reply, _payload: Payload, server: "RelayServer") -> Payload:
    uptime_ms = int((server.loop.time() - server.started_at) * 1000)
    count = len(_agents(reply, connected_only=True))
    return {"version": server.version, "uptime": uptime_ms, "cloudConnected": False, "agentCount": count}


def _health(reply: r.Reply, _payload: Payload, server: "RelayServer") -> Payload:
    return {
        "status": "healthy",
        "healthScore": 100,
        "agentCount": len(_agents(reply, connected_only=True)),
        "issues": [],
    }


def _metrics(reply: r.Reply, _payload: Payload, _server: "RelayServer") -> Payload:
    assert isinstance(reply, r.Roster), "a list of members is answered by a roster"
    return {
        "agents": [
            {"name": presence.member.name, "connected": bool(presence.sessions), "backlog": presence.backlog}
            for presence in reply.members
        ]
    }


def _removed(_reply: r.Reply, payload: Payload, _server: "RelayServer") -> Payload:
    return {"success": True, "name": payload.get("name")}


QUERIES: dict[str, Query] = {
    "STATUS": Query("STATUS_RESPONSE", _members, _status),
    "INBOX": Query("INBOX_RESPONSE", _inbox, _inbox_payload),
    "MESSAGES_QUERY": Query("MESSAGES_RESPONSE", _history, _history_payload),
    "LIST_AGENTS": Query("LIST_AGENTS_RESPONSE", _members, _list_agents),
    "LIST_CONNECTED_AGENTS": Query("LIST_CONNECTED_AGENTS_RESPONSE", _members, _list_connected),
    "HEALTH": Query("HEALTH_RESPONSE", _members, _health),
    "METRICS": Query("METRICS_RESPONSE", _members, _metrics),
    "REMOVE_AGENT": Query("REMOVE_AGENT_RESPONSE", _remove, _removed),
}
"""By the type of the frame that asks."""
