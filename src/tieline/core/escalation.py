"""Escalation: tries the ways to reach a member, one after the other, until evidence shows that a delivery was seen.

The ways are push, hook, pty, pull and notify (`contract.reach`). Only members for which ways are set are tracked, so a
message to any other member costs nothing here. Deliveries that came at about the same time wait together as one range
of keys. So there is one entry per member and moment, for any number of messages.

The log has the current way of a delivery, but not the time at which the hub began to use it. After a restart, the
delivery gets the full time of its current way again, because nobody could send evidence to a hub that was down.
"""

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, groupby

import msgspec
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.event import Fell, Registered
from tieline.contract.keys import Range, Ranges
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.reach import Reach, Way
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import ReachState, Reply
from tieline.core import ledger
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session
from tieline.core.followers import Followers
from tieline.core.outcome import Post
from tieline.core.rules import Rules, decides

_KEY = "reach:"
_GRAIN = 10
"""Deadlines are rounded, so that deliveries are escalated together. Rounding step = waiting time / `_GRAIN`."""
_GRAIN_MS_MAX = 1000
"""Deadlines are rounded, so that deliveries are escalated together. This is the largest rounding step."""
_HELD = 255
"""Value for a held delivery, instead of the index of a way. A held delivery is not escalated before its release."""
TellUnseen = Callable[[Account, Reach, Ranges], None]
"""Callback that notifies a human about unseen deliveries. Arguments: the member, its ways, and ranges of keys."""

_reach_decoder = msgspec.json.Decoder(Reach)


class _Wait(msgspec.Struct, order=True):
    """Entry for deliveries of one member, with keys `first` to `last`, that are waiting to be seen.

    If they are not seen before the deadline, the hub tries the next way to reach the member. `index` is the position
    of the current way in the member's list of ways. Some of the deliveries may already have been seen.
    """

    deadline_ms: int
    number: int
    index: int
    urgent: bool
    first: int
    last: int
    """Key of the last delivery. It may grow while the entry is in the heap. The heap sorts by the fields before this
    one."""

    @property
    def moment(self) -> tuple[int, int, int, bool]:
        """Deadline, member number, index of the way, and urgency.

        Entries with the same four values are escalated together, by one event.
        """
        return self.deadline_ms, self.number, self.index, self.urgent


