"""Queries that clients can send although the specification does not define them, such as STATUS and INBOX.

Each query has a type of frame, a procedure that finds the answer, and a type of frame for the answer.
"""

import contextlib
import os
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import TargetKind
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.error_code import ERROR_CODES
from tieline.protocols.agent_relay.procedure import Payload, Procedure, Steps

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

_LIMIT_MAX = 1000
_PAGE = 500
_PAGES_MAX = 40
"""Most pages of messages that one query reads. A query reads so many pages only if its filters match few messages."""

_HIDDEN = frozenset({"Dashboard", "cli"})
"""Names of members that are not listed as agents, because tools of the protocol connect under these names.

Names of tools that start with `_` need no entry, because no member can have such a name.
"""


class Query(Struct, frozen=True):
    """Description of one kind of query that clients can send.

    It has the procedure (generator of hub commands) that finds the answer, and the type of the frame with the answer.
    """

    answer: str
    """Type of the frame that answers the query. This frame has the same id as the query."""
    procedure: Callable[["RelayConnection", Payload], Procedure]
    refused: Callable[[Refusal], Payload] | None = None
    """Function that makes the payload of the answer if the hub refuses the query. `None`: the client gets an ERROR."""


def _limit(payload: Payload, default: int) -> int:
    limit = payload.get("limit")
    return max(1, min(limit, _LIMIT_MAX)) if isinstance(limit, int) else default


# Messages.


def _inbox(connection: "RelayConnection", payload: Payload) -> Procedure:
    """Answer INBOX: return messages that were sent to the agent, newest first. `payload` has the filters.

    If the payload has `unreadOnly`, return only messages that are not acknowledged, oldest first.
    """
    name, limit = connection.name, _limit(payload, 50)
    if payload.get("agent") not in (None, name):
        return Refusal(Code.FORBIDDEN, f"{name} may read its own inbox, and no other")
    sender, channel = payload.get("from"), payload.get("channel")
    wanted_to = codec.channel_named(channel) if channel is not None else None
    if isinstance(wanted_to, Refusal):
        return wanted_to

    def wanted(message: m.Message) -> bool:
        target = message.content.target
        return (
            (sender is None or message.sender == sender)
            and (wanted_to is None or (target.kind is TargetKind.CHANNEL and target.name == wanted_to))
            # History also contains the agent's own messages.
            and (message.sender != name or codec.written(target) == name)
        )

    if payload.get("unreadOnly") is True:
        found = yield from _unread(connection, wanted, limit)
    else:
        found = yield from _past(connection, None, wanted, limit)
    return _messages(connection, found)


def _history(connection: "RelayConnection", payload: Payload) -> Procedure:
    """Answer MESSAGES_QUERY: return messages that the agent sent and received, newest first. `payload` has the filters.

    If the payload has `"order": "asc"`, the oldest message comes first.
    """
    sender, to, thread, since = (payload.get(key) for key in ("from", "to", "thread", "sinceTs"))
    to = to.removeprefix("@") if isinstance(to, str) and to != codec.HUMANS else to
    since_ms = since if isinstance(since, int | float) else 0

    def wanted(message: m.Message) -> bool:
        return (
            (sender is None or message.sender == sender)
            and (to is None or codec.written(message.content.target) == to)
            and (thread is None or message.content.thread == thread)
        )

    limit = _limit(payload, 100)
    if payload.get("order") == "asc":
        found = yield from _onward(connection, wanted, limit, since_ms)
    else:
        found = yield from _past(connection, _peer(connection.name, sender, to), wanted, limit, since_ms)
    return _messages(connection, found)


def _peer(name: str, sender: object, to: object) -> str | None:
    """Return the member or channel to which a query of the agent `name` is limited, or `None` if it is not limited.

    `sender` and `to` are the filters of the query. For example, `to="bob"` limits the query to the messages between the
    agent and bob.
    """
    if isinstance(to, str) and to not in (name, codec.EVERYBODY, codec.HUMANS):
        return to
    return sender if to == name and isinstance(sender, str) and sender != name else None


_Wanted = Callable[[m.Message], bool]


