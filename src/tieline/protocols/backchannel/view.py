"""Translation between the hub and backchannel: the hub's messages and members as JSON, and JSON as the hub's content.

Used by: the relay. Uses: `codec`, which has the keys of a message. A message from another protocol may have fields for
which backchannel has no key. Such fields are written under the extra key `tieline`, so that nothing is lost, and
clients can ignore them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

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
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.wire.fidelity import Carriage, Field, beyond
from tieline.wire.prefix_ids import from_prefix_id, to_prefix_id

RELAY = "backchannel"
"""Name of the protocol in sessions of the relay."""

AgentName = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 128})]
"""An agent's name in a request. The pattern is only for the OpenAPI document: `check_name` refuses invalid names."""
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]

_Beyond = Annotated[dict[str, Any], Meta(description="Fields of another protocol that the other keys cannot carry.")]


class Error(Struct, frozen=True):
    """JSON body of an answer to a request that was refused: the reason."""

    error: str


class Ok(Struct, frozen=True):
    """The request was carried out."""

    ok: Literal[True]


class Health(Ok, frozen=True):
    """The relay runs."""

    service: Literal["backchannel-relay"]


class Agent(Struct, frozen=True, rename="camel"):
    """An agent's record."""

    name: str
    subscriptions: Sequence[str]
    created_at: Time
    last_seen: Time
    token: Annotated[str, Meta(description="Shown once, when the name is registered.")] | UnsetType = UNSET