class Escalation:
    """The ways (push, hook, pty, pull, notify) to reach each member, and the deliveries that wait to be seen.

    If a delivery is not seen in time, the hub escalates it: it tries the next way.
    """

    __slots__ = ("_batch", "_directory", "_followers", "_latest", "_limits", "_store", "_waits", "reaches")

    def __init__(self, batch: Batch, directory: Directory, followers: Followers) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._followers = followers
        # Key: the number of the member.
        self.reaches: dict[int, Reach] = {}
        self._waits: list[_Wait] = []
        # By member and urgency: the newest entry, which the next delivery may extend.
        self._latest: dict[tuple[int, bool], _Wait] = {}

    def restore(self, settings: Mapping[str, bytes], now_ms: int, before: "Escalation | None" = None) -> None:
        """Restore the ways to reach members from the stored `settings`.

        In a rollback, `before` is the object from before the rollback. A member whose ways did not change keeps its
        deadlines.
        """
        waits: dict[int, list[_Wait]] = {}
        for wait in before._waits if before else ():
            waits.setdefault(wait.number, []).append(wait)
        for key, kept in settings.items():
            account = self._directory.accounts.get(int(key.removeprefix(_KEY))) if key.startswith(_KEY) else None
            if account is not None and kept:
                reach = self.reaches[account.number] = _reach_decoder.decode(kept)
                if before is None or before.reaches.get(account.number) != reach:
                    self._take_up(account, now_ms)
                    continue
                for wait in waits.get(account.number, ()):
                    last = min(wait.last, account.inbox.next_key - 1)
                    if wait.first <= last:
                        self._enter(replace(wait, last=last))

    def _enter(self, wait: _Wait) -> None:
        heapq.heappush(self._waits, wait)
        latest = self._latest.get((wait.number, wait.urgent))
        if latest is None or latest.last < wait.last:
            self._latest[wait.number, wait.urgent] = wait

    def expect(self, post: Post, *, urgent: bool) -> None:
        """Begin to wait for evidence that the new deliveries of a message are seen.

        Each delivery starts at the first way to reach its recipient.
        """
        now_ms = self._batch.now_ms
        for number, key in zip(post.numbers, post.keys, strict=True):
            reach = self.reaches.get(number)
            if reach is not None and number not in post.held:
                self._wait(reach, number, 0, (key, key), now_ms, urgent=urgent)

    def expect_released(self, number: int, key: int) -> None:
        """Begin to wait for evidence that a released delivery is seen. `number` is the member's number.

        The delivery counts as not urgent, because the priority of its message is not read from the store.
        """
        reach = self.reaches.get(number)
        if reach is not None:
            self._wait(reach, number, 0, (key, key), self._batch.now_ms)

    def _wait(self, reach: Reach, number: int, index: int, keys: Range, now_ms: int, *, urgent: bool = False) -> None:
        wait_ms = reach.wait_ms(index, urgent=urgent)
        grain_ms = max(1, min(wait_ms // _GRAIN, _GRAIN_MS_MAX))
        deadline_ms = -(-(now_ms + wait_ms) // grain_ms) * grain_ms
        latest = self._latest.get((number, urgent))
        joins = (deadline_ms, index, keys[0] - 1)
        if latest is not None and (latest.deadline_ms, latest.index, latest.last) == joins:
            latest.last = keys[1]
            return
        entry = self._latest[number, urgent] = _Wait(deadline_ms, number, index, urgent, *keys)
        heapq.heappush(self._waits, entry)

    def _take_up(self, account: Account, now_ms: int) -> None:
        """Begin to wait for evidence about each unsettled delivery (not acked, expired or dead) of a member.

        Each delivery continues with the way to which it was last escalated.
        """
        reach, inbox = self.reaches[account.number], account.inbox
        start, end = inbox.first_unsettled, inbox.next_key
        # The index of the way of each delivery, one byte each. Later escalations overwrite earlier ones.
        indexes = bytearray(end - start)
        for fall in self._store.falls(account.number, start, end - 1):
            low, high = max(fall.first, start) - start, min(fall.last + 1, end) - start
            indexes[low:high] = bytes((reach.index_of(fall.way),)) * (high - low)
        for entry in inbox.held_entries() if inbox.held else ():
            indexes[entry.key - start] = _HELD
        key = start
        for index, alike in groupby(indexes):
            count = sum(1 for _ in alike)
            if index != _HELD:
                self._wait(reach, account.number, index, (key, key + count - 1), now_ms)
            key += count

    def set(self, account: Account, reach: Reach) -> None:
        """Set and store the ways to reach a member.

        Each delivery that is not acked, expired or dead gets the full time of its current way again.
        """
        number = account.number
        self._waits = [wait for wait in self._waits if wait.number != number]
        heapq.heapify(self._waits)
        self._latest.pop((number, False), None)
        self._latest.pop((number, True), None)
        self.reaches.pop(number, None)
        if reach.legs:
            self.reaches[number] = reach
            self._take_up(account, self._batch.now_ms)
        self._store.save_setting(f"{_KEY}{number}", ledger.encode_struct(reach) if reach.legs else b"")
        self._batch.dirty = True

    def work(self, tell_unseen: TellUnseen) -> None:
        """Escalate the deliveries whose time at their current way is over.

        `tell_unseen` is called with the deliveries that are escalated to a human.
        """
        waits = self._waits
        if waits and waits[0].deadline_ms <= self._batch.now_ms:
            self._batch.undo.append(partial(self._put_back, [replace(wait) for wait in waits]))
        while waits and waits[0].deadline_ms <= self._batch.now_ms:
            wait = self._pop()
            together = [wait]
            while waits and waits[0].moment == wait.moment:
                together.append(self._pop())
            reach, account = self.reaches.get(wait.number), self._directory.accounts.get(wait.number)
            if reach is None or account is None or wait.index + 1 >= len(reach.legs):
                continue
            unseen = [ranges for each in together if (ranges := account.inbox.unseen(each.first, each.last))]
            if unseen:
                self._fall(account, reach, wait, unseen, tell_unseen)

    def _pop(self) -> _Wait:
        wait = heapq.heappop(self._waits)
        if self._latest.get((wait.number, wait.urgent)) is wait:
            del self._latest[wait.number, wait.urgent]
        return wait

    def shift(self, step_ms: int) -> None:
        """Shift all deadlines by `step_ms`, because somebody set the clock. So each wait lasts as long as planned."""
        for wait in self._waits:
            wait.deadline_ms += step_ms

    def _put_back(self, waits: list[_Wait]) -> None:
        self._waits = []
        self._latest = {}
        for wait in waits:
            self._enter(wait)

    def _fall(
        self,
        account: Account,
        reach: Reach,
        wait: _Wait,
        unseen: list[list[Range]],
        tell_unseen: TellUnseen,
    ) -> None:
        """Escalate unseen deliveries of a member from the way of `wait` to the next way. One event covers all of them.

        `reach` has the ways to reach the member. `unseen` has a list of key ranges for each waiting entry. If the next
        way is `notify`, call `tell_unseen`.
        """
        ranges = list(chain.from_iterable(unseen))
        after, way = reach.legs[wait.index].way, reach.legs[wait.index + 1].way
        event = Fell(member=account.name, number=account.number, keys=tuple(ranges), way=way.value, after=after.value)
        row = self._batch.ledger.append(event, self._batch.now_ms)
        self._store.fall(row, account.number, ranges)
        self._batch.dirty = self._batch.outcome.urgent = True
        if self._followers.by_offset:
            self._followers.tell_fall(account, ranges, way)
        for part in unseen:
            # The new range may include seen deliveries. They are skipped when the range is due.
            keys = (part[0][0], part[-1][1])
            self._wait(reach, account.number, wait.index + 1, keys, self._batch.now_ms, urgent=wait.urgent)
        if way is Way.NOTIFY:
            tell_unseen(account, reach, ranges)

    def forget(self, account: Account) -> None:
        """Delete the ways to reach a removed member, and stop waiting for its deliveries."""
        if account.number in self.reaches:
            self.set(account, Reach())

    def way_of(self, number: int, key: int, fallen: str) -> str:
        """Return the current way (such as `hook`) to reach a member for one delivery.

        `number` is the member's number, and `key` is the key of the delivery. `fallen` is the way that the delivery was
        last escalated to. The result is empty if the member has no ways, or if the delivery was seen.
        """
        reach, account = self.reaches.get(number), self._directory.accounts.get(number)
        if reach is None or account is None or not account.inbox.unseen(key, key):
            return ""
        return reach.legs[reach.index_of(fallen)].way.value


class ReachRules(Rules):
    """Rule for the command `SetReach`, which sets or reads the ways to reach a member."""

    def __init__(self, batch: Batch, directory: Directory, escalation: Escalation, notifies: bool) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._directory = directory
        self._escalation = escalation
        # True if the hub is configured with a command that notifies a human about unseen messages.
        self._notifies = notifies

    @decides(c.SetReach)
    def set_reach(self, session: Session, command: c.SetReach) -> Reply:
        """Set or read the ways to reach a member, and reply with them.

        Only the member itself and members who manage members may do that.
        """
        account = self._directory.find_for(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        if command.reach is not None:
            refusal = self._check(command.reach)
            if refusal is not None:
                return refusal
            if command.reach != self._escalation.reaches.get(account.number, Reach()):
                self._escalation.set(account, command.reach)
                self._batch.record(Registered(account.name, session.speaker, "reach"))
        return ReachState(account.name, self._escalation.reaches.get(account.number, Reach()))

    def _check(self, reach: Reach) -> Refusal | None:
        ways = [leg.way for leg in reach.legs]
        if len(set(ways)) < len(ways):
            return Refusal(Code.INVALID_REQUEST, "each way can be taken once")
        times = [leg.wait_ms for leg in reach.legs] + ([] if reach.urgent_ms is None else [reach.urgent_ms])
        if any(not 0 <= time_ms <= self._limits.ttl_ms_max for time_ms in times):
            return Refusal(Code.INVALID_REQUEST, f"a way is given 0 to {self._limits.ttl_ms_max} milliseconds")
        if reach.notify and self._directory.find(reach.notify) is None:
            return self._directory.unknown_member(reach.notify)
        if Way.NOTIFY in ways and not reach.notify and not self._notifies:
            return Refusal(Code.INVALID_REQUEST, "notify needs a member to write to, or a command in the configuration")
        return None