def _past(
    connection: "RelayConnection", peer: str | None, wanted: _Wanted, limit: int, since_ms: float = 0
) -> Steps[list[m.Message]]:
    found: list[m.Message] = []
    before: int | None = None
    for _ in range(_PAGES_MAX):
        page = yield c.ReadHistory(connection.session, peer=peer, before=before, limit=_PAGE)
        assert isinstance(page, r.History), "history is answered by messages"
        recent = [message for message in page.messages if message.sent_at_ms >= since_ms]
        found += filter(wanted, recent)
        if len(found) >= limit or len(recent) < len(page.messages) or not recent:
            break
        before = recent[-1].offset
    return found[:limit]


def _onward(connection: "RelayConnection", wanted: _Wanted, limit: int, since_ms: float) -> Steps[list[m.Message]]:
    """Return messages that were sent since the time `since_ms`, oldest first.

    Return only messages for which `wanted` is true, and no more than `limit` of them.
    """
    found: list[m.Message] = []
    after = (yield from _offset_before(connection, since_ms)) if since_ms > 0 else -1
    for _ in range(_PAGES_MAX):
        page = yield c.ReadHistory(connection.session, after=after, forward=True, limit=_PAGE)
        assert isinstance(page, r.History), "history is answered by messages"
        found += (message for message in page.messages if message.sent_at_ms >= since_ms and wanted(message))
        if len(found) >= limit or not page.messages:
            break
        after = page.messages[-1].offset
    return found[:limit]


def _offset_before(connection: "RelayConnection", since_ms: float) -> Steps[int]:
    """Return the log offset of a message that was sent before the time `since_ms`, or -1 if there is none.

    All messages since that time have larger offsets. This is a binary search, because offsets grow with time.
    """
    newest = yield c.ReadHistory(connection.session, limit=1)
    assert isinstance(newest, r.History), "history is answered by messages"
    low, high = -1, newest.messages[0].offset if newest.messages else -1
    while high - low > 1:
        middle = (low + high) // 2
        page = yield c.ReadHistory(connection.session, after=middle, forward=True, limit=1)
        assert isinstance(page, r.History), "history is answered by messages"
        if page.messages and page.messages[0].sent_at_ms < since_ms:
            low = page.messages[0].offset
        else:
            high = middle
    return low


def _unread(connection: "RelayConnection", wanted: _Wanted, limit: int) -> Steps[list[m.Message]]:
    found: list[m.Message] = []
    after = 0
    for _ in range(_PAGES_MAX):
        page = yield c.Fetch(connection.session, after=after, limit=_PAGE)
        assert isinstance(page, r.Fetched), "a fetch is answered by a page"
        # A message that cannot be acknowledged counts as read once it was delivered.
        unread = (
            delivery.message
            for delivery in page.deliveries
            if delivery.state is State.PENDING or not codec.is_channel_message(delivery.message)
        )
        found += filter(wanted, unread)
        if len(found) >= limit or page.complete:
            break
        after = page.through
    return found[:limit]


def _messages(connection: "RelayConnection", found: list[m.Message]) -> Payload:
    return {"messages": codec.fitting([_message(message) for message in found], connection.server.frame_bytes_max)}


def _message(message: m.Message) -> Payload:
    said = message.content
    view: Payload = {"id": message.id, "from": message.sender, "to": codec.written(said.target), "body": said.body}
    if said.target.kind is TargetKind.CHANNEL:
        view["channel"] = str(said.target)
    if said.thread is not None:
        view["thread"] = said.thread
    if said.data:
        view["data"] = said.data
    return view | {"timestamp": message.sent_at_ms, "isBroadcast": said.target.kind is TargetKind.EVERYBODY}


# Agents.


def _agents(connection: "RelayConnection", *, connected_only: bool) -> Steps[list[Presence]]:
    roster = yield c.ListMembers(connection.session)
    assert isinstance(roster, r.Roster), "a list of members is answered by a roster"
    return [
        presence
        for presence in roster.members
        if presence.member.name not in _HIDDEN and (presence.sessions or not connected_only)
    ]


