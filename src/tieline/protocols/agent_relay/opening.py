"""Opening a session: from HELLO or RESUME to WELCOME or SYNC, or to a refusal after which a new HELLO is allowed.

Above: `connection`, which becomes active when the session opens. Below: `handshake`, which reads and makes the
payloads.
"""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Replayed, StreamCursor
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec, handshake
from tieline.protocols.agent_relay.codec import Envelope, ErrorCode
from tieline.protocols.agent_relay.handshake import Terms

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

_REPLAY_MAX = 100_000
"""Settled deliveries that are replayed at once. A client that lost more than that starts a new session."""
_NOT_KEPT = "what happened since is not kept any more; send a fresh HELLO"


def begin(connection: "RelayConnection", envelope: Envelope) -> None:
    """Open the session that a HELLO or RESUME asks for."""
    server = connection.server
    read = handshake.hello if envelope.type == "HELLO" else handshake.resume
    terms = read(envelope.payload, server.hub.limits)
    if isinstance(terms, Refusal):
        connection.fail(codec.ERROR_CODES[terms.code], terms.message)
    elif terms.session_id is not None and terms.resume_token is None and server.require_resume_token:
        connection.record(Code.RESUME_REFUSED, "RESUME without its token")
        connection.stay("this hub wants payload.resume_token in a RESUME")
    else:
        _attach(connection, terms)


def _attach(connection: "RelayConnection", terms: Terms) -> None:
    def opened(reply: r.Attached | Refusal) -> None:
        if connection.closed:
            return
        if isinstance(reply, Refusal):
            _refused(connection, terms, reply)
        elif terms.session_id is None:
            server = connection.server
            limits = {"max_frame_bytes": server.frame_bytes_max, "heartbeat_ms": server.heartbeat_ms}
            connection.send("WELCOME", handshake.welcome(reply, limits))
            connection.activate(terms, reply)
        else:
            _read(connection, terms, reply, (), None)

    connection.open(terms.attach(), opened)


def _refused(connection: "RelayConnection", terms: Terms, refusal: Refusal) -> None:
    if terms.session_id is not None:
        connection.stay(refusal.message)
    elif refusal.code is Code.RESUME_REFUSED:
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
    """Ask the hub for the deliveries that the client misses, page by page; `before` holds those found so far."""

    def answered(reply: r.Reply) -> None:
        if not isinstance(reply, r.Streams) or reply.stale or len(before) > _REPLAY_MAX:
            connection.stay(_NOT_KEPT)
            return
        replay = before + reply.replay
        if reply.following is not None:
            _read(connection, terms, attached, replay, reply.following)
            return
        connection.send("SYNC", handshake.sync(attached, reply.streams, connection.server.frame_bytes_max))
        connection.activate(terms, attached, tuple(sorted(replay, key=lambda one: one.key)))

    connection.submit(c.ReadStreams(attached.session, positions=terms.positions, following=following), answered)
