"""The hub's messages and members in backchannel's words, and what its clients ask to send in the hub's.

Above: the relay. Below: `message`, which has the keys. What those cannot carry of a message from another protocol goes
under one more key, `tieline`, so that nothing is dropped in silence and no client trips over it.
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
    """What a client asks to send. Whatever else it says, its name for one, counts for nothing."""

    to: str
    body: str
    priority: Literal["normal", "urgent"] | None = None
    scope: str | None = None
    thread: str | None = None
    refs: tuple[str, ...] | None = None


def agent_name(text: str) -> MemberName | Refusal:
    """A name that an agent may have, or why not in the words that existing clients look for."""
    refusal = check_name(text)
    if refusal is not None:
        return refusal
    name = parse_member_name(text)
    if isinstance(name, Refusal):
        return Refusal(name.code, f'invalid agent name "{text}" — it is kept for the hub itself')
    return name


def target_of(to: str) -> Target | Refusal:
    """Where a message goes: a leading `#` means a channel, `*` everybody, `obj:` an objective; all else is a name."""
    if to == "*" or to.startswith("obj:"):
        # No agent can have such a name.
        return parse_target(to)
    if is_channel(to):
        channel = parse_channel_name(to[1:])
        return channel if isinstance(channel, Refusal) else to_channel(channel)
    member = parse_member_name(agent_of(to))
    return member if isinstance(member, Refusal) else to_member(member)


def content_of(draft: Draft, target: Target) -> m.Content:
    """What a client says. Its thread is the id of the message that it answers, where it is an id at all."""
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
    """A message as its sender reads it back: `to` is as it was written."""
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
    """When the hub accepted a message: its id is a UUIDv7, which begins with that."""
    return int(message_id[:8] + message_id[9:13], 16)


def received(message: m.Message) -> dict[str, Any]:
    """A message as its recipients read it, whatever protocol it came by."""
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
    # Everybody is the channel that holds everybody; an objective's thread has no word here and keeps the hub's.
    return f"#{GENERAL}" if target.kind is TargetKind.EVERYBODY else str(target)


def _more(message: m.Message) -> dict[str, Any]:
    """What backchannel's own keys cannot carry."""
    more = beyond(message, CARRIAGE.carries)
    said = message.content
    if said.thread in (None, said.reply_to):
        # Its thread is the message that it answers.
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
    """A member as an agent's record; `token` is shown once, when it is given. Who is connected is seen now."""
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
    """The channels that each member joined, by its name; the one that holds everybody is nobody's doing."""
    joined: dict[str, list[str]] = {}
    for channel in channels:
        if channel.name != GENERAL:
            for name in channel.subscribers:
                joined.setdefault(name, []).append(f"#{channel.name}")
    return joined
