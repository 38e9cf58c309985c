"""Opening a session: answers HELLO with WELCOME, and RESUME with SYNC. After a refused RESUME, a client may send HELLO.

Used by: `connection`, which becomes active when the session opens. Uses: `handshake`, which reads and makes the
payloads.
"""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Replayed, StreamCursor
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec, handshake
from tieline.protocols.agent_relay.codec import PROTOCOL, Envelope
from tieline.protocols.agent_relay.error_code import ERROR_CODES, ErrorCode
from tieline.protocols.agent_relay.handshake import Terms

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

_REPLAY_MAX = 100_000
"""Largest number of deliveries that are sent again when a client resumes its session.

A client that missed more deliveries must start a new session.
"""
_NOT_KEPT = "what happened since is not kept any more; send a fresh HELLO"


def begin(connection: "RelayConnection", envelope: Envelope) -> None:
    """Handle a HELLO or RESUME (`envelope`): open or resume a session and answer the client, or refuse."""
    server = connection.server
    read = handshake.hello if envelope.type == "HELLO" else handshake.resume
    terms = read(envelope.payload, server.hub.limits)
    if isinstance(terms, Refusal):
        connection.fail(ERROR_CODES[terms.code], terms.message)
    elif terms.session_id is not None and terms.resume_token is None and server.require_resume_token:
        # gap 2: spec 8 resumes by the session's id alone.
        connection.record(Code.RESUME_REFUSED, "RESUME without its token")
        connection.stay("this hub wants payload.resume_token in a RESUME")
    elif codec.is_tool(terms.name):
        _admit_tool(connection, terms)
    else:
        _attach(connection, terms)


def _attach(connection: "RelayConnection", terms: Terms) -> None:
    def opened(reply: r.Attached | Refusal) -> None:
        if connection.closed:
            return
        if isinstance(reply, Refusal):
            _refused(connection, terms, reply)
        elif terms.session_id is None:
            # spec 4: WELCOME confirms the session.
            connection.send("WELCOME", handshake.welcome(reply, _limits(connection)))
            connection.activate(terms, reply)
        else:
            _read(connection, terms, reply, (), None)

    connection.open(terms.attach(), opened)


def _admit_tool(connection: "RelayConnection", terms: Terms) -> None:
    """Answer the HELLO of one of Agent Relay's own tools with WELCOME. Refuse its RESUME.

    A tool is not a member, so it has no session that it could resume.
    """
    if terms.session_id is not None:
        connection.stay("a tool has no session to resume; send a fresh HELLO")
        return

    def opened(reply: r.Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            connection.end(reply)
        else:
            connection.send("WELCOME", {"session_id": connection.server.next_id(), "server": _limits(connection)})
            connection.admit_tool(terms)

    connection.open(c.Attach(protocol=PROTOCOL, credential=Unnamed(terms.name, PROTOCOL)), opened)


def _limits(connection: "RelayConnection") -> dict[str, int]:
    server = connection.server
    return {"max_frame_bytes": server.frame_bytes_max, "heartbeat_ms": server.heartbeat_ms}


def _refused(connection: "RelayConnection", terms: Terms, refusal: Refusal) -> None:
    if terms.session_id is not None:
        connection.stay(refusal.message)
    elif refusal.code is Code.RESUME_REFUSED:
        # spec 4: session.resume_token is optional, so a new session follows.
        connection.error(ErrorCode.RESUME_TOO_OLD, refusal.message)
        _attach(connection, terms.afresh())
    else:
        connection.end(refusal)


def _read(
    connection: "RelayConnection",
    terms: Terms,
    attached: r.Attached,
    before: tuple[Replayed, ...],
    following: StreamCursor | None,
) -> None:
    """Ask the hub for the deliveries that a resuming client has missed, page by page. Then send SYNC to the client.

    `before` has the deliveries found so far. `following` is the cursor of the next page.
    """

    def answered(reply: r.Reply) -> None:
        if not isinstance(reply, r.Streams) or reply.stale or len(before) > _REPLAY_MAX:
            # spec 8: the gap exceeds retention.
            connection.stay(_NOT_KEPT)
            return
        replay = before + reply.replay
        if reply.following is not None:
            _read(connection, terms, attached, replay, reply.following)
            return
        # spec 8: SYNC, then a replay from last_seq + 1 to server_last_seq.
        connection.send("SYNC", handshake.sync(attached, reply.streams, connection.server.frame_bytes_max))
        connection.activate(terms, attached, tuple(sorted(replay, key=lambda one: one.key)))

    connection.submit(c.ReadStreams(attached.session, positions=terms.positions, following=following), answered)
