"""Translation between the hub and backchannel: messages and members for its clients, and drafts for the hub.

Above: the relay. Below: `codec`, which has the keys. A message from another protocol may have fields that these keys
cannot carry. Such fields go under one more key, `tieline`, so that nothing is lost and no client fails on them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from tieline.contract import message as m
from tieline.contract.identifiers import GENERAL, MemberName, MessageId, parse_channel_name, parse_member_name
from tieline.contract.member import Presence
from tieline.contract.refusal import Refusal
from tieline.contract.reply import ChannelView
from tieline.contract.target import Target, TargetKind, parse_target, to_channel, to_member
from tieline.protocols.backchannel.codec import (
    NORMAL,
    SpoolMessage,
    agent_of,
    check_name,
    document_of,
    is_channel,
    is_id,
    timestamp,
)
from tieline.wire.fidelity import Carriage, Field, beyond


class Draft(Struct, frozen=True):
    """A message that a client asks to send. Other keys, such as the sender's name, are ignored."""

    to: str
    body: str
    priority: Literal["normal", "urgent"] | None = None
    scope: str | None = None
    thread: str | None = None
    refs: tuple[str, ...] | None = None


def agent_name(text: str) -> MemberName | Refusal:
    """Parse an agent's name. A refusal has the wording that existing clients look for."""
    refusal = check_name(text)
    if refusal is not None:
        return refusal
    name = parse_member_name(text)
    if isinstance(name, Refusal):
        return Refusal(name.code, f'invalid agent name "{text}" — it is kept for the hub itself')
    return name


def target_of(to: str) -> Target | Refusal:
    """Parse a target: `#` at the start means a channel, `*` everybody, `obj:` an objective, anything else a name."""
    if to == "*" or to.startswith("obj:"):
        # No agent can have such a name.
        return parse_target(to)
    if is_channel(to):
        channel = parse_channel_name(to[1:])
        return channel if isinstance(channel, Refusal) else to_channel(channel)
    member = parse_member_name(agent_of(to))
    return member if isinstance(member, Refusal) else to_member(member)


def content_of(draft: Draft, target: Target) -> m.Content:
    """Convert a draft to the hub's content. If the thread is an id, it is the message that the draft answers."""
    thread = draft.thread or None
    return m.Content(
        target=target,
        body=draft.body,
        priority=m.Priority(draft.priority or NORMAL),
        scope=draft.scope or None,
        thread=thread,
        reply_to=MessageId(thread) if thread and is_id(thread) else None,
        refs=draft.refs or (),
    )


def sent(message_id: MessageId, sender: str, draft: Draft) -> dict[str, Any]:
    """Return a message for its sender. `to` is as the sender wrote it."""
    return document_of(
        SpoolMessage(
            id=message_id,
            sender=sender,
            to=draft.to,
            body=draft.body,
            ts=timestamp(_made_at_ms(message_id)),
            priority=draft.priority or NORMAL,
            scope=draft.scope,
            thread=draft.thread,
            refs=draft.refs or (),
        )
    )


def _made_at_ms(message_id: MessageId) -> int:
    """Time at which the hub accepted a message. The id is a UUIDv7, which begins with the time."""
    return int(message_id[:8] + message_id[9:13], 16)


def received(message: m.Message) -> dict[str, Any]:
    """Return a message for its recipients, from any protocol."""
    said = message.content
    document = document_of(
        SpoolMessage(
            id=message.id,
            sender=message.sender,
            to=_address(said.target),
            body=said.body,
            ts=timestamp(message.sent_at_ms),
            priority=said.priority.value,
            scope=said.scope,
            thread=said.thread or said.reply_to,
            refs=said.refs,
        )
    )
    more = _more(message)
    if more:
        document["tieline"] = more
    return document


def _address(target: Target) -> str:
    # The target "everybody" becomes the channel that has all members. An objective's thread keeps the hub's notation.
    return f"#{GENERAL}" if target.kind is TargetKind.EVERYBODY else str(target)


def _more(message: m.Message) -> dict[str, Any]:
    """Return the fields that backchannel's own keys cannot carry."""
    more = beyond(message, CARRIAGE.carries)
    said = message.content
    if said.thread in (None, said.reply_to):
        # `thread` already carries the message that this one answers.
        more.pop(Field.REPLY_TO.value, None)
    return more


CARRIAGE = Carriage(
    "backchannel",
    says={
        Field.PRIORITY: "`priority`",
        Field.SCOPE: "`scope`",
        Field.THREAD: "`thread`",
        Field.REPLY_TO: "`thread`, where it is a message's id",
        Field.REFS: "`refs`",
    },
    carries={
        Field.PRIORITY: "`priority`",
        Field.SCOPE: "`scope`",
        Field.THREAD: "`thread`",
        Field.REFS: "`refs`",
    },
    rest="`tieline`",
)


def agent(
    presence: Presence, channels: Mapping[str, Sequence[str]], now_ms: int, token: str | None = None
) -> dict[str, Any]:
    """Return a member as an agent's record. A connected member is seen now. `token` is shown only when issued."""
    member = presence.member
    seen_ms = now_ms if presence.sessions else presence.last_seen_ms
    record: dict[str, Any] = {
        "name": member.name,
        "subscriptions": channels.get(member.name, ()),
        "createdAt": timestamp(member.created_at_ms),
        "lastSeen": timestamp(member.created_at_ms if seen_ms is None else seen_ms),
    }
    if token is not None:
        record["token"] = token
    return record


def subscriptions(channels: Sequence[ChannelView]) -> dict[str, list[str]]:
    """Return the channels that each member joined, by name. The channel that has all members is left out."""
    joined: dict[str, list[str]] = {}
    for channel in channels:
        if channel.name != GENERAL:
            for name in channel.subscribers:
                joined.setdefault(name, []).append(f"#{channel.name}")
    return joined
