"""The session pump moves commands and deliveries between a client's connection and the hub, for every protocol.

Used by: a protocol's server, which decodes commands and encodes deliveries, and the server's `Greeting`, which opens
the session. Uses: the interface `contract.hub`. A *wire* is a protocol's connection to one client. *Credit* is the
number of deliveries that may still be written before the client acknowledges some. The pump keeps order, credit and
back-pressure, so that no protocol has a queue or a retry of its own:

- **Inbound**, at most `inflight_max` commands of a wire wait for their replies. At this limit, the pump stops reading
  from the wire. A wire that cannot tell its client about a refusal uses `submit_with_retry`: if the store fails, the
  pump retries the wire's commands until the store accepts them.
- **Outbound**, a session is either *caught up* or *behind*. If it is caught up, new deliveries go straight from the hub
  to the wire. If it is behind, it reads the inbox as fast as its credit and its wire allow. The pump has no queue:
  deliveries that cannot go out now stay in the inbox, which is on disk.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.delivery import Delivery, Replayed, State
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.keys import join_keys
from tieline.contract.limits import Limits
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched, Progress, Reply
from tieline.wire.pages import RETRY_SECONDS, Pages

Parcel = tuple[Message, int, int]
"""A delivery for this session: the message, the delivery's key, and the delivery's number in its stream."""

_PAGE = 256
"""Most deliveries that are read from the inbox at once, while the inbox has deliveries that were not written yet."""

PAGE_BYTES = 1024 * 1024
"""Most bytes (as stored) of the messages that are read from the inbox at once. If the connection's buffer becomes full,
the pump drops the rest of these messages and reads them again later."""

RETRIES_MAX = 600
"""Most retries of a command on a connection that cannot report a refusal to its client. There is one retry per second.
If the store still fails after these retries (ten minutes), the connection ends."""

_WRITE_CHARACTERS = 256 * 1024
"""Number of characters of messages that are written to the connection at once. Then the pump checks if the connection's
buffer is full."""

_DATA_CHARACTERS = 32 * 1024
"""Assumed size of a message's structured data, in characters. To measure the size would take as long as to encode the
data."""


class Wire(Protocol):
    """Interface of a protocol's connection to one client. The session pump calls these methods.

    All of them return at once.
    """

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Write deliveries to the client, in the order of `parcels`.

        Return the parcels that were written. A protocol may skip some parcels.
        """

    def write_progress(self, step: Progress) -> None:
        """Tell the client about `step`, the new state of a delivery.

        The delivery belongs to a message that the client follows.
        """

    def end(self, why: Refusal) -> None:
        """Send the reason `why` to the client, and close the connection."""

    def pause_reading(self) -> None:
        """Stop reading bytes from the client."""

    def resume_reading(self) -> None:
        """Continue to read bytes from the client."""


