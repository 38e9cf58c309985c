"""Shadows: agents that get copies of the messages that another agent (the primary) receives and sends.

A shadow gets copies only of frames that pass through this protocol's server: DELIVERs and CHANNEL_MESSAGEs that the
primary receives here, and the primary's own SENDs and CHANNEL_MESSAGEs once the hub has accepted them. Messages of the
primary on other protocols are not copied. A copy is sent only if the shadow is connected and reads fast enough. A copy
is not a delivery: the hub does not store it, does not count it, and does not send it again.

**Permission.** Every process of the hub's user may shadow a name that no token protects, because such a process could
take the name anyway. A connection that was opened with a token is shadowed only by members with the permission
`messages.shadow`. The server checks this for each copy, and not only when the shadow binds, because a name may get a
token later.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, parse_member_name
from tieline.contract.member import Origin, Presence
from tieline.contract.permission import MESSAGES_SHADOW
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import Envelope
from tieline.protocols.agent_relay.procedure import Payload, Procedure

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection
    from tieline.protocols.agent_relay.server import RelayServer

PRIMARIES_MAX = 64
"""Largest number of agents that one connection may shadow."""

INCOMING = "incoming"
OUTGOING = "outgoing"

_SESSION_END = "SESSION_END"
_ALL = "ALL_MESSAGES"


class Binding(Struct, frozen=True):
    """Record of the copies that one connection (the shadow) gets of the messages of one agent (the primary)."""

    directions: frozenset[str]
    at_end: bool
    """True if the shadow gets a notice when the primary's last connection ends."""
    permitted: bool
    """True if the shadow may also get copies from connections that were opened with a token."""


