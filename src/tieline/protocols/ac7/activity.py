"""Routes for the activity (recorded actions) of agents: upload it, list it, and follow it live.

Used by: the server. Uses: the interface `contract.hub`, which removes secrets before it stores activity and decides
who may read it. Agents' runners upload activity. Activity never appears on a stream of messages.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import MEBIBYTE
from tieline.contract.member import ByToken
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7 import commandsuite, trace
from tieline.protocols.ac7.carriers import Carrier, Frame
from tieline.protocols.ac7.shapes import Shape
from tieline.protocols.ac7.streams import ENDED, GOING_AWAY, PROTOCOL, TOO_SLOW
from tieline.wire.route import Call, Query, Refused, Route, checked, fail, no, number_of, time_of
from tieline.wire.sse import event

UPLOAD_BYTES_MAX = 16 * MEBIBYTE
"""Largest size of an upload, in bytes: twice the size limit of one event."""

_UNSENT_BYTES_MAX = 2 * UPLOAD_BYTES_MAX
"""Largest number of bytes that may wait to be sent to one live reader. The limit is larger than one upload, because the
hub writes all events of an upload to the reader at once."""
_LIMIT = 200
_LIMIT_MAX = 1000
UPLOAD_VALUES_MAX = 500_000
"""Largest number of JSON values in one upload. Each single event has the same limit as the body of any other request,
because an upload is decoded event by event."""
_TURN_BYTES = 64 * 1024
"""Number of bytes of events that `_events` checks before it lets the event loop run other tasks."""
_INVALID = "invalid activity payload"

Event = trace.ActivityEvent | commandsuite.Event
_SHAPES: dict[str, Any] = {str(shape.__struct_config__.tag): shape for shape in get_args(Event)}
"""Type that an event of an upload is checked against, by the kind of the event. For an event of any other kind, only
`kind` and `ts` are checked."""
_KINDS = (*dict.fromkeys((*trace.KINDS, *commandsuite.KINDS)),)


class UploadActivity(Shape, frozen=True):
    """Events of an agent. Events of unknown kinds are kept too, if they have a `kind` and a `ts`."""

    events: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=500)]


class ActivityRowShape(Shape, frozen=True):
    """One thing that a member did."""

    id: trace.Count
    member_name: str
    event: Event
    created_at: trace.Count


class ActivityList(Shape, frozen=True):
    """Activity of a member, newest first."""

    activity: list[ActivityRowShape]


class _Upload(Struct):
    """JSON body of a request that uploads activity. The events are decoded later, one by one."""

    events: list[Raw]


class _Row(Struct, rename="camel"):
    """Entry of the JSON answer that lists a member's activity. The event is already encoded as JSON."""

    id: int
    member_name: str
    event: Raw
    created_at: int


class _Rows(Struct):
    activity: list[_Row]


_encode = msgspec.json.Encoder().encode


class Tail:
    """Connection of one client that follows a member's activity live.

    The class implements the interface `Listener` (the callbacks of a session), so the hub calls its methods.
    """

    __slots__ = ("_activity", "_closed", "_cut", "_kinds", "carrier", "session", "unsent_bytes_max")

    def __init__(self, activity: "Activity") -> None:
        self._activity = activity
        self.unsent_bytes_max = _UNSENT_BYTES_MAX
        self.carrier: Carrier | None = None
        # Empty until the tail is live.
        self.session = SessionId("")
        self._cut: Callable[[], None] | None = None
        # Kinds of events that the reader knows.
        self._kinds: tuple[str, ...] = ()
        self._closed = False

    def begin(self, session: SessionId, cut: Callable[[], None], kinds: tuple[str, ...]) -> None:
        """Start to write activity to the client.

        `session` is the client's session with the hub. `cut` is a callback that ends the subscription. `kinds` are the
        kinds of events that the client knows. Events of other kinds are not written.
        """
        self.session = session
        self._cut = cut
        self._kinds = kinds

    def tell(self, rows: Sequence[ActivityRow]) -> None:
        """Write new activity of the followed member to the client."""
        for frame in self._activity.frames(rows, self._kinds):
            if self._closed or self.carrier is None:
                return
            self.carrier.write(frame.event if self.carrier.takes_events else frame.payload)

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Do nothing: this session is only for activity, so the client gets no messages."""

    def released(self, keys: Sequence[int]) -> None:
        """Do nothing: this session is only for activity, so the client gets no messages, not even released ones."""

    def progress(self, step: r.Progress) -> None:
        """Do nothing: this session sends no messages, so it needs no reports on their deliveries."""

    def end(self, why: Refusal) -> None:
        """Close the client's connection, because the hub ended the session.

        For example, the token was revoked or the permission to read activity was taken away.
        """
        self.close(ENDED, why.message)

    def stalled(self) -> None:
        """Close the client's connection, because the client reads too slowly."""
        self.close(TOO_SLOW, "too slow: what you missed is in the activity log")

    def close(self, code: int, reason: str) -> None:
        """Stop writing, and close the connection with this close code and reason."""
        if not self._closed and self.carrier is not None:
            self.leave()
            self.carrier.end(code, reason)

    def leave(self) -> None:
        """End the subscription and forget this client, because it disconnected or is being disconnected."""
        if self._closed:
            return
        self._closed = True
        if self._cut is not None:
            self._cut()
        self._activity.remove(self)


