"""One-shot requests: frames of clients that never say HELLO, and the questions of this protocol's own tools.

Above: `connection`. Below: `speaking` and `queries`, and the hub's sessions. The MCP server of the existing
implementation opens a connection for each request and says no HELLO. Its command line and its dashboard say HELLO under
names that no member can have (`codec.is_tool`): they may ask, and say nothing.

**Trust.** The socket is open to the hub's own user alone, whose processes may say HELLO under every name that no token
protects. A request without HELLO may do less:

- A name that a token protects is refused, for reading and for speaking: the hub refuses the session.
- Nobody speaks for a member that is not an agent, or that is in use on other protocols only.
- A request has a session of its own, which ends with the request. The session receives nothing, so INBOX is a peek; and
  it does not end the member's other sessions.
- Only a SEND that could be sent creates a member.
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
    """Answer a frame that a client sends without a HELLO, such as one query of a tool; or refuse it under its id."""
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
    """Open a session for one request, then call `then`. If the hub refuses, tell the client.

    The session is for the local member `name`, which is created if it is new; or for no member, if `name` is `None`.
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
    """Serve a request that reads one member's messages or sends a message for the member."""
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
    """Return the name of the member whose messages a request reads or sends, or a refusal if it names none."""
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

    It may not if the member is no agent, or is connected only on other protocols. Names that a token protects are
    refused by the hub itself, when the session opens.
    """
    if presence is None or presence.member.origin is not Origin.LOCAL:
        return None
    # Requests have sessions, too, so only a connection that said HELLO shows that the member is an agent here.
    elsewhere = any(used != PROTOCOL for used in presence.sessions) and not connection.server.named(name)
    if presence.member.kind is MemberKind.AGENT and not elsewhere:
        return None
    connection.record(Code.NAME_TAKEN, "SEND before HELLO")
    why = "is in use on another protocol" if elsewhere else "is not the name of an agent"
    return Refusal(Code.NAME_TAKEN, f"{name} {why}: only a session that said HELLO may speak for it")
