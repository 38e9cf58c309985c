"""Speaking: checks a client's SEND or CHANNEL_MESSAGE, submits it to the hub, and passes the hub's answer on.

Used by: `connection`, and `one_shot` for clients without HELLO. Uses: `codec`, and the hub's command `Send`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.delivery import HELD
from tieline.contract.identifiers import MemberName
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import Envelope
from tieline.protocols.agent_relay.procedure import Procedure
from tieline.protocols.agent_relay.sync import Pending

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

BUSY_BACKLOG = 1000
"""If more deliveries than this wait for a recipient, its senders get BUSY, which asks them to slow down."""


def say(connection: "RelayConnection", envelope: Envelope, done: Callable[[], None] = lambda: None) -> None:
    """Submit the message in a client's SEND or CHANNEL_MESSAGE to the hub, and pass the hub's answer on to the client.

    Call `done` when the answer was sent.
    """

    def refuse(refusal: Refusal) -> None:
        connection.refuse(envelope, refusal)
        done()

    def said(replies: Sequence[r.Reply]) -> None:
        assert not isinstance(pending, Refusal), "what is refused is not sent"
        _said(connection, envelope, pending, replies[0])
        done()

    content = codec.content_of(envelope, connection.name)
    if isinstance(content, Refusal):
        connection.audit(envelope, content)
        refuse(content)
        return
    too_large = _refuse_size(connection, content)
    if too_large is not None:
        refuse(too_large)
        return
    in_channel = envelope.type == codec.CHANNEL_MESSAGE
    # spec 3: every envelope has an id. Without an id, a client has no protection against duplicates.
    send = c.Send(
        connection.session,
        content=content,
        wire_id=envelope.id or None,
        allow_empty=True,
        members_only=in_channel,
    )
    contents = codec.to_each(envelope, content, connection.name) if in_channel else ()
    if len(contents) > 1:
        connection.run(_to_group(connection, envelope, send, contents), envelope, done=done)
        return
    # spec 5, gap 9: a SEND with payload_meta.sync waits for an ACK.
    pending = connection.server.syncs.prepare(envelope, content.target, connection)
    if isinstance(pending, Refusal):
        refuse(pending)
        return
    connection.pump.submit((send,), said)


def _refuse_size(connection: "RelayConnection", content: m.Content) -> Refusal | None:
    """Return a refusal if the client's last frame is a message that would be too large when it is delivered."""
    frame_bytes_max = connection.server.frame_bytes_max
    # spec 2: no frame is larger than max_frame_bytes, and a DELIVER is a little larger than its SEND.
    near = connection.frame_bytes > frame_bytes_max - codec.DELIVERY_BYTES
    if near and codec.delivered_bytes(content, connection.name) > frame_bytes_max:
        text = f"its delivery would exceed the maximum of {frame_bytes_max} bytes for a frame"
        return Refusal(Code.MESSAGE_TOO_LARGE, text)
    return None


def _to_group(
    connection: "RelayConnection", envelope: Envelope, send: c.Send, contents: Sequence[m.Content]
) -> Procedure:
    """Send a message to each recipient in a `dm:` channel. If one recipient is unknown, send the message to nobody.

    `send` is the command for the whole channel. `contents` has the message once for each recipient.
    """
    for content in contents:
        name = MemberName(content.target.name)
        roster = yield c.ListMembers(connection.session, name=name)
        assert isinstance(roster, r.Roster), "a list of members is answered by a roster"
        if not roster.members or roster.members[0].member.name != name:
            return Refusal(Code.UNKNOWN_MEMBER, f"no member {name!r}: nobody of the group was told")
    first: r.Reply | None = None
    for content in contents:
        # Each copy has a wire id of its own, so that a repeated frame makes no second copy.
        wire_id = f"{send.wire_id}@{content.target.name}" if send.wire_id else None
        reply = yield replace(send, content=content, wire_id=wire_id)
        first = first or reply
    assert first is not None, "a group has other members"
    _said(connection, envelope, None, first)
    return None


def _said(connection: "RelayConnection", envelope: Envelope, pending: Pending | None, reply: r.Reply) -> None:
    server = connection.server
    if not isinstance(reply, r.Accepted):
        if pending is not None:
            server.syncs.drop(pending)
        if isinstance(reply, Refusal):
            connection.refuse(envelope, reply)
        return
    if pending is not None and reply.held.startswith(HELD):
        server.syncs.give_up(pending, reply.held)
    elif pending is not None:
        # This includes a repeated SEND: its sender waits again, and the first answer may have gone to a lost
        # connection.
        server.syncs.start(pending, reply.message_id)
    if connection.wants_acceptance:
        # gap 4: the specification has no word for "accepted".
        connection.send("ACK", {"ack_id": envelope.id, "message_id": reply.message_id})
    if not reply.duplicate:
        server.shadows.said(connection, envelope, reply.message_id)
    if reply.backlog > BUSY_BACKLOG:
        connection.busy(reply.backlog)