def _list_agents(connection: "RelayConnection", payload: Payload) -> Procedure:
    return (yield from _listing(connection, connected_only=payload.get("includeIdle") is False))


def _list_connected(connection: "RelayConnection", _payload: Payload) -> Procedure:
    return (yield from _listing(connection, connected_only=True))


def _listing(connection: "RelayConnection", *, connected_only: bool) -> Procedure:
    agents = yield from _agents(connection, connected_only=connected_only)
    return {"agents": codec.fitting([_agent(connection, one) for one in agents], connection.server.frame_bytes_max)}


def _agent(connection: "RelayConnection", presence: Presence) -> Payload:
    name = presence.member.name
    here = connection.server.named(name)
    return {"name": name, "idle": not presence.sessions} | (here[-1].about if here else {})


def _status(connection: "RelayConnection", _payload: Payload) -> Procedure:
    agents = yield from _agents(connection, connected_only=True)
    server = connection.server
    uptime_ms = int((server.loop.time() - server.started_at) * 1000)
    return {"version": server.version, "uptime": uptime_ms, "cloudConnected": False, "agentCount": len(agents)}


def _health(connection: "RelayConnection", _payload: Payload) -> Procedure:
    """Answer HEALTH: the hub is healthy, because it can answer. The hub runs no agents, so it reports no crashes."""
    agents = yield from _agents(connection, connected_only=True)
    return {
        "status": "healthy",
        "healthScore": 100,
        "summary": "the hub is healthy",
        "issues": [],
        "recommendations": [],
        "crashes": [],
        "alerts": [],
        "agentCount": len(agents),
        "stats": {"totalCrashes24h": 0, "totalAlerts24h": 0, "agentCount": len(agents)},
    }


def _metrics(connection: "RelayConnection", payload: Payload) -> Procedure:
    only = payload.get("agent")
    agents = yield from _agents(connection, connected_only=False)
    entries = [
        {
            "name": presence.member.name,
            "status": "connected" if presence.sessions else "away",
            "connected": bool(presence.sessions),
            "backlog": presence.backlog,
        }
        for presence in agents
        if only is None or presence.member.name == only
    ]
    return {"agents": codec.fitting(entries, connection.server.frame_bytes_max), "system": _memory()}


def _memory() -> dict[str, int]:
    pages = {"SC_PHYS_PAGES": 0, "SC_AVPHYS_PAGES": 0}
    for name in pages:
        # Not every system reports these numbers.
        with contextlib.suppress(ValueError, OSError):
            pages[name] = os.sysconf(name)
    total, free = (count * resource.getpagesize() for count in pages.values())
    unit = 1 if sys.platform == "darwin" else 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"totalMemory": total, "freeMemory": free, "heapUsed": used}


def _remove(connection: "RelayConnection", payload: Payload) -> Procedure:
    name = payload.get("name")
    if not isinstance(name, str):
        return Refusal(Code.INVALID_REQUEST, "REMOVE_AGENT needs payload.name")
    yield c.RemoveMember(connection.session, name=MemberName(name))
    return {"success": True, "removed": True, "name": name}


def _not_removed(refusal: Refusal) -> Payload:
    code = ERROR_CODES[refusal.code].value
    return {"success": False, "removed": False, "code": code, "message": refusal.message}


QUERIES: dict[str, Query] = {
    "STATUS": Query("STATUS_RESPONSE", _status),
    "INBOX": Query("INBOX_RESPONSE", _inbox),
    "MESSAGES_QUERY": Query("MESSAGES_RESPONSE", _history),
    "LIST_AGENTS": Query("LIST_AGENTS_RESPONSE", _list_agents),
    "LIST_CONNECTED_AGENTS": Query("LIST_CONNECTED_AGENTS_RESPONSE", _list_connected),
    "HEALTH": Query("HEALTH_RESPONSE", _health),
    "METRICS": Query("METRICS_RESPONSE", _metrics),
    "REMOVE_AGENT": Query("REMOVE_AGENT_RESPONSE", _remove, _not_removed),
}
"""All kinds of queries. The key is the type of the frame (protocol message) that a client sends."""
