"""Channels in agent-relay: handles the frames CHANNEL_JOIN and CHANNEL_LEAVE, and announces joins and leaves.

A channel belongs to the hub, and members on all protocols can be in it. A join or leave is announced only to members of
the channel that are connected through agent-relay. Joins and leaves of members on other protocols are not announced.
"""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.procedure import Payload, Procedure

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection

JOIN = "CHANNEL_JOIN"
LEAVE = "CHANNEL_LEAVE"

_CARRIED = ("displayName", "avatarUrl", "reason", "member")
_CARRIED_CHARACTERS_MAX = 1024  # these are labels; longer ones are left out


def join(connection: "RelayConnection", payload: Payload) -> Procedure:
    """Handle CHANNEL_JOIN: add the client's member to the channel that the payload names.

    If the payload has `member`, add the member with this name instead.
    """
    return _move(connection, payload, JOIN)


def leave(connection: "RelayConnection", payload: Payload) -> Procedure:
    """Handle CHANNEL_LEAVE: remove the client's member from the channel that the payload names.

    If the payload has `member`, remove the member with this name instead.
    """
    return _move(connection, payload, LEAVE)


def _move(connection: "RelayConnection", payload: Payload, kind: str) -> Procedure:
    group = codec.group_of(payload.get("channel"))
    if group is not None:
        # A `dm:` channel always has the same members, so JOIN and LEAVE change nothing.
        return (
            None if connection.name in group else Refusal(Code.FORBIDDEN, "this channel is for its own members alone")
        )
    channel, other = codec.channel_named(payload.get("channel")), payload.get("member")
    if isinstance(channel, Refusal):
        return channel
    if other is not None and not isinstance(other, str):
        return Refusal(Code.INVALID_REQUEST, "payload.member must be a name")
    session = connection.session
    before = yield c.ListChannels(session, channel=channel)
    assert isinstance(before, r.Channels), "a list of channels is answered by channels"
    member = None if other in (None, connection.name) else MemberName(other or "")
    yield (
        c.Subscribe(session, channel=channel, member=member)
        if kind == JOIN
        else c.Unsubscribe(session, channel=channel, member=member)
    )
    (view,) = before.channels
    who = member or connection.name
    if (who in view.subscribers) is (kind == LEAVE):
        # A member that another member adds or removes is told too.
        names = {*view.subscribers, who} - {connection.name}
        news = {"channel": f"#{channel}"} | {
            key: value
            for key in _CARRIED
            if isinstance(value := payload.get(key), str) and len(value) <= _CARRIED_CHARACTERS_MAX
        }
        listeners = (listener for name in names for listener in connection.server.named(name))
        connection.server.tell(kind, news, listeners, sender=connection.name)
    return None
