"""The local hub: implements the interface `Hub` in this process. The broker (decision logic) has its own thread.

Commands pass through a queue. The broker's thread takes all commands that came during the last commit, decides them
together (executes or refuses each) and commits once. It never waits for a timer. The outcome goes to the event loop in
one call, and only then are replies and notices sent. Work that nobody waits for (offers, acknowledgements) may stay
uncommitted for `lazy_commit_ms`, so that it shares the commit of the next message. If a command raises an exception,
only that command is refused. A failed commit is rolled back: commands that waited for it are refused, all others are
decided again, and sessions stay open. Sessions end only when the broker cannot read its store.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import structlog
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import ExternalInbox, Interest, Listener, MessageRedacted
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply
from tieline.core.broker import Broker
from tieline.core.outage import Interruptible, Lease, Leased, OutOfDate
from tieline.core.outcome import Deferred, Fault, Outcome, Unseen
from tieline.core.search_query import SearchIndex, SearchQuery
from tieline.core.store import ActivityStore, DamagedError, DiskError, StoreError
from tieline.server.answers import Answers, by_outcome
from tieline.server.external_inboxes import Answer, AttachedInboxes, InboxRemoved, WaitingCommands
from tieline.server.health import Health
from tieline.server.inlet import Inlet
from tieline.server.recorder import Recorder
from tieline.server.searcher import Searcher
from tieline.server.turns import Done, Item, Turns, pieces
from tieline.server.watches import Receiver, Watches
from tieline.wire.awaited_reply import ask

_TICK_SECONDS = 0.25
"""Seconds between two checks for expired messages, when nothing else happens."""

_OUTAGE_SECONDS = 0.25
"""Time between two attempts to reach a store that does not answer."""

_WRITES = frozenset({c.Send, c.Claim, c.Discard, c.Tick})
"""Commands that are refused at once while the hub writes nothing after failures of the store, because they would be
rolled back."""

log = structlog.get_logger(__name__)

_STOPPING = Refusal(Code.SHUTTING_DOWN, "the hub is stopping; send again when it is back")
_LOST = Refusal(Code.STORE_FAILED, "the store is lost; the hub is stopping")
_DEPOSED = Refusal(
    Code.SHUTTING_DOWN,
    "another hub leads now, and what had no answer may have been done; connect again and send again with the same id",
)

Tail = Callable[[Sequence[ActivityRow]], None]

_R = TypeVar("_R")


def _store_failed(reason: str) -> Refusal:
    return Refusal(Code.STORE_FAILED, f"the store failed, nothing was accepted: {reason}")


def _is_end(item: Item) -> bool:
    return any(isinstance(command, c.Detach) for command in item[0])


class HubCounters(Struct):
    """Counts of messages, batches and commits since the start. Each field is written by one thread only."""

    accepted: int = 0
    deliveries: int = 0
    batches: int = 0
    commits: int = 0
    commit_seconds: float = 0.0


class LocalHub:
    """Implementation of `Hub`, the interface that protocols use, with the broker (decision logic) in this process."""

    def __init__(
        self,
        broker: Broker,
        activity: ActivityStore,
        notify: Callable[[Unseen], None] | None = None,
        index: SearchIndex | None = None,
    ) -> None:
        self._broker = broker
        self.health = Health()
        self._searcher = Searcher(index, self.health) if index is not None else None
        self.limits = broker.limits
        self.recorder = Recorder(activity, self.limits, self._recorded, self.health, broker.clock_and_ids, self.submit)
        # Callback that notifies a human of an unseen message.
        self._notify = notify
        self.counters = HubCounters()
        # Items that are not decided yet.
        self._turns = Turns(self._replaced)
        # Items that wait for an external inbox.
        self._inboxes = AttachedInboxes(self._answered)
        self._waiting_commands = WaitingCommands(broker, self._inboxes, self._replaced)
        # True once the queue has ended; only the broker's thread uses it.
        self._stops = False
        if isinstance(broker.store, Interruptible):
            broker.store.on_outage = self._outlast
        # The right to write to the store, if another hub can take it over.
        self.lease: Lease | None = broker.store.lease if isinstance(broker.store, Leased) else None
        if self.lease is not None:
            self.lease.on_lost = lambda _: self._turns.put(((), None))
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._inlet = Inlet(self._loop, self._turns.put)
        self._listeners: dict[MemberName, list[Listener]] = {}
        self._sessions: dict[SessionId, tuple[MemberName | None, Listener]] = {}
        self._watches = Watches()
        # Receivers of the activity of each member.
        self._tails: dict[MemberName, list[tuple[SessionId, Tail]]] = {}
        self._stopping = False
        # True if the store failed for good; only the broker's thread uses it.
        self._lost = False
        # Number of the last failed attempt, for each session on a wire without refusals; see `Send.attempt`.
        self._failed: dict[SessionId, int] = {}
        self._ticker: asyncio.TimerHandle | None = None
        # Resolved when the store is lost for good and the hub must stop.
        self.failure: asyncio.Future[Exception] = self._loop.create_future()

    # Lifecycle.

    def start(self) -> None:
        """Start the threads, and the timer that makes messages expire."""
        self._thread.start()
        self.recorder.start()
        if self._searcher is not None:
            self._searcher.start()
        self._tick()

    async def stop(self) -> None:
        """Execute and commit the submitted commands, write a snapshot, stop the threads and close the store."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        self._inlet.flush()
        self._turns.put(self._stop_taking)
        await asyncio.to_thread(self._thread.join)
        # Let the broker's last callbacks run. The recorder and the searcher may still have to make some of the replies.
        await asyncio.sleep(0)
        await self.recorder.stop()
        if self._searcher is not None:
            await self._searcher.stop()

    def _tick(self) -> None:
        self.submit((c.Tick(),))
        self._ticker = self._loop.call_later(_TICK_SECONDS, self._tick)

    # The Hub port.

    def submit(self, commands: Sequence[c.Command], done: Done | None = None) -> None:
        """Queue commands. When they are executed and committed, the callback `done` gets the replies, in order."""
        if self._stopping:
            if done is not None:
                self._loop.call_soon(done, [_STOPPING] * len(commands))
            return
        parts = list(pieces(commands)) if len(commands) > 1 else [commands]
        if len(parts) == 1:
            self._inlet.add(commands, done)
            return
        answers = Answers(len(parts), done)
        for number, part in enumerate(parts):
            self._inlet.add(part, partial(answers.take, number))

    async def ask(self, command: c.AnsweredBy[_R]) -> _R | Refusal:
        """Submit one command, wait for its reply, and return the reply."""
        return await ask(self.submit, command)

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        """Call this listener for events of the session and, with `member`, for new deliveries of that member."""
        known = self._sessions.get(session)
        self._sessions[session] = (member, listener)
        if member is not None and known != (member, listener):
            self._listeners.setdefault(member, []).append(listener)

    def forget(self, session: SessionId) -> None:
        """Call the listener of a session no more. A second call does nothing."""
        if self._tails:
            self._untail(session)
        known = self._sessions.pop(session, None)
        if known is None:
            return
        member, listener = known
        if member is None:
            return
        # A new list, because a listener may call this while the hub iterates over the list.
        left = [other for other in self._listeners.pop(member) if other is not listener]
        if left:
            self._listeners[member] = left

    def tail(self, session: SessionId, member: MemberName, receiver: Tail) -> Callable[[], None]:
        """Pass a member's new activity to this receiver until the session ends or the returned function is called."""
        entry = (session, receiver)
        self._tails.setdefault(member, []).append(entry)
        return lambda: self._cut(member, lambda other: other is entry)

    def _untail(self, session: SessionId) -> None:
        for member in list(self._tails):
            self._cut(member, lambda entry: entry[0] == session)

    def _cut(self, member: MemberName, ends: Callable[[tuple[SessionId, Tail]], bool]) -> None:
        left = [entry for entry in self._tails.pop(member, ()) if not ends(entry)]
        if left:
            self._tails[member] = left

    def watch(self, interest: Interest, receiver: Receiver) -> Callable[[], None]:
        """Pass the notices that match `interest` to `receiver`. Return a function that stops this."""
        return self._watches.add(interest, receiver)

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Set the external inbox of a member, or remove it with `None`.

        The hub asks an external inbox to reserve deliveries of the member before it settles them (acknowledges,
        expires…). `session` is the inbox's own session. The broker's thread only reads the table of inboxes, so the
        event loop may change it.
        """
        if inbox is None:
            self._broker.external_inboxes.sessions.pop(member, None)
        else:
            self._broker.external_inboxes.sessions[member] = session
        self._inboxes.change(member, inbox)

    def resolve(self, question: int, reserved: Sequence[int], taken: Sequence[int]) -> None:
        """Queue an external inbox's answer: the keys of the deliveries that it reserved, and of those already taken."""
        self._answered(Answer(question, reserved, taken))

    def _answered(self, answer: Answer | InboxRemoved) -> None:
        self._inlet.flush()
        self._turns.put(partial(self._waiting_commands.take, answer))

    # On the broker's thread.

    def _run(self) -> None:
        """Take commands from the queue, decide and commit them, and hand their outcomes to the event loop."""
        lazy_since: float | None = None
        while self._turns or not self._stops:
            items = self._turns.take(self.limits.batch_max, None if lazy_since is None else self._lazy_wait(lazy_since))
            if self._deposed is not None and not self._lost:
                self._lose(self._deposed, ())
            if self._lost:
                # Memory may hold uncommitted changes. So no command may be decided and nothing written.
                refusal = _DEPOSED if self._deposed is not None else _LOST
                self._loop.call_soon_threadsafe(self._give_up, items + self._waiting_commands.abandon(), refusal)
                lazy_since = None
                continue
            undecided: list[Item] = []
            try:
                for batch in self._waiting_commands.batches(items):
                    undecided = batch
                    outcomes = list(self._decide([command for commands, _ in batch for command in commands]))
                    if outcomes[-1].more and not self._stops:
                        # The hub's own work continues in the next batch.
                        self._turns.put(((), None))
                    self.counters.batches += 1
                    for outcome in outcomes:
                        if outcome.unsettled:
                            self._waiting_commands.add(outcome.settle_commands())
                    if len(outcomes) == 1:
                        if outcomes[0].has_news or any(done is not None for _, done in batch):
                            self._loop.call_soon_threadsafe(self._publish, batch, outcomes[0])
                    else:
                        self._loop.call_soon_threadsafe(self._publish_all, batch, outcomes)
                    undecided = []
                lazy_since = self._commit_lazy(lazy_since)
            except Exception as lost:  # noqa: BLE001 - whatever it is, the store cannot be read any more
                self._lose(self._deposed or lost, undecided)
        self._close()

    @property
    def _deposed(self) -> OutOfDate | None:
        """The error with which another hub took the store over, if one has."""
        return None if self.lease is None else self.lease.lost

    def _stop_taking(self) -> None:
        self._stops = True

    def _commit_lazy(self, lazy_since: float | None) -> float | None:
        """Commit work that nobody waits for, if it is old enough. `lazy_since` is the time of its start, or `None`.

        Return the start of the work that is uncommitted afterwards; `None` if there is none.
        """
        if not self._broker.dirty:
            self._retry()
            return None
        if lazy_since is None:
            return time.monotonic()
        if self._lazy_wait(lazy_since):
            return lazy_since
        self._commit()
        return time.monotonic()

    def _lazy_wait(self, since: float) -> float:
        """Return the seconds until uncommitted work must be committed. `since` is the time at which this work began."""
        left = since + self.limits.lazy_commit_ms / 1000 - time.monotonic()
        return max(0.0, left, self.health.store.rest_seconds)

    def _replaced(self, command: c.Attach) -> Sequence[SessionId]:
        return () if self._lost else self._broker.replaced(command)

    def _decide(self, commands: Sequence[c.Command], retries: int = 1) -> Iterator[Outcome]:
        """Decide commands in order, and commit if somebody waits. Yield outcomes, each with some of the replies.

        If a commit fails and `retries` is not 0, decide each command in a transaction of its own, to find the one that
        causes the error.
        """
        broker, store = self._broker, self.health.store
        while True:
            resting = bool(store.rest_seconds)
            if resting or self._failed:
                refused = [self._is_behind(command) or (resting and type(command) in _WRITES) for command in commands]
                if any(refused):
                    refusal = _store_failed(store.reason or "what was said before this failed")
                    yield from self._decide_without(commands, refused, retries, refusal)
                    return
            # A commit for releases alone must not fail again and again: it would refuse commands that nobody waits for.
            outcome = broker.handle(commands, releases=bool(retries) and not resting)
            if outcome.faults or broker.faults:
                if self._deposed is not None:
                    raise self._deposed
                self._report(outcome.faults)
            error = None
            if outcome.urgent:
                error = self._commit()
            else:
                broker.mark_published()
            count = len(outcome.replies)
            if error is None:
                yield outcome
            elif retries and len(outcome.awaited) + bool(outcome.released) > 1 and not isinstance(error, DiskError):
                # One of the commands, or a release, causes the error. A transaction for each command shows which one.
                for command in commands[:count]:
                    yield from self._decide((command,), 0)
            else:
                awaited = set(outcome.awaited)
                refused = [index in awaited for index in range(count)]
                yield from self._decide_without(commands[:count], refused, 0, _store_failed(str(error)))
            commands = commands[count:]
            if not commands:
                return

    def _decide_without(
        self, commands: Sequence[c.Command], refused: Sequence[bool], retries: int, refusal: Refusal
    ) -> Iterator[Outcome]:
        """Reply with `refusal` to the commands for which `refused` has true, and decide all other commands.

        `refused` has one value for each command.
        """
        for command, no in zip(commands, refused, strict=True):
            if no and isinstance(command, c.Send) and command.attempt is not None:
                self._failed[command.session] = command.attempt
        left = [index for index, no in enumerate(refused) if not no]
        if not left:
            yield Outcome(replies=[refusal] * len(commands))
            return
        start = decided = 0
        for outcome in self._decide([commands[index] for index in left], retries):
            theirs = left[decided : decided + len(outcome.replies)]
            decided += len(theirs)
            end = left[decided] if decided < len(left) else len(commands)
            yield outcome.with_undecided([index - start for index in theirs], end - start, refusal)
            start = end

    def _is_behind(self, command: c.Command) -> bool:
        """Return true if a `Send` must be refused to keep its session's order, because an earlier `Send` has failed."""
        if isinstance(command, c.Detach):
            self._failed.pop(command.session, None)
        if not isinstance(command, c.Send) or command.attempt is None:
            return False
        if command.attempt <= self._failed.get(command.session, -1):
            return True
        self._failed.pop(command.session, None)
        return False

    def _commit(self) -> Exception | None:
        """Commit all changes so far. Return `None`. If the commit fails, roll the changes back and return the error."""
        started = time.perf_counter()
        try:
            self._broker.commit()
        except OutOfDate:
            # The store has the state of another hub now.
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was committed
            self._broker.roll_back()
            if isinstance(error, DiskError):
                self.health.store.failed(str(error), error.hint)
            else:
                self._report((Fault(0, "commit", error, _store_failed(str(error))),))
            return error
        self.counters.commits += 1
        self.counters.commit_seconds += time.perf_counter() - started
        self.health.store.succeeded()
        if self._broker.external_inboxes.finished:
            self._waiting_commands.finish()
        if self._broker.faults:
            self._report(())
        self._note_checkpoint()
        return None

    def _note_checkpoint(self) -> None:
        trouble, checkpoint = self._broker.store.trouble, self.health.checkpoint
        if trouble and trouble != checkpoint.reason:
            checkpoint.failed(trouble)
        elif checkpoint.reason and not trouble:
            checkpoint.succeeded()

    def _retry(self) -> None:
        """Try to write to a failing store while there are no commands, to find out if the store works again."""
        health = self.health
        if not (health.store.reason or health.checkpoint.reason) or health.store.rest_seconds:
            return
        try:
            self._broker.store.retry()
        except StoreError as error:
            if isinstance(error, DamagedError):
                health.damaged(health.store.what, error)
            health.store.failed(str(error), error.hint)
        else:
            health.store.succeeded()
            self._note_checkpoint()

    def _outlast(self, error: DiskError) -> bool:
        """Refuse new commands while the store has an outage. The store calls this until it is back.

        Sessions stay. The ends of sessions wait, because nobody would repeat them. Return false if the hub stops.
        """
        self.health.store.failed(str(error), error.hint)
        refusal, until = _store_failed(str(error)), time.monotonic() + _OUTAGE_SECONDS
        while not (self._stopping or self._deposed) and (left := until - time.monotonic()) > 0:
            refused = self._turns.drain(left, _is_end)
            if refused:
                self._loop.call_soon_threadsafe(self._refuse, refused, refusal)
        return not (self._stopping or self._deposed)

    def _close(self) -> None:
        """Write a snapshot and close the store, because the hub stops. If the store is lost, only close it."""
        if not self._lost:
            self._loop.call_soon_threadsafe(self._refuse, self._waiting_commands.abandon(), _STOPPING)
            try:
                self._broker.close()
            except OutOfDate as deposed:
                self._lose(deposed, ())
            except DiskError as error:
                log.error(
                    "what was acknowledged last could not be written; it will be delivered again", reason=str(error)
                )
            except Exception as lost:  # noqa: BLE001 - whatever it is, the store must be closed
                self._lose(lost, ())
        self._broker.store.close()

    def _report(self, faults: Sequence[Fault]) -> None:
        for fault in (*faults, *self._broker.faults):
            self.health.fault(fault)
            if isinstance(fault.error, DiskError):
                self.health.store.failed(str(fault.error), fault.error.hint)
        self._broker.faults.clear()

    def _lose(self, lost: Exception, undecided: Sequence[Item]) -> None:
        """Give the store up after the error `lost`: refuse the undecided commands, end all sessions, stop the hub."""
        if isinstance(lost, OutOfDate):
            log.error("this hub leads no more: its sessions end, and it writes nothing", reason=str(lost))
        else:
            log.error(
                "the store cannot be read any more: all sessions end and the hub stops",
                error=str(lost),
                exc_info=None if isinstance(lost, DiskError) else lost,
            )
        self._lost = True
        refusal = _DEPOSED if isinstance(lost, OutOfDate) else _store_failed(str(lost))
        self._loop.call_soon_threadsafe(self._fail, lost)
        self._loop.call_soon_threadsafe(self._give_up, undecided, refusal)

    # On the event loop.

    def _publish_all(self, items: Sequence[Item], outcomes: Sequence[Outcome]) -> None:
        for theirs, outcome in by_outcome(items, outcomes):
            self._publish(theirs, outcome)

    def _publish(self, items: Sequence[Item], outcome: Outcome) -> None:
        """Pass on the outcome of executed commands: replies to the callbacks in `items`, and news to the listeners."""
        listeners = self._listeners
        start = 0
        for commands, done in items:
            replies = outcome.replies[start : start + len(commands)]
            start += len(commands)
            if Deferred in map(type, replies):
                self._defer(replies, done)
            elif done is not None:
                self._call(done, replies)
        for change in outcome.changes:
            self._watches.changed(change)
            if isinstance(change, MessageRedacted) and self._searcher is not None:
                self._searcher.start_over()
        if outcome.posts:
            self._watches.said()
        for post in outcome.posts:
            message, held = post.message, post.held
            self._watches.posted(message, post.origin)
            columns = zip(post.recipients, post.numbers, post.keys, post.stream_seqs, strict=True)
            for name, number, key, stream_seq in columns:
                if held and number in held:
                    continue
                for listener in listeners.get(name, ()):
                    try:
                        listener.offer(message, key, stream_seq)
                    except Exception:
                        log.exception("a receiver failed")
            self.counters.deliveries += len(post.keys)
        self.counters.accepted += len(outcome.posts)
        for warning in outcome.warnings:
            log.warning(warning)
        for name, keys in outcome.released.items():
            for listener in listeners.get(name, ()):
                self._call(listener.released, keys)
        for session, step in outcome.progress:
            known = self._sessions.get(session)
            if known is not None:
                self._call(known[1].progress, step)
        if self._notify is not None:
            for unseen in outcome.unseen:
                self._call(self._notify, unseen)
        for session, why in outcome.ended:
            self._end(session, why)

    def _defer(self, replies: list[Reply | Deferred], done: Done | None) -> None:
        """Pass deferred work to the journal or the search index. Call `done` when all replies are made."""
        answers = Answers(len(replies), None if done is None else partial(self._call, done))
        for index, reply in enumerate(replies):
            take = partial(answers.take, index)
            if not isinstance(reply, Deferred):
                take((reply,))
            elif not isinstance(reply.work, SearchQuery):
                self.recorder.submit(reply.work, partial(self._finish, take, reply.then))
            elif self._searcher is not None:
                self._searcher.submit(reply.work, partial(self._finish, take, reply.then))
            else:
                take((Refusal(Code.INVALID_REQUEST, "this hub has no search index"),))

    def _finish(self, take: Done, then: c.Command | None, reply: Reply) -> None:
        """Pass the reply of deferred work to `take`. With `then`, execute this command first, and pass on its reply.

        If the work was refused, do not execute the command, and pass on the refusal.
        """
        if then is None or isinstance(reply, Refusal):
            take((reply,))
        else:
            self.submit([then], take)

    def _recorded(self, rows: Sequence[ActivityRow]) -> None:
        """Pass new rows of activity to the receivers that follow the members of these rows."""
        for member in {row.member for row in rows} & self._tails.keys():
            theirs = [row for row in rows if row.member == member]
            for _, receiver in list(self._tails[member]):
                self._call(receiver, theirs)

    def _refuse(self, items: Sequence[Item], refusal: Refusal) -> None:
        for commands, done in items:
            if done is not None:
                self._call(done, [refusal] * len(commands))

    def _give_up(self, items: Sequence[Item], refusal: Refusal) -> None:
        self._refuse(items, refusal)
        for session in list(self._sessions):
            self._end(session, refusal)

    def _fail(self, error: Exception) -> None:
        self._stopping = True
        if not self.failure.done():
            self.failure.set_result(error)

    def _end(self, session: SessionId, why: Refusal) -> None:
        if self._tails:
            self._untail(session)
        known = self._sessions.get(session)
        if known is not None:
            self.forget(session)
            self._call(known[1].end, why)

    def _call(self, receiver: Callable[..., None], *values: object) -> None:
        """Call a receiver. If it raises an exception, only log it, so that the hub calls the other receivers too."""
        try:
            receiver(*values)
        except Exception:
            log.exception("a receiver failed")