class Activity:
    """The HTTP operations on activity: upload it, list it, follow it live."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tails: set[Tail] = set()
        # Cache of the last rows, and their frames by the kinds that a reader knows. All followers of the member get
        # these rows before the next rows come.
        self._rows: Sequence[ActivityRow] = ()
        self._frames: dict[tuple[str, ...], list[Frame]] = {}

    def routes(self) -> list[Route]:
        """Return the routes for activity."""
        whole = {"type": "integer", "minimum": 0}
        kinds = {"type": "array", "items": {"type": "string", "enum": list(_KINDS)}}
        return [
            Route(
                "POST",
                "/members/{name}/activity",
                self.upload,
                body_bytes_max=UPLOAD_BYTES_MAX,
                undecoded=UploadActivity,
                status=201,
                errors=(429,),
            ),
            Route(
                "GET",
                "/members/{name}/activity",
                self.listing,
                answered=ActivityList,
                query=(
                    Query("from", "Only activity since this time, in milliseconds since the epoch.", whole),
                    Query("to", "Only activity until this time.", whole),
                    Query("kind", "Only this kind; may be given several times.", kinds),
                    Query("limit", "Number of rows: 200 by default, 1000 at most.", {"type": "integer", "minimum": 1}),
                ),
                errors=(429,),
            ),
            Route("GET", "/members/{name}/activity/stream", self.follow, live=lambda: Tail(self)),
        ]

    # Requests.

    async def upload(self, call: Call, body: bytes) -> trace.Uploaded:
        """Upload the member's own activity. Answered once it is durable; secrets are removed."""
        # spec, Activity events vs message events: the producer is the member's own runner.
        if call.params["name"] != call.member:
            raise Refused(no(403, "a member reports its own activity only"))
        events = await _events(body, call.hub.limits.activity_events_max)
        recorded = await call.get(lambda session: c.RecordActivity(session, events=events, size=len(body)), r.Recorded)
        return trace.Uploaded(recorded.count)

    async def listing(self, call: Call, _: None) -> _Rows:
        """List a member's activity, newest first. Allowed for the member itself, and with activity.read."""
        name = MemberName(call.params["name"])
        wanted = tuple(value for key, value in call.pairs if key == "kind")
        known = _kinds(call)
        if any(kind not in known for kind in wanted):
            raise Refused(no(400, f"kind is none of {', '.join(known)}"))
        limit = min(number_of(call.query.get("limit")) or _LIMIT, _LIMIT_MAX)
        first, last = time_of(call, "from"), time_of(call, "to")
        kinds = wanted or known
        # spec, Activity events vs message events: visible to the member itself and to those with activity.read.
        replies = await call.ask(
            lambda session: (c.ReadActivity(session, member=name, from_ms=first, to_ms=last, kinds=kinds, limit=limit),)
        )
        match replies:
            case (r.Activity(rows),):
                return _Rows([_row(row) for row in rows])
            case (Refusal(Code.UNKNOWN_MEMBER),):
                # As the first server does: a member that is gone, or not there yet, has no activity.
                return _Rows([])
            case _:
                raise fail(replies, name)

    async def follow(self, call: Call, tail: Tail) -> None:
        """Follow a member's activity live: server-sent events, or WebSocket frames on upgrade."""
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
                tail.begin(session, self._hub.tail(session, name, tail.tell), _kinds(call))
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

    def frames(self, rows: Sequence[ActivityRow], kinds: tuple[str, ...]) -> list[Frame]:
        """Return the rows whose kind is in `kinds` as frames (JSON that is ready to be sent), one for each row.

        The frames of the last rows are cached, because all clients that follow the member get the same rows.
        """
        if self._rows is not rows:
            self._rows, self._frames = rows, {}
        if kinds not in self._frames:
            payloads = [_encode(_row(row)) for row in rows if row.kind in kinds]
            self._frames[kinds] = [Frame(payload, event(payload)) for payload in payloads]
        return self._frames[kinds]

    def remove(self, tail: Tail) -> None:
        """Forget a client that followed activity and has left, and end its session."""
        self._tails.discard(tail)
        if tail.session:
            self._end(tail.session)

    def close(self) -> None:
        """Close the connection of every client that follows activity, because the hub stops."""
        for tail in tuple(self._tails):
            tail.close(GOING_AWAY, "server shutting down")

    def _end(self, session: SessionId) -> None:
        self._hub.forget(session)
        self._hub.submit((c.Detach(session),))


async def _events(body: bytes, most: int) -> tuple[dict[str, Any], ...]:
    """Return the events of an upload, decoded and checked.

    `most` is the largest number of events that an upload may have. Raises `Refused` if an event is invalid, if there is
    no event, or if there are too many. During a large upload, the event loop also runs other tasks.
    """
    raw = checked(body, _Upload, _INVALID, values_max=UPLOAD_VALUES_MAX).events
    if not 0 < len(raw) <= most:
        raise Refused(no(400, f"{_INVALID}: an upload has 1 to {most} events"))
    events: list[dict[str, Any]] = []
    size = 0
    for number, one in enumerate(raw):
        kind = checked(one, trace.AnyEvent, f"{_INVALID}: event {number}").kind
        if kind in _SHAPES:
            checked(one, _SHAPES[kind], f"{_INVALID}: event {number}")
        # Decode the event again as a plain dict, to keep keys that the shape does not know.
        events.append(checked(one, dict[str, Any], f"{_INVALID}: event {number}"))
        size += len(memoryview(one))
        if size >= _TURN_BYTES:
            size = 0
            await asyncio.sleep(0)
    return tuple(events)


def _kinds(call: Call) -> tuple[str, ...]:
    """Return the kinds of events that the calling client knows. The client would reject a list with any other kind."""
    return commandsuite.KINDS if commandsuite.speaks(call) else trace.KINDS


def _row(row: ActivityRow) -> _Row:
    return _Row(row.offset, row.member, Raw(row.event), row.at_ms)
