"""Messages: routes to send messages and to read the history.

Used by: the server. Uses: the interface `contract.hub`. A request to send a message is answered when the message is
durable.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.identifiers import GENERAL, MessageId, SessionId, parse_member_name
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.carriers import Frame
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.streams import PROTOCOL, Streams
from tieline.protocols.ac7.threads import own_channel, thread_of
from tieline.services.files.attachments import Attachments
from tieline.services.files.transfer import Transfers, reached
from tieline.wire.fidelity import labels
from tieline.wire.http import Answer, answer
from tieline.wire.route import Call, Query, Refused, Route, fail, no, number_of, time_of

_LIMIT = 100
_LIMIT_MAX = 1000  # the largest page of history


_encode = msgspec.json.Encoder().encode


class _Pushed(Struct, frozen=True):
    """Answer to a push: the fields of a `PushResult`, but the message is already encoded as JSON."""

    delivery: s.DeliveryReport
    message: msgspec.Raw


class Messages:
    """The HTTP operations to send messages and read the history."""

    def __init__(self, streams: Streams, channels: ChannelIds, attachments: Attachments, transfers: Transfers) -> None:
        self._streams = streams
        self._channels = channels
        self._attachments = attachments
        self._transfers = transfers

    def routes(self) -> list[Route]:
        """Return the routes for messages."""
        whole = {"type": "integer", "minimum": 1}
        return [
            Route(
                "POST",
                "/push",
                self.push,
                invalid="invalid push payload",
                answered=s.PushResult,
                errors=(404, 409, 410, 429),
            ),
            Route(
                "GET",
                "/history",
                self.history,
                query=(
                    Query("with", "Only direct messages with this member."),
                    Query("channel", "Only messages in this channel, given by id or slug."),
                    Query("limit", "Number of messages: 100 by default, 1000 at most.", whole),
                    Query("before", "Only messages before this time, in milliseconds since the epoch.", whole),
                ),
                errors=(404,),
            ),
        ]

    async def push(self, call: Call, payload: s.PushPayload) -> Answer:
        """Send a message. Answered once it is durable."""
        data = payload.data or {}
        thread = await thread_of(call, payload.to, data.get("thread"))
        content = content_of(
            thread.target,
            payload.body,
            title=payload.title,
            level=payload.level,
            # spec, Message shape: reserved keys are stripped, all else flows through verbatim.
            data={**_free(data), **({"thread": thread.key} if thread.key else {})},
            attachments=await self.attached(call, payload.attachments) if payload.attachments else (),
        )
        # spec, The lifecycle: the broker writes the message to the log before it pushes it to streams.
        accepted, live, frame = await self.send(call, content, thread.viewer)
        # The sender is in the thread too, but gets no delivery of its own message.
        targets = accepted.recipients + 1 if thread.members is None else thread.members
        # The same JSON as on the streams is not encoded again.
        payload_json = _encode(self.sent(call, content, accepted)) if frame is None else frame.payload
        return answer(_Pushed(s.DeliveryReport(live, targets), msgspec.Raw(payload_json)))

    async def attached(self, call: Call, given: Iterable[s.Attachment] | None) -> tuple[m.Attachment, ...]:
        """Return the attachments of a message. Each file is looked up among the files that the caller may read.

        `given` are the attachments in the request. Raises `Refused` for a file that does not exist or that the caller
        may not read.
        """
        return await self._transfers.attached(call, [one.path for one in given or ()])

    async def send(self, call: Call, content: m.Content, viewer: str) -> tuple[r.Accepted, int, Frame | None]:
        """Send a message, and let `viewer` (a member, a group or everybody) read its attachments.

        Return the hub's reply, the number of streams that the message was written to, and the message as it was encoded
        for these streams (`None` if there were none).
        """
        shown: tuple[int, Frame | None] = (0, None)

        async def ask() -> Sequence[r.Reply]:
            nonlocal shown
            replies, shown = await self._ask(call, content)
            return replies

        attached = content.attachments
        match await (reached(self._attachments.show(attached, viewer, ask)) if attached else ask()):
            case (r.Accepted() as accepted,):
                return accepted, *shown
            case (Refusal(Code.UNKNOWN_MEMBER) as refusal,):
                raise Refused(no(404, f"no such agent: {content.target.name}{refusal.hint}"))
            case replies:
                raise fail(replies)

    async def _ask(self, call: Call, content: m.Content) -> tuple[Sequence[r.Reply], tuple[int, Frame | None]]:
        offset: int | None = None
        shown: tuple[int, Frame | None] = (0, None)

        def told(replies: Sequence[r.Reply]) -> None:
            nonlocal offset
            if isinstance(replies[0], r.Accepted):
                offset = replies[0].offset
                self._streams.expect(offset)

        def make(session: SessionId) -> tuple[c.Command, ...]:
            return (c.Send(session, content=content, allow_empty=True, members_only=True),)

        try:
            replies = await call.ask(make, told)
        finally:
            if offset is not None:
                shown = self._streams.take(offset)
        return replies, shown

    def sent(self, call: Call, content: m.Content, accepted: r.Accepted) -> s.MessageShape:
        """Return a message in ac7's JSON shape, for the answer to its sender. The hub has accepted the message.

        `content` is the content of the message, and `accepted` is the hub's reply.
        """
        made = m.Message(
            id=accepted.message_id,
            offset=accepted.offset,
            sender=call.member,
            protocol=PROTOCOL,
            sent_at_ms=_made_at_ms(accepted.message_id),
            content=content,
        )
        return codec.message(made, self._channels.ids)

    async def history(self, call: Call, _: None) -> s.HistoryResponse:
        """List messages that the member may see, newest first."""
        # spec, The four thread types: a viewer sees its direct messages, and what was said where it is a member.
        peer = await self._peer(call)
        messages = await _Past(call, peer).read(time_of(call, "before"), _limit(call.query.get("limit")))
        return s.HistoryResponse([codec.message(message, self._channels.ids) for message in messages])

    async def _peer(self, call: Call) -> str | None:
        other, channel = call.query.get("with"), call.query.get("channel")
        if other is not None and channel is not None:
            raise Refused(no(400, "with and channel exclude each other"))
        if other is not None:
            name = parse_member_name(other)
            if isinstance(name, Refusal):
                raise Refused(no(400, f"with is no name: {name.message}"))
            return name
        if channel is None:
            return None
        found = await own_channel(call, channel)
        return f"#{GENERAL}" if found.name == GENERAL else f"chan:{found.id}"


class _Past:
    """Reads a member's history for one request, newest first.

    Clients of ac7 ask for pages by time, but the hub reads by log offset. With `peer`, only the messages of one
    conversation are read: with a member, or in a channel.
    """

    def __init__(self, call: Call, peer: str | None) -> None:
        self._call = call
        self._peer = peer

    async def read(self, before_ms: int | None, limit: int) -> list[m.Message]:
        """Return a page of about `limit` messages that are older than `before_ms`, newest first.

        A page has all messages of its oldest millisecond. Otherwise some of them would be skipped, because the next
        page begins before that millisecond.
        """
        start = None if before_ms is None else await self._start(before_ms)
        found = list(await self._page(start, limit, offers=True))
        if not found:
            return found
        last = found[-1]
        while len(found) <= self._call.hub.limits.page_max:
            # Read on even if the page is shorter than `limit`: large messages fill a page early.
            rest = await self._page(last.offset, _LIMIT)
            same = [message for message in rest if message.sent_at_ms == last.sent_at_ms]
            if not same:
                break
            shown = await self._page(last.offset, len(same), offers=True)
            found += [message for message in shown if message.sent_at_ms == last.sent_at_ms]
            if len(same) < len(rest):
                break
            last = same[-1]
        return found

    async def _start(self, before_ms: int) -> int:
        """Return the log offset below which all messages are older than `before_ms`.

        The offset is found by binary search, because later messages have higher offsets.
        """
        newest = await self._page(None, 1)
        if not newest or newest[0].sent_at_ms < before_ms:
            return newest[0].offset + 1 if newest else 0
        # All messages below `low` are older than `before_ms`; no message at or above `high` is.
        low, high = 0, newest[0].offset
        while low < high:
            middle = (low + high) // 2
            newest = await self._page(middle + 1, 1)
            if newest and newest[0].sent_at_ms >= before_ms:
                high = newest[0].offset
            else:
                low = middle + 1
        return high

    async def _page(self, before: int | None, limit: int, *, offers: bool = False) -> tuple[m.Message, ...]:
        """Return at most `limit` messages whose log offsets are lower than `before`, newest first.

        With `offers`, the hub records that these messages were shown to the member.
        """
        replies = await self._call.ask(
            lambda session: (c.ReadHistory(session, peer=self._peer, before=before, limit=limit, offers=offers),)
        )
        match replies:
            case (r.History(messages),):
                return messages
            case _:
                raise fail(replies)


def content_of(
    target: Target,
    body: str,
    *,
    title: str | None = None,
    level: str = "info",
    data: Mapping[str, Any] | None = None,
    attachments: tuple[m.Attachment, ...] = (),
) -> m.Content:
    """Return the content of a hub message, made from the parts of an ac7 message.

    Fields that ac7 has no key for, such as the priority, are taken from `data`.
    """
    return m.Content(
        target=target,
        body=body,
        title=title,
        level=m.Level(level),
        data=dict(data) if data else None,
        attachments=attachments,
        **labels(data, codec.DATA_LABELS, thread="conversation"),
    )


def thread_target(objective_id: str) -> Target:
    """Return the target of a message to all members in an objective's thread."""
    return Target(TargetKind.OBJECTIVE, objective_id)


def _free(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` without the keys that only the hub may set."""
    return {key: value for key, value in data.items() if key not in codec.RESERVED}


def _made_at_ms(message_id: MessageId) -> int:
    """Return the time at which the hub accepted a message. The id is a UUIDv7, which begins with that time."""
    return int(message_id[:8] + message_id[9:13], 16)


def _limit(text: str | None) -> int:
    number = number_of(text)
    return min(number, _LIMIT_MAX) if number else _LIMIT
