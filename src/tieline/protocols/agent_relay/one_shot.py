"""One-shot requests: frames of clients that never send HELLO, and queries of this protocol's own tools.

Used by: `connection`. Uses: `speaking` and `queries`, and the hub's sessions. Agent Relay's MCP server opens a
connection for each request and sends no HELLO. Agent Relay's command line and its dashboard send HELLO under names that
no member can have (`codec.is_tool`). These tools may send queries, but no messages.

**Trust.** Only processes of the hub's own user can open the socket. They may send HELLO under every name that no token
protects. A request without HELLO has fewer rights:

- The hub refuses a request that names a member with a token, both for reading and for sending.
- A request cannot send for a member that is not an agent, or that is connected only through other protocols.
- Each request has a separate session, which ends with the request. The session receives nothing, so INBOX claims no
  message. The session does not end the member's other sessions.
- A request creates a member only if it is a valid SEND.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, parse_member_name
from tieline.contract.member import ByUser, MemberKind, Origin, Presence, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec, speaking
from tieline.protocols.agent_relay.codec import PROTOCOL, Envelope
from tieline.protocols.agent_relay.error_code import ErrorCode
from tieline.protocols.agent_relay.procedure import Payload
from tieline.protocols.agent_relay.queries import QUERIES

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

_SERVED = frozenset({"SEND", *QUERIES}) - {"REMOVE_AGENT"}
_OF_A_MEMBER = frozenset({"SEND", "INBOX", "MESSAGES_QUERY"})
_SPAWNING = frozenset({"SPAWN", "RELEASE"})


def serve(connection: "RelayConnection", envelope: Envelope) -> None:
    """Answer or refuse a frame of a client without a session.

    Such a client has sent no HELLO, or it is one of Agent Relay's tools, which are not members.
    """
    kind = envelope.type
    if kind in _SPAWNING:
        connection.decline(envelope)
    elif connection.tool and kind not in _SERVED - {"SEND"}:
        _refuse(connection, envelope, Refusal(Code.FORBIDDEN, f"{connection.tool} is a tool: it may ask, and no more"))
    elif kind not in _SERVED or (kind == "SEND" and not envelope.sender):
        # spec 4: a session begins with HELLO.
        connection.record(Code.INVALID_REQUEST, "SEND before HELLO" if kind == "SEND" else "before HELLO")
        connection.error(ErrorCode.BAD_REQUEST, "Not in ACTIVE state", id=envelope.id)
    elif kind in _OF_A_MEMBER:
        _as_member(connection, envelope)
    else:
        _open(connection, envelope, None, lambda: _ask(connection, envelope))


def _refuse(connection: "RelayConnection", envelope: Envelope, refusal: Refusal) -> None:
    connection.audit(envelope, refusal)
    connection.refuse(envelope, refusal)


def _open(connection: "RelayConnection", envelope: Envelope, name: str | None, then: Callable[[], None]) -> None:
    """Open a session for one request, then call `then`. If the hub refuses the session, tell the client.

    The session belongs to the member `name`. The member is created if it does not exist. If `name` is `None`, the
    session belongs to no member.
    """

    def opened(reply: r.Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            connection.refuse(envelope, reply)
            connection.end_request()
        else:
            then()

    if name is None:
        connection.open(c.Attach(protocol=PROTOCOL, credential=Unnamed("request", PROTOCOL)), opened)
    else:
        connection.open(c.Attach(protocol=PROTOCOL, credential=ByUser(), member=MemberName(name)), opened)


def _ask(connection: "RelayConnection", envelope: Envelope) -> None:
    query = QUERIES[envelope.type]
    connection.run(query.procedure(connection, envelope.payload), envelope, query, connection.end_request)


def _as_member(connection: "RelayConnection", envelope: Envelope) -> None:
    """Handle a request without HELLO that reads the messages of one member, or sends a message for a member."""
    name = _name(envelope)
    if isinstance(name, Refusal):
        connection.refuse(envelope, name)
        return
    speaks = envelope.type == "SEND"
    if speaks and codec.is_tool(name):
        _refuse(connection, envelope, Refusal(Code.RESERVED_NAME, f"{name} is a tool: it may ask, and no more"))
        return
    content = codec.content_of(envelope, name) if speaks else None
    if isinstance(content, Refusal):
        _refuse(connection, envelope, content)
        return

    def found(reply: r.Reply) -> None:
        refusal: Refusal | None
        if isinstance(reply, Refusal):
            refusal, presence = reply, None
        else:
            assert isinstance(reply, r.Roster), "a list of members is answered by a roster"
            presence = reply.members[0] if reply.members else None
            refusal = _refuse_speaker(connection, name, presence) if speaks else None
        if refusal is not None:
            connection.refuse(envelope, refusal)
            connection.end_request()
        elif presence is None and not speaks:
            connection.send(QUERIES[envelope.type].answer, {"messages": []}, id=envelope.id)
            connection.end_request()
        else:
            connection.act_as(name)
            _open(connection, envelope, name, act)

    def act() -> None:
        if speaks:
            speaking.say(connection, envelope, connection.end_request)
        else:
            _ask(connection, envelope)

    def look() -> None:
        connection.submit(c.ListMembers(connection.session, name=MemberName(name)), found)

    _open(connection, envelope, None, look)


def _name(envelope: Envelope) -> str | Refusal:
    """Return the name of the member for whom a request reads or sends.

    Return a refusal if the request names no member.
    """
    payload: Payload = envelope.payload
    if envelope.type == "SEND":
        return envelope.sender or ""
    said = [payload.get("agent"), envelope.sender]
    if envelope.type == "MESSAGES_QUERY":
        said += [
            name
            for name in (payload.get("to"), payload.get("from"))
            if isinstance(name, str) and not isinstance(parse_member_name(name), Refusal)
        ]
    for name in said:
        if isinstance(name, str) and name:
            return name
    return Refusal(Code.INVALID_REQUEST, "say whose messages: payload.agent needs a name")


def _refuse_speaker(connection: "RelayConnection", name: str, presence: Presence | None) -> Refusal | None:
    """Return a refusal if a request without HELLO may not send messages as the member `name`, else `None`.

    Such a request may not send for a member that is not an agent, or that is connected only on other protocols. The
    result is also `None` for a name that a token protects, because the hub itself then refuses to open the session.
    """
    if presence is None or presence.member.origin is not Origin.LOCAL:
        return None
    # Requests have sessions too. So only a connection that sent HELLO shows that the member is an agent here.
    elsewhere = any(used != PROTOCOL for used in presence.sessions) and not connection.server.named(name)
    if presence.member.kind is MemberKind.AGENT and not elsewhere:
        return None
    connection.record(Code.NAME_TAKEN, "SEND before HELLO")
    why = "is in use on another protocol" if elsewhere else "is not the name of an agent"
    return Refusal(Code.NAME_TAKEN, f"{name} {why}: only a session that said HELLO may speak for it")
