"""Between the frames of the hub's own protocol and the contract: the hub's values as clients see them."""

from typing import cast

import msgspec
from msgspec.structs import replace

from tieline.contract import lifecycle
from tieline.contract import message as m
from tieline.contract.delivery import Delivery, Receipt, State
from tieline.contract.event import LogRow
from tieline.contract.identifiers import MessageId
from tieline.contract.member import Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import parse_target
from tieline.wire.fidelity import Carriage, Field
from tieline.wire.native import frames as f

_OWN_WORDS: dict[Field, str] = {field: f"`{field}`" for field in Field if field is not Field.OWN}
CARRIAGE = Carriage("tieline", says=_OWN_WORDS, carries=_OWN_WORDS, rest="")


def content_of(frame: f.Send) -> m.Content | Refusal:
    """What a `send` frame says."""
    target = parse_target(frame.target)
    if isinstance(target, Refusal):
        return target
    if lifecycle.is_lifecycle(frame.kind, frame.target, frame.data):
        return Refusal(Code.INVALID_MESSAGE, "what happened to an objective is told by the hub alone")
    # By position, which takes half the time of naming that many fields; a test holds the order to the names.
    content = m.Content(
        target,
        frame.body,
        frame.data,
        frame.title,
        frame.level,
        frame.priority,
        frame.kind,
        frame.topic,
        frame.scope,
        frame.thread,
        cast(MessageId | None, frame.reply_to),
        frame.refs,
        frame.attachments,
        frame.ttl_ms,
    )
    if frame.supersedes is None:
        return content
    return replace(content, supersedes=MessageId(frame.supersedes))


def view_message(message: m.Message) -> f.Message:
    """A message as clients see it."""
    said = message.content
    # By position, as above.
    return f.Message(
        message.id,
        message.offset,
        message.sender,
        str(said.target),
        said.body,
        message.sent_at_ms,
        message.protocol,
        said.data,
        said.title,
        said.level,
        said.priority,
        said.kind,
        said.topic,
        said.scope,
        said.thread,
        said.reply_to,
        said.refs,
        said.attachments,
        said.ttl_ms,
        message.wire_id,
        said.notes,
        message.verified,
        message.hops,
        message.cause,
        message.signature,
        said.supersedes,
    )


def encode_message(message: m.Message) -> msgspec.Raw:
    """A message as clients see it, encoded."""
    return msgspec.Raw(f.encode_struct(view_message(message)))


def view_delivery(delivery: Delivery) -> f.Item:
    """A delivery of an inbox."""
    return f.Item(delivery.key, delivery.stream_seq, delivery.state.word, view_message(delivery.message))


def view_receipt(receipt: Receipt) -> f.ReceiptView:
    """What became of a message for one recipient."""
    steps = tuple(
        f.StepView(step.state.word, step.at_ms, step.session, step.protocol, step.evidence, step.way)
        for step in receipt.steps
    )
    return f.ReceiptView(receipt.member, receipt.state.word, steps, receipt.way, receipt.held)


def view_presence(presence: Presence) -> f.MemberView:
    """A member with what is known of it now."""
    member = presence.member
    return f.MemberView(
        member.name,
        member.kind.value,
        member.permissions,
        presence.sessions,
        presence.backlog,
        member.created_at_ms,
        presence.last_seen_ms,
        member.title,
        member.description,
        presence.busy,
        presence.held,
    )


def view_row(row: LogRow) -> f.LogRowView:
    """A row of a log."""
    return f.LogRowView(row.offset, row.at_ms, row.event.decode(), row.hash)


def parse_state(word: str) -> State | Refusal:
    """A rung of the ladder by its word."""
    try:
        return State[word.upper()]
    except KeyError:
        words = ", ".join(state.word for state in State)
        return Refusal(Code.INVALID_REQUEST, f"{word!r} is no state: one of {words}")