class Shadows:
    """All bindings between shadows (agents that get copies) and primaries (agents whose messages are copied)."""

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._by_primary: dict[str, dict[RelayConnection, Binding]] = {}
        self._primaries: dict[RelayConnection, set[str]] = {}

    def bind(self, shadow: "RelayConnection", payload: Payload) -> Procedure:
        """Handle SHADOW_BIND: start to send copies of an agent's messages to the connection `shadow`.

        `primaryAgent` in the payload names the agent whose messages are copied.
        """
        primary = payload.get("primaryAgent")
        if not isinstance(primary, str) or isinstance(parse_member_name(primary), Refusal) or primary == shadow.name:
            return Refusal(Code.INVALID_REQUEST, "SHADOW_BIND needs payload.primaryAgent, the name of another agent")
        primaries = self._primaries.get(shadow, set())
        if primary not in primaries and len(primaries) >= PRIMARIES_MAX:
            return Refusal(Code.INVALID_REQUEST, f"a connection shadows at most {PRIMARIES_MAX} agents")
        itself = _found((yield c.ListMembers(shadow.session, name=MemberName(shadow.name))))
        other = _found((yield c.ListMembers(shadow.session, name=MemberName(primary))))
        permitted = itself is not None and MESSAGES_SHADOW in itself.member.permissions
        if other is not None and other.member.origin is Origin.TOKEN and not permitted:
            return Refusal(Code.FORBIDDEN, f"{primary} belongs to a token: shadowing it needs {MESSAGES_SHADOW}")
        self._by_primary.setdefault(primary, {})[shadow] = _binding(payload, permitted=permitted)
        self._primaries.setdefault(shadow, set()).add(primary)
        return None

    def unbind(self, shadow: "RelayConnection", payload: Payload) -> None:
        """Stop sending copies of the messages of the agent that `payload` names to the connection `shadow`."""
        primary = payload.get("primaryAgent")
        if isinstance(primary, str) and primary in self._primaries.get(shadow, ()):
            self._stop_copies(shadow, primary)

    def _stop_copies(self, shadow: "RelayConnection", primary: str) -> None:
        primaries = self._primaries[shadow]
        primaries.remove(primary)
        if not primaries:
            del self._primaries[shadow]
        del self._by_primary[primary][shadow]
        if not self._by_primary[primary]:
            del self._by_primary[primary]

    def forget(self, shadow: "RelayConnection") -> None:
        """Stop all copies to the connection `shadow`, because the connection is gone."""
        for primary in list(self._primaries.get(shadow, ())):
            self._stop_copies(shadow, primary)

    def heard(self, primary: "RelayConnection", envelope: Envelope) -> None:
        """Send a copy of a frame to the shadows (connections that get copies) of the agent `primary`.

        The frame is a message that this agent receives.
        """
        if primary.name in self._by_primary:
            # The copy is addressed to the shadow, so it also names the original recipient.
            to = (envelope.delivery or {}).get("originalTo", primary.name)
            if envelope.type == codec.CHANNEL_MESSAGE:
                to = envelope.payload["channel"]
            self._copy(primary, INCOMING, envelope, envelope.id, other=envelope.sender, original_to=to)

    def said(self, primary: "RelayConnection", envelope: Envelope, message_id: str) -> None:
        """Send a copy of a message to all shadows (connections that get copies) of its sender `primary`.

        The hub has accepted the message under the id `message_id`.
        """
        if primary.name in self._by_primary:
            to = envelope.to or str(envelope.payload.get("channel"))
            self._copy(primary, OUTGOING, envelope, message_id, other=to.removeprefix("@"), original_to=to)

    def end(self, primary: "RelayConnection") -> None:
        """Tell the shadows (connections that get copies) of `primary` that its last connection has ended.

        Only shadows that asked for this notice get it.
        """
        data = {"_shadowTrigger": _SESSION_END, "_shadowOf": primary.name}
        payload = {"kind": "action", "body": f"SHADOW_TRIGGER:{_SESSION_END}", "data": data}
        for shadow, binding in self._watching(primary):
            if binding.at_end:
                self._write(shadow, primary.name, self._server.next_id(), payload)

    def _watching(self, primary: "RelayConnection") -> list[tuple["RelayConnection", Binding]]:
        """Return the shadows (connections that get copies) of `primary`, each with its binding.

        Leave out shadows that lack the permission to get copies from this connection.
        """
        bindings = self._by_primary.get(primary.name, {})
        return [(shadow, one) for shadow, one in bindings.items() if one.permitted or not primary.by_token]

    def _copy(
        self,
        primary: "RelayConnection",
        direction: str,
        envelope: Envelope,
        identifier: str,
        *,
        other: str | None,
        original_to: str | None,
    ) -> None:
        marks = {"_shadowCopy": True, "_shadowOf": primary.name, "_shadowDirection": direction}
        payload = {"kind": "message"} | envelope.payload | {"data": (envelope.payload.get("data") or {}) | marks}
        sender = primary.name if direction == OUTGOING else envelope.sender or ""
        for shadow, binding in self._watching(primary):
            # A shadow gets no copy of a message that it sent itself or received directly.
            if direction in binding.directions and other != shadow.name:
                # A copy has the same id each time, so that a client can recognize a repeated copy.
                self._write(shadow, sender, f"s-{identifier}", payload, envelope.topic, original_to)

    def _write(
        self,
        shadow: "RelayConnection",
        sender: str,
        identifier: str,
        payload: Payload,
        topic: str | None = None,
        original_to: str | None = None,
    ) -> None:
        # Clients expect a sequence number in each DELIVER; a copy counts in no stream.
        delivery: dict[str, Any] = {"seq": 0, "session_id": shadow.session_id}
        if original_to is not None:
            delivery["originalTo"] = original_to
        copy = Envelope(
            "DELIVER",
            id=identifier,
            ts=self._server.now_ms(),
            sender=sender,
            to=shadow.name,
            topic=topic,
            payload=payload,
            delivery=delivery,
        )
        shadow.tell(codec.encode(copy))


def _binding(payload: Payload, *, permitted: bool) -> Binding:
    wants = {INCOMING: payload.get("receiveIncoming"), OUTGOING: payload.get("receiveOutgoing")}
    speak_on = payload.get("speakOn")
    triggers = speak_on if isinstance(speak_on, list) else ()
    directions = frozenset(direction for direction, wanted in wants.items() if wanted is not False)
    return Binding(directions, at_end=_SESSION_END in triggers or _ALL in triggers, permitted=permitted)


def _found(reply: r.Reply) -> Presence | None:
    assert isinstance(reply, r.Roster), "a list of members is answered by a roster"
    return reply.members[0] if reply.members else None
