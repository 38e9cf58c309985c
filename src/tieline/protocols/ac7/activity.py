"""Activity of agents: runners upload it, members with permission read it or follow it live.

Above: the server. Below: the Hub port, which removes secrets before it stores activity and decides who may read it.
Activity never appears on a stream of messages.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import MEBIBYTE
from tieline.contract.member import ByToken
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.protocols.ac7 import trace
from tieline.protocols.ac7.carriers import Carrier, Frame
from tieline.protocols.ac7.streams import ENDED, GOING_AWAY, PROTOCOL, TOO_SLOW
from tieline.wire.route import Call, Query, Refused, Route, checked, fail, no, number_of

UPLOAD_BYTES_MAX = 16 * MEBIBYTE
"""Largest upload: twice the size limit of one event."""

_UNSENT_BYTES_MAX = 2 * UPLOAD_BYTES_MAX
"""Unsent bytes allowed per follower. An upload arrives all at once, so a follower may lag by more than one upload."""
_LIMIT = 200
_LIMIT_MAX = 1000
_TURN_BYTES = 256 * 1024
"""Bytes of events to check before the event loop runs other tasks."""
_INVALID = "invalid activity payload"


class _Upload(Struct):
    """An upload. Its events are decoded later, one by one."""

    events: list[Raw]


class _Row(Struct, rename="camel"):
    """A row as it is written: its event is JSON already."""

    id: int
    member_name: str
    event: Raw
    created_at: int


class _Rows(Struct):
    activity: list[_Row]


_encode = msgspec.json.Encoder().encode


class Tail:
    """One live reader of a member's activity. Implements the Listener port, which the hub calls."""

    __slots__ = ("_activity", "_closed", "_cut", "carrier", "session", "unsent_bytes_max")

    def __init__(self, activity: "Activity") -> None:
        self._activity = activity
        self.unsent_bytes_max = _UNSENT_BYTES_MAX
        self.carrier: Carrier | None = None
        # Empty until the tail is live.
        self.session = SessionId("")
        self._cut: Callable[[], None] | None = None
        self._closed = False

    def begin(self, session: SessionId, cut: Callable[[], None]) -> None:
        """Mark the tail as live. `cut` ends the subscription."""
        self.session = session
        self._cut = cut

    def tell(self, rows: Sequence[ActivityRow]) -> None:
        """Write new activity rows of the member to the reader."""
        for frame in self._activity.frames(rows):
            if self._closed or self.carrier is None:
                return
            self.carrier.write(frame)

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Do nothing: messages are on other streams."""

    def released(self, keys: Sequence[int]) -> None:
        """Do nothing: messages are on other streams."""

    def progress(self, step: r.Progress) -> None:
        """Do nothing: a tail follows no message."""

    def end(self, why: Refusal) -> None:
        """Close the tail: the hub ended the session because its token, its member or its permission is gone."""
        self.close(ENDED, why.message)

    def stalled(self) -> None:
        """Close the tail: its reader does not keep up."""
        self.close(TOO_SLOW, "too slow: what you missed is in the activity log")

    def close(self, code: int, reason: str) -> None:
        """Stop writing and send the reader the reason."""
        if not self._closed and self.carrier is not None:
            self.leave()
            self.carrier.end(code, reason)

    def leave(self) -> None:
        """End the subscription and remove the tail."""
        if self._closed:
            return
        self._closed = True
        if self._cut is not None:
            self._cut()
        self._activity.remove(self)


class Activity:
    """The operations on activity."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tails: set[Tail] = set()
        # Cache of the last rows and their frames. All followers of the member get these rows before the next rows come.
        self._frames: tuple[Sequence[ActivityRow], list[Frame]] = ((), [])

    def routes(self) -> list[Route]:
        """Return the routes for activity."""
        whole = {"type": "integer", "minimum": 0}
        kinds = {"type": "array", "items": {"type": "string", "enum": list(trace.KINDS)}}
        return [
            Route(
                "POST",
                "/members/{name}/activity",
                self.upload,
                body_bytes_max=UPLOAD_BYTES_MAX,
                undecoded=trace.UploadActivity,
                status=201,
                errors=(429,),
            ),
            Route(
                "GET",
                "/members/{name}/activity",
                self.listing,
                answered=trace.ActivityList,
                query=(
                    Query("from", "Only from this time on, in milliseconds of the epoch.", whole),
                    Query("to", "Only up to this time.", whole),
                    Query("kind", "Only of this kind; may be said several times.", kinds),
                    Query("limit", "How many, 200 unless told, 1000 at most.", {"type": "integer", "minimum": 1}),
                ),
                errors=(429,),
            ),
            Route("GET", "/members/{name}/activity/stream", self.follow, live=lambda: Tail(self)),
        ]

    # Requests.

    async def upload(self, call: Call, body: bytes) -> trace.Uploaded:
        """Report what one did; answered once it is durable, without its secrets."""
        if call.params["name"] != call.member:
            raise Refused(no(403, "a member reports its own activity only"))
        events = await _events(body, call.hub.limits.activity_events_max)
        recorded = await call.get(lambda session: c.RecordActivity(session, events=events, size=len(body)), r.Recorded)
        return trace.Uploaded(recorded.count)

    async def listing(self, call: Call, _: None) -> _Rows:
        """What a member did, newest first; for itself, or with activity.read."""
        name = MemberName(call.params["name"])
        wanted = tuple(value for key, value in call.pairs if key == "kind")
        if any(kind not in trace.KINDS for kind in wanted):
            raise Refused(no(400, f"kind is none of {', '.join(trace.KINDS)}"))
        limit = min(number_of(call.query.get("limit")) or _LIMIT, _LIMIT_MAX)
        first, last = (_time(call, key) for key in ("from", "to"))
        # Clients know only these kinds. Activity from other sources may have other kinds.
        kinds = wanted or trace.KINDS
        found = await call.get(
            lambda session: c.ReadActivity(session, member=name, from_ms=first, to_ms=last, kinds=kinds, limit=limit),
            r.Activity,
            name,
        )
        return _Rows([_row(row) for row in found.rows])

    async def follow(self, call: Call, tail: Tail) -> None:
        """What a member does as it comes: server-sent events, or WebSocket frames on upgrade."""
        name = MemberName(call.params["name"])
        attach = c.Attach(protocol=PROTOCOL, credential=ByToken(call.caller.token), acknowledges=False)
        attached = await self._hub.ask(attach)
        if not isinstance(attached, r.Attached):
            raise fail((attached,))
        session = attached.session
        followed: asyncio.Future[r.Reply] = asyncio.get_running_loop().create_future()

        def done(replies: Sequence[r.Reply]) -> None:
            # Begin inside the callback, so that no row is lost between the reply and the tail.
            if isinstance(replies[0], r.Done) and not followed.done():
                tail.begin(session, self._hub.tail(session, name, tail.tell))
                self._tails.add(tail)
            if not followed.done():
                followed.set_result(replies[0])

        self._hub.listen(session, tail)
        self._hub.submit((c.FollowActivity(session, member=name),), done)
        try:
            reply = await followed
        except asyncio.CancelledError:
            tail.leave()
            self._end(session)
            raise
        if not isinstance(reply, r.Done):
            self._end(session)
            raise fail((reply,), name)

    # Methods that a tail calls, and shutdown.

    def frames(self, rows: Sequence[ActivityRow]) -> list[Frame]:
        """Encode rows as frames."""
        known, frames = self._frames
        if known is not rows:
            frames = [Frame(_encode(_row(row))) for row in rows if row.kind in trace.KINDS]
            self._frames = (rows, frames)
        return frames

    def remove(self, tail: Tail) -> None:
        """Remove a tail that is no longer live and end its session."""
        self._tails.discard(tail)
        if tail.session:
            self._end(tail.session)

    def close(self) -> None:
        """Close every tail, because the hub stops."""
        for tail in tuple(self._tails):
            tail.close(GOING_AWAY, "server shutting down")

    def _end(self, session: SessionId) -> None:
        self._hub.forget(session)
        self._hub.submit((c.Detach(session),))


async def _events(body: bytes, most: int) -> tuple[dict[str, Any], ...]:
    """Check and return each event of an upload. Yield to other tasks in between, because an upload may be large."""
    raw = checked(body, _Upload, _INVALID).events
    if not 0 < len(raw) <= most:
        raise Refused(no(400, f"{_INVALID}: an upload has 1 to {most} events"))
    events: list[dict[str, Any]] = []
    size = 0
    for number, one in enumerate(raw):
        checked(one, trace.ActivityEvent, f"{_INVALID}: event {number}")
        # Decode the event again as a plain dict, to keep keys that the shape does not know.
        events.append(checked(one, dict[str, Any], f"{_INVALID}: event {number}"))
        size += len(memoryview(one))
        if size >= _TURN_BYTES:
            size = 0
            await asyncio.sleep(0)
    return tuple(events)


def _row(row: ActivityRow) -> _Row:
    return _Row(row.offset, row.member, Raw(row.event), row.at_ms)


def _time(call: Call, key: str) -> int | None:
    text = call.query.get(key)
    number = number_of(text)
    if text is not None and number is None:
        raise Refused(no(400, f"{key} is no time in milliseconds of the epoch"))
    return number