class SessionPump:
    """Moves the commands and deliveries of one session between a client's connection (`wire`) and the hub.

    Not thread-safe: use it in one event loop only.
    """

    __slots__ = (
        "_attached_key",
        "_behind",
        "_closed",
        "_failed",
        "_hub",
        "_inflight",
        "_next_key",
        "_once",
        "_outstanding",
        "_pages",
        "_parcels",
        "_protocol",
        "_quiet",
        "_reading_paused",
        "_released",
        "_replay",
        "_suspended",
        "_tries",
        "_undecided",
        "_unoffered_until",
        "_when_decided",
        "_window",
        "_wire",
        "_writable",
        "member",
        "session",
    )

    def __init__(self, hub: Hub, wire: Wire) -> None:
        self._hub = hub
        self._wire = wire
        # Set by `open`, once the hub has attached the session.
        self.session: SessionId = SessionId("")
        self.member: MemberName | None = None
        self._protocol = ""
        # Key of the first delivery that came after the session was attached.
        self._attached_key = 1
        # Number of commands that were submitted and not answered yet; some of them are quiet.
        self._inflight = self._quiet = 0
        # For `submit_with_retry`: the number of its unanswered commands, the commands at which the store failed, and
        # the number of failed attempts.
        self._undecided = 0
        self._failed: list[c.Command] = []
        self._tries = 0
        # Callbacks to call as soon as no command given to `submit_with_retry` is undecided.
        self._when_decided: list[Callable[[], None]] = []
        self._suspended = False
        self._reading_paused = False
        # Number of deliveries written and not acknowledged yet, and its limit. The limit is `None` for a wire without
        # acknowledgement: only its socket limits such a wire.
        self._outstanding = 0
        self._window: int | None = None
        # Key of the next delivery for this wire. Deliveries below it were written, or are not for this wire.
        self._next_key = 1
        # True if the inbox may hold deliveries from `_next_key` on that were not offered to this wire yet. Set by
        # `receive`.
        self._behind = False
        self._pages = Pages(hub, self._catch_up, self._give_up)
        self._unoffered_until = 0
        # Returns true for messages that this wire writes only once, in a form without acknowledgement.
        self._once: Callable[[Message], bool] | None = None
        # Settled deliveries that the wire wants again and did not get yet, in key order.
        self._replay: tuple[Replayed, ...] = ()
        # Keys of deliveries that must still be written, but that a read from `_next_key` on would miss. This wire
        # skipped them because they were held, and they are released now. Or they were offered to another session, and
        # come back.
        self._released: list[int] = []
        # True if the wire takes bytes.
        self._writable = True
        # Deliveries to write at the end of this turn of the event loop.
        self._parcels: list[Parcel] = []
        self._closed = False

    @property
    def limits(self) -> Limits:
        """The hub's limits."""
        return self._hub.limits

    @property
    def caught_up(self) -> bool:
        """True if every delivery that the hub has for this session was written to the connection."""
        return not (self._behind or self._pages.busy or self._parcels)

    # Methods for the protocol.

    def open(self, attach: c.Attach, opened: Callable[[Attached | Refusal], None]) -> None:
        """Open a session with the hub. The callback `opened` gets the result before the hub offers any delivery."""
        self._protocol = attach.protocol

        def done(replies: Sequence[Reply]) -> None:
            (reply,) = replies
            assert isinstance(reply, Attached | Refusal), "an attach is answered by these"
            if isinstance(reply, Attached):
                if self._closed:
                    self._hub.submit((c.Detach(reply.session),))
                    return
                self.session = reply.session
                self.member = reply.member
                self._attached_key = reply.next_key
                self._hub.listen(reply.session, self)
            opened(reply)

        self._hub.submit((attach,), done)

    def receive(
        self,
        *,
        window: int | None,
        unoffered_only: bool = False,
        once: Callable[[Message], bool] | None = None,
        replay: tuple[Replayed, ...] = (),
    ) -> None:
        """Start to write the member's deliveries to the connection.

        `window` is the limit of unacknowledged deliveries; `None` for a connection that cannot acknowledge.
        `unoffered_only` leaves out deliveries that were offered to another session before this session was attached.
        `once` returns true for a message that is written without acknowledgement (see `offered_ackless`). Such a
        message is left out if it was offered before this session was attached. `replay` lists settled deliveries that
        are written again.
        """
        assert self.member is not None, "only a member receives"
        self._window = window
        self._unoffered_until = self._attached_key if unoffered_only else 0
        self._once = once
        self._replay = replay
        self._behind = True
        self._hub.listen(self.session, self, self.member)
        self._catch_up()

    def submit(
        self,
        commands: Sequence[c.Command],
        done: Callable[[Sequence[Reply]], None] | None = None,
        *,
        even_closed: bool = False,
        quiet: bool = False,
    ) -> None:
        """Submit commands to the hub. The callback `done` gets their replies.

        If the connection is closed before the replies come, `done` is called only if `even_closed` is true. While too
        many commands wait for replies, the pump reads nothing from the client. With `quiet`, `done` may not be called.
        """
        count = len(commands)
        self._inflight += count
        self._regulate()
        if (quiet or done is None) and 4 * (self._quiet + count) <= self._hub.limits.inflight_max:
            self._quiet += count
            self._hub.submit(commands)
            return
        # The hub answers commands in order, so the quiet ones are decided before these.
        count, self._quiet = count + self._quiet, 0

        def answered(replies: Sequence[Reply]) -> None:
            self._inflight -= count
            if done is not None and (even_closed or not self._closed):
                done(replies)
            if not self._closed:
                self._regulate()

        self._hub.submit(commands, answered)

    @property
    def attempt(self) -> int:
        """Number of retries since the store failed; 0 while the store works.

        Each `Send` command given to `submit_with_retry` must have this number in its field `attempt`.
        """
        return self._tries

    def submit_with_retry(
        self, commands: Sequence[c.Command], done: Callable[[Sequence[Reply]], None] | None = None
    ) -> None:
        """Submit commands of a client to which the protocol cannot report a refusal.

        The callback `done` gets the replies of the first attempt. Each `Send` must have the number `attempt`. If the
        store fails, the pump retries the failed commands in their order until the store accepts them. During this time,
        the pump reads nothing from the client. If the connection is closed during this time, the session stays open
        until the hub has accepted or refused the commands.
        """
        self._undecided += len(commands)

        def decided(replies: Sequence[Reply]) -> None:
            self._undecided -= len(commands)
            self._failed += [command for command, reply in zip(commands, replies, strict=True) if _is_failed(reply)]
            if done is not None and not self._closed:
                done(replies)
            if self._failed and not self._undecided:
                self._retry_later()
            self._notice_decided()

        self.submit(commands, decided, even_closed=True)

    def _retry_later(self) -> None:
        """Schedule a retry of the commands at which the store failed.

        After too many retries, close the connection instead.
        """
        self._tries += 1
        waiting = sum(_characters(command) for command in self._failed)
        if self._tries <= RETRIES_MAX and waiting <= self._hub.limits.unsent_bytes_max:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)
            return
        self._failed.clear()
        if not self._closed:
            self._wire.end(Refusal(Code.STORE_FAILED, "the store has failed for too long; say it again later"))

    def _retry(self) -> None:
        commands, self._failed = self._failed, []
        tries = self._tries
        self.submit_with_retry(
            [replace(command, attempt=tries) if isinstance(command, c.Send) else command for command in commands]
        )

    def when_decided(self, done: Callable[[], None]) -> None:
        """Call `done` when the hub has accepted or refused all commands of `submit_with_retry`.

        If no such command waits, call `done` at once.
        """
        self._when_decided.append(done)
        self._notice_decided()

    def _notice_decided(self) -> None:
        if self._undecided or self._failed:
            return
        self._tries = 0
        if self._closed:
            self._detach()
            return
        waiting, self._when_decided = self._when_decided, []
        for done in waiting:
            done()

    def after(self, done: Callable[[], None]) -> None:
        """Call `done` when the hub has answered all commands that were submitted earlier."""
        # An empty offer: the hub answers the commands of one session in order.
        self.submit((c.Offered(self.session, first=1, last=0),), lambda _: done())

    @property
    def room(self) -> int:
        """Number of commands that may be submitted now, before the pump must wait for replies."""
        return self._hub.limits.inflight_max - self._inflight

    def _regulate(self) -> None:
        """Stop or continue to read from the client.

        The pump reads only while the hub can take more commands and the connection's buffer can take more answers.
        """
        limit = self._hub.limits.inflight_max
        suspended = self._suspended or bool(self._tries) or bool(self._failed)
        if not self._reading_paused and (self._inflight > limit or not self._writable or suspended):
            self._reading_paused = True
            self._wire.pause_reading()
        elif (
            self._reading_paused
            and self._writable
            and not suspended
            and not self._closed
            and self._inflight <= limit // 2
        ):
            self._reading_paused = False
            self._wire.resume_reading()

    def suspend_reading(self, suspended: bool) -> None:
        """Stop reading from the client if `suspended` is true. If it is false, allow reading again.

        A protocol calls this when it must not get more requests for a while.
        """
        self._suspended = suspended
        self._regulate()

    def acknowledged(self, count: int) -> None:
        """Record that the client has acknowledged `count` deliveries.

        The pump may then write the same number of new deliveries.
        """
        self._outstanding = max(0, self._outstanding - count)
        if self._behind:
            self._catch_up()

    def offered_ackless(self, key: int) -> None:
        """Tell the hub that a delivery was written in a form that the client cannot acknowledge.

        The delivery then counts as offered. `key` is the key of the delivery. `write_deliveries` must not return this
        delivery as written.
        """
        self._hub.submit((c.Offered(self.session, first=key, last=key, ackless=True),))

    def pause_writing(self) -> None:
        """Write no deliveries and read no requests, because the connection's buffer is full."""
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        """Read requests and write deliveries again, because the connection's buffer has drained."""
        self._writable = True
        self._regulate()
        if self._behind:
            self._catch_up()

    def leave(self) -> None:
        """End a session to which no delivery was written yet.

        The connection stays open, and `open` may open another session on it.
        """
        session, self.session, self.member = self.session, SessionId(""), None
        if session:
            self._hub.forget(session)
            self._hub.submit((c.Detach(session),))

    def close(self) -> None:
        """End the session, because the connection has ended. Unacknowledged deliveries stay in the member's inbox."""
        if self._closed:
            return
        self._closed = True
        self._pages.close()
        if self.session:
            self._hub.forget(self.session)
        if not (self._undecided or self._failed):
            self._detach()

    def _detach(self) -> None:
        session, self.session = self.session, SessionId("")
        if session:
            self._hub.submit((c.Detach(session),))

    # The Listener port, which the hub calls.

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Take a new delivery from the hub. Write it to the connection if `key` is the next key and there is room.

        There is no room if the buffer is full or too many deliveries are unacknowledged. Then the delivery stays in the
        inbox and is written later.
        """
        if message.signature and key == self._next_key and not self._behind and not message.reaches(self._protocol):
            self._next_key = key + 1
            return
        window = self._window
        if (
            key != self._next_key
            or self._behind
            or not self._writable
            or (window is not None and self._outstanding >= window)
        ):
            # A key below `_next_key` was in a page read in the same turn. Any other delivery waits in the inbox.
            if key >= self._next_key and not self._behind:
                self._behind = True
                if not self._parcels:
                    self._catch_up()
            return
        self._next_key = key + 1
        self._outstanding += 1
        if not self._parcels:
            asyncio.get_running_loop().call_soon(self._flush)
        self._parcels.append((message, key, stream_seq))

    def released(self, keys: Sequence[int]) -> None:
        """Write deliveries that the hub held back before and has released now. The pump had skipped these deliveries.

        `keys` are the keys of these deliveries. They are written before all other deliveries.
        """
        self._release([key for key in keys if key < self._next_key])

    def repeat(self, keys: Sequence[int]) -> None:
        """Write deliveries again that were written to another session before. `keys` are the keys of these deliveries.

        Repeated deliveries come before new deliveries. Deliveries that are acknowledged, expired or dead are left out.
        """
        # Normal reading from `_next_key` on leaves out only deliveries that were offered before this session was
        # attached.
        self._release([key for key in keys if key < max(self._next_key, self._unoffered_until)])

    def _release(self, keys: Sequence[int]) -> None:
        self._released += keys
        self._behind = True
        self._catch_up()

    def progress(self, step: Progress) -> None:
        """Tell the client about `step`, the new state of a delivery.

        The delivery belongs to a message that the client follows.
        """
        self._wire.write_progress(step)

    def end(self, why: Refusal) -> None:
        """Send the reason `why` to the client and close the connection, because the hub has ended the session."""
        self._wire.end(why)

    # Internals.

    def _has_credit(self) -> bool:
        return self._writable and (self._window is None or self._outstanding < self._window)

    def _flush(self) -> None:
        parcels, self._parcels = self._parcels, []
        if self._closed or not parcels:
            return
        self._write(parcels)
        if self._behind:
            self._catch_up()

    def _write(self, parcels: Sequence[Parcel]) -> None:
        """Write deliveries to the connection, some at a time.

        If the connection's buffer becomes full, leave the remaining deliveries in the inbox.
        """
        start = 0
        while start < len(parcels):
            if not self._writable:
                self._outstanding -= len(parcels) - start
                self._next_key = parcels[start][1]
                self._behind = True
                return
            end = _slice_end(parcels, start)
            some = parcels[start:end] if end - start < len(parcels) else parcels
            written = self._wire.write_deliveries(some)
            self._outstanding -= len(some) - len(written)
            if written:
                keys = join_keys([key for _, key, _ in written])
                self._hub.submit([c.Offered(self.session, first=first, last=last) for first, last in keys])
            start = end

    def _catch_up(self) -> None:
        if self._parcels:
            # The parcels come before the deliveries in the inbox. `_flush` calls this method again.
            self._flush()
            return
        if self._pages.busy or self._closed or not self._has_credit():
            return
        limit = _PAGE if self._window is None else min(_PAGE, self._window - self._outstanding)
        if self._released:
            keys = tuple(self._released[:limit])
            self._pages.ask(c.Fetch(self.session, limit=limit, keys=keys, bytes_max=PAGE_BYTES), self._caught_released)
            return
        if self._replay:
            self._replay = self._replay[bisect_left(self._replay, self._next_key, key=lambda item: item.key) :]
        # One more than the limit, so that the page ends before the first delivery that does not fit.
        replay = self._replay[: limit + 1]
        fetch = c.Fetch(
            self.session,
            after=self._next_key - 1,
            limit=limit,
            unoffered_until=self._unoffered_until,
            replay=replay,
            bytes_max=PAGE_BYTES,
        )
        self._pages.ask(fetch, self._caught)

    def _give_up(self, why: Refusal) -> None:
        self._wire.end(why)
        self.close()

    def _caught(self, reply: Fetched) -> None:
        if self._released:
            # Released deliveries come before the rest of their stream, which may be in this page. So the page is read
            # again after them.
            self._catch_up()
            return
        self._next_key = reply.through + 1
        self._behind = not reply.complete
        deliveries = [item for item in reply.deliveries if not self._is_over(item)]
        if deliveries:
            self._outstanding += len(deliveries)
            self._write([(item.message, item.key, item.stream_seq) for item in deliveries])
        if self._behind:
            self._catch_up()

    def _caught_released(self, reply: Fetched) -> None:
        """Write a page of released or repeated deliveries to the connection, and request the next page."""
        del self._released[: self._released.index(reply.through) + 1]
        parcels = [(item.message, item.key, item.stream_seq) for item in reply.deliveries]
        start = 0
        while start < len(parcels) and self._writable:
            end = _slice_end(parcels, start)
            self._outstanding += end - start
            self._write(parcels[start:end])
            start = end
        self._released[:0] = [key for _, key, _ in parcels[start:]]
        self._catch_up()

    def _is_over(self, item: Delivery) -> bool:
        """Return true if a delivery must not be written again.

        This is so if the protocol writes the message only once, and it was offered before this session was attached.
        """
        offered_before = item.key < self._attached_key and item.state is not State.PENDING
        return offered_before and self._once is not None and self._once(item.message)


def _slice_end(parcels: Sequence[Parcel], start: int) -> int:
    """Return the end of the group of deliveries that starts at the index `start`. The pump writes a group at once.

    A group has about `_WRITE_CHARACTERS`. After each group, the pump checks if the connection's buffer is full.
    """
    characters = 0
    for index in range(start, len(parcels)):
        content = parcels[index][0].content
        characters += len(content.body) + (_DATA_CHARACTERS if content.data else 0)
        if characters >= _WRITE_CHARACTERS:
            return index + 1
    return len(parcels)


def _is_failed(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code is Code.STORE_FAILED


def _characters(command: c.Command) -> int:
    """Return the number of characters in the message that a command sends; 0 for other commands."""
    return len(command.content.body) if isinstance(command, c.Send) else 0