class Message(Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A message. `document_of` makes its JSON."""

    id: Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
    sender: Annotated[str, Meta(description="The authenticated sender. With an `@` in it, it is not authenticated.")]
    to: Annotated[str, Meta(description="`@agent` or `#channel`.")]
    body: Annotated[str, Meta(description="Markdown.")]
    priority: Literal["normal", "urgent"]
    scope: str | UnsetType = UNSET
    thread: Annotated[str, Meta(description="The id of the message that this one answers.")] | UnsetType = UNSET
    refs: list[str] | UnsetType = UNSET
    ts: Time
    tieline: _Beyond | UnsetType = UNSET


class Room(Struct, frozen=True, rename="camel"):
    """A new room."""

    room_id: Annotated[str, Meta(description="Goes into the header `x-backchannel-room`.")]
    room_token: Annotated[str, Meta(description="Admits new names to the room. Shown once.")]


class Taken(Struct, frozen=True):
    """A claimed message, or null if there is none to claim."""

    message: Message | None


class Name(Struct, frozen=True):
    """The name to register."""

    name: AgentName


class Channel(Struct, frozen=True):
    """A channel, with or without its `#`."""

    channel: str


class Claim(Struct, frozen=True):
    """The message to claim. `keep` is ignored: the hub keeps the message for a week in any case."""

    id: str | None = None
    keep: bool | None = None


class Draft(Struct, frozen=True):
    """A message that a client asks to send. Other keys, such as the sender's name, are ignored."""

    to: Annotated[str, Meta(description="`@agent`, a bare name, or `#channel`.")]
    body: Annotated[str, Meta(extra_json_schema={"minLength": 1})]
    priority: Literal["normal", "urgent"] | None = None
    scope: str | None = None
    thread: str | None = None
    refs: Annotated[tuple[str, ...], Meta(extra_json_schema={"maxItems": 256})] | None = None


def agent_name(text: str) -> MemberName | Refusal:
    """Return an agent's name if `text` is a valid name, otherwise a refusal.

    Existing clients rely on the wording of the refusal.
    """
    refusal = check_name(text)
    if refusal is not None:
        return refusal
    name = parse_member_name(text)
    if isinstance(name, Refusal):
        return Refusal(name.code, f'invalid agent name "{text}" — it is kept for the hub itself')
    return name


def target_of(to: str) -> Target | Refusal:
    """Return the target that a text names, or a refusal.

    `#name` is a channel, `*` is everybody, `obj:<id>` is an objective, anything else is a member.
    """
    if to == "*" or to.startswith("obj:"):
        # No agent can have such a name.
        return parse_target(to)
    if is_channel(to):
        channel = parse_channel_name(to[1:])
        return channel if isinstance(channel, Refusal) else to_channel(channel)
    member = parse_member_name(agent_of(to))
    return member if isinstance(member, Refusal) else to_member(member)


def content_of(draft: Draft, target: Target) -> m.Content:
    """Return the hub's content for a draft (a message that a client wants to send).

    If `thread` of the draft is a message id, the content is a reply to that message.
    """
    thread = from_prefix_id(draft.thread) if draft.thread else None
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
    """Return a sent message as JSON, for the answer to its sender. Its `to` is the text that the sender wrote."""
    return document_of(
        SpoolMessage(
            id=to_prefix_id(message_id),
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
    """Return the time, in milliseconds, at which the hub accepted a message.

    The time is a part of the message's id, because the id is a UUIDv7.
    """
    return int(message_id[:8] + message_id[9:13], 16)


def spelling_of(draft: Draft, target: Target) -> bytes | None:
    """Return `to` as the sender wrote it, for the hub to store with the message, so that recipients see this text.

    Return `None` if the hub's own text for the target is the same, because then nothing must be stored.
    """
    return draft.to.encode() if target.kind is TargetKind.MEMBER and str(target) != draft.to else None


def received(message: m.Message, ids: MessageIds) -> dict[str, Any]:
    """Return a message as JSON for its recipients. The message may come from any protocol."""
    said = message.content
    answered = said.thread or said.reply_to
    document = document_of(
        SpoolMessage(
            id=ids.of(message),
            sender=message.sender,
            to=_address(message),
            body=said.body,
            ts=timestamp(message.sent_at_ms),
            priority=said.priority.value,
            scope=said.scope,
            thread=ids.spell(answered) if answered else None,
            refs=said.refs,
        )
    )
    more = _more(message, ids)
    if more:
        document["tieline"] = more
    return document


def _address(message: m.Message) -> str:
    target, written = message.content.target, message.content.original
    if message.protocol == RELAY and written is not None:
        # See `spelling_of`.
        return written.decode()
    # The target "everybody" becomes the channel that has all members. An objective's thread keeps the hub's notation.
    return f"#{GENERAL}" if target.kind is TargetKind.EVERYBODY else str(target)


def _more(message: m.Message, ids: MessageIds) -> dict[str, Any]:
    """Return the fields of a message for which backchannel has no key. The JSON has them under the key `tieline`."""
    more = beyond(message, CARRIAGE.carries)
    said = message.content
    for name in (Field.REPLY_TO.value, Field.SUPERSEDES.value):
        if name in more:
            more[name] = ids.spell(more[name])
    if said.thread is None or more.get(Field.REPLY_TO.value) == ids.spell(said.thread):
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
    presence: Presence, channels: Mapping[str, Sequence[str]], now_ms: int, token: str | UnsetType = UNSET
) -> Agent:
    """Return a member as an agent's record. For a connected member, the time of `lastSeen` is now.

    `channels` has the channels of each member. `token` is the agent's token if it is new; otherwise the record has no
    token.
    """
    member = presence.member
    seen_ms = now_ms if presence.sessions else presence.last_seen_ms
    return Agent(
        member.name,
        channels.get(member.name, ()),
        timestamp(member.created_at_ms),
        timestamp(member.created_at_ms if seen_ms is None else seen_ms),
        token,
    )


def subscriptions(channels: Sequence[ChannelView]) -> dict[str, list[str]]:
    """Return the channels that each member joined, by the member's name. The channel of all members is not listed."""
    joined: dict[str, list[str]] = {}
    for channel in channels:
        if channel.name != GENERAL:
            for name in channel.subscribers:
                joined.setdefault(name, []).append(f"#{channel.name}")
    return joined
