"""The handshake: reads HELLO and RESUME, and makes the answers WELCOME and SYNC.

Used by: `connection`. Uses: the hub's commands for sessions. This module knows nothing about sockets: it reads
payloads, and makes commands and payloads.
"""

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Position
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.member import ByToken, ByUser, MemberKind
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import DEFAULT_TOPIC, PROTOCOL
from tieline.protocols.agent_relay.procedure import Payload

MAX_INFLIGHT = 256
"""Most unacknowledged deliveries that are sent to a client, if its HELLO or RESUME gives no number."""

ABOUT = ("cli", "program", "model", "task", "team", "displayName", "parent")
"""Keys of HELLO with details about an agent. A list of agents shows these details while the agent is connected."""
_ABOUT_CHARACTERS_MAX = 1024
_KINDS = {"user": MemberKind.HUMAN, "script": MemberKind.SCRIPT}
"""Kind of member for each value of `entityType` in HELLO. Any value that is not listed means an agent."""


class Terms(Struct, frozen=True, kw_only=True):
    """The fields of a client's HELLO or RESUME frame: its name, its token, its options, and the session to resume."""

    name: str
    token: str | None
    """The member's token; `None` if the client gave none."""
    kind: MemberKind
    about: dict[str, str]
    acknowledges: bool
    tells: bool
    """True if the client wants an ACK or NACK for each SEND."""
    window: int
    """Most unacknowledged deliveries that the hub sends to the client."""
    resume_token: str | None = None
    session_id: str | None = None
    """Id of the session that a RESUME resumes; `None` in a HELLO."""
    positions: tuple[Position, ...] = ()

    def attach(self) -> c.Attach:
        """Return the hub's command that opens or resumes the session."""
        return c.Attach(
            protocol=PROTOCOL,
            credential=ByToken(self.token) if self.token is not None else ByUser(),
            member=MemberName(self.name),
            acknowledges=self.acknowledges,
            kind=self.kind,
            # spec 1: one connection per agent. A new one ends the older one. A person may have several.
            exclusive=self.kind is not MemberKind.HUMAN,
            resumable=True,
            resume_token=self.resume_token,
            resume_id=self.session_id,
        )

    def afresh(self) -> "Terms":
        """Return a copy without the resume token.

        The copy opens a new session, because the old session cannot be resumed.
        """
        return msgspec.structs.replace(self, resume_token=None)


def hello(payload: Payload, limits: Limits) -> Terms | Refusal:
    """Return the fields in the payload of a HELLO, or a refusal if the payload has the wrong form."""
    terms, session = _terms(payload, limits), payload.get("session")
    if session is None:
        session = {}
    if terms is None or not isinstance(session, dict) or not isinstance(session.get("resume_token"), str | None):
        return Refusal(
            Code.INVALID_REQUEST,
            "HELLO needs payload.agent, a name; capabilities and session, if any, are objects, and tokens are texts",
        )
    return Terms(**terms, resume_token=session.get("resume_token"))


def resume(payload: Payload, limits: Limits) -> Terms | Refusal:
    """Return the fields in the payload of a RESUME, or a refusal if the payload has the wrong form."""
    terms, session_id, token = _terms(payload, limits), payload.get("session_id"), payload.get("resume_token")
    if terms is None or not isinstance(session_id, str) or not isinstance(token, str | None):
        return Refusal(Code.INVALID_REQUEST, "RESUME needs payload.agent, a name, and payload.session_id")
    positions = _positions(payload.get("streams"))
    if positions is None:
        return Refusal(Code.INVALID_REQUEST, "payload.streams of RESUME is an object: topic to {last_seq, peers}")
    return Terms(**terms, session_id=session_id, resume_token=token, positions=positions)


def _terms(payload: Payload, limits: Limits) -> Payload | None:
    """Return the fields of `Terms` that both HELLO and RESUME have, or `None` if a field has the wrong form."""
    name, token, capabilities = payload.get("agent"), payload.get("token"), payload.get("capabilities")
    if capabilities is None:
        capabilities = {}
    if not isinstance(name, str) or not isinstance(token, str | None) or not isinstance(capabilities, dict):
        return None
    # spec 4; `accept` is this hub's own (gap 4).
    inflight = capabilities.get("max_inflight")
    return {
        "name": name,
        "token": token,
        "kind": _KINDS.get(str(payload.get("entityType")), MemberKind.AGENT),
        "about": {
            key: value
            for key in ABOUT
            if isinstance(value := payload.get(key), str) and 0 < len(value) <= _ABOUT_CHARACTERS_MAX
        },
        "acknowledges": capabilities.get("ack") is not False,
        "tells": capabilities.get("accept") is True,
        "window": min(inflight, limits.window_max) if type(inflight) is int and inflight > 0 else MAX_INFLIGHT,
    }


def _positions(streams: object) -> tuple[Position, ...] | None:
    """Return the sequence numbers of the last messages that a client has received, as its RESUME gives them.

    The specification has one number for each topic. Tieline's clients give one for each topic and sender. Return `None`
    if a number has the wrong form, because without the number the client could miss messages.
    """
    found: list[Position] = []
    if not isinstance(streams, dict | None):
        return None
    for topic, position in (streams or {}).items():
        peers = position.get("peers", {}) if isinstance(position, dict) else None
        if not isinstance(peers, dict):
            return None
        # spec 8: a position for each topic; spec 5: a stream is (topic, from → to), so there is one for each peer, too.
        name = "" if topic == DEFAULT_TOPIC else topic
        whole = {None: position["last_seq"]} if "last_seq" in position else {}
        for peer, seq in (whole | peers).items():
            if type(seq) is not int or seq < 0:
                return None
            found.append(Position(name, seq, peer))
    return tuple(found)


def welcome(attached: r.Attached, server: dict[str, int]) -> Payload:
    """Return the payload of a WELCOME (the answer to a HELLO). `server` has the limits that the hub announces."""
    return {"session_id": attached.resume_id, "resume_token": attached.resume_token, "server": server}


def sync(attached: r.Attached, streams: tuple[r.StreamView, ...], frame_bytes_max: int) -> Payload:
    """Return the payload of a SYNC (the answer to a RESUME).

    It has, for each stream, the last sequence numbers of the client and of the hub. If not all streams fit into one
    frame (protocol message), streams with messages that the client has missed come first. Streams that do not fit are
    left out.
    """
    entries = [
        {
            "topic": view.topic or DEFAULT_TOPIC,
            "peer": view.peer,
            "last_seq": view.last_seq if view.position is None else min(view.position, view.last_seq),
            "server_last_seq": view.last_seq,
        }
        for view in streams
    ]
    fitting = codec.fitting(entries, frame_bytes_max)
    if len(fitting) < len(entries):
        entries.sort(key=lambda entry: entry["last_seq"] == entry["server_last_seq"])
        fitting = codec.fitting(entries, frame_bytes_max)
    return {"session_id": attached.resume_id, "resume_token": attached.resume_token, "streams": fitting}
