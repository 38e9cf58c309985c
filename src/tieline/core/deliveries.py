"""Changes the states of deliveries, from `pending` to `acked`, `expired` or `dead`.

Every rule that has evidence about a delivery calls this module. This module changes the inboxes, and collects the moves
(status changes) for the log. It informs the followers, the loop rule and the holds about each move. If a member has an
external inbox, the external inbox must reserve a delivery for the hub before the hub settles it
(`core.external_inboxes`).
"""

from tieline.contract.delivery import SETTLED, State, Step
from tieline.contract.event import Claimed
from tieline.contract.keys import Ranges
from tieline.core.batch import Batch
from tieline.core.dead_letters import DeadLetters
from tieline.core.directory import Account, Directory, Session
from tieline.core.external_inboxes import EVIDENCE as TAKEN
from tieline.core.external_inboxes import ExternalInboxes
from tieline.core.followers import Followers
from tieline.core.holds import Holds
from tieline.core.loops import Loops

_NEWEST = 8
"""The loop rule (`core.loops`) is informed only about this many of the newest deliveries in each range of keys."""


class Deliveries:
    """Changes the states of deliveries, and informs other parts of the broker about each change."""

    __slots__ = ("_batch", "_dead_letters", "_directory", "_external_inboxes", "_followers", "_holds", "_loops")

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        followers: Followers,
        loops: Loops,
        holds: Holds,
        external_inboxes: ExternalInboxes,
        dead_letters: DeadLetters,
    ) -> None:
        self._batch = batch
        self._directory = directory
        self._followers = followers
        self._loops = loops
        self._holds = holds
        self._external_inboxes = external_inboxes
        self._dead_letters = dead_letters

    def move(
        self,
        account: Account,
        ranges: Ranges,
        state: State,
        *,
        session: Session | None = None,
        evidence: str = "",
        claimed: bool = False,
        ackless: bool = False,
    ) -> bool:
        """Change the state of deliveries of a member (`ranges` of keys). Return true if any delivery changed.

        `session` is the session that gave the `evidence`, or `None` if the hub itself makes the change. With `claimed`,
        the log says that the session claimed the deliveries. With `ackless`, the deliveries were offered on a wire
        without acknowledgement. If the member has an external inbox, a delivery becomes acked, expired or dead only if
        the external inbox has reserved it for the hub.
        """
        if self._external_inboxes.sessions and state in SETTLED:
            inbox_session = self._external_inboxes.session_to_ask(account, session)
            if inbox_session is not None:
                ranges, taken = self._external_inboxes.reserve(account, ranges, state, session, evidence)
                if taken:
                    theirs = self._directory.sessions.get(inbox_session)
                    self._move(account, taken, State.ACKED, session=theirs, evidence=TAKEN)
        return self._move(account, ranges, state, session=session, evidence=evidence, claimed=claimed, ackless=ackless)

    def _move(
        self,
        account: Account,
        ranges: Ranges,
        state: State,
        *,
        session: Session | None,
        evidence: str,
        claimed: bool = False,
        ackless: bool = False,
    ) -> bool:
        """Change the state of deliveries of a member, and return true if any changed. Ask no external inbox.

        The parameters have the same meaning as in `move`.
        """
        batch = self._batch
        now_ms, followers = batch.now_ms, self._followers
        ackless = state is State.OFFERED and (ackless or (session is not None and not session.acknowledges))
        step = Step(state, now_ms, session.id if session else "", session.protocol if session else "", evidence)
        inbox, held = account.inbox, account.inbox.held
        moved = False
        followed = followers.by_offset
        batch.changed = True
        if state is State.DEAD:
            self._dead_letters.note(account, ranges, step)
        for first, last in ranges:
            if followed:
                followers.tell(account, first, last, state)
            if session is not None and state <= State.ACKED:
                # Report only the newest few, because an agent answers the newest. A client may name keys too high.
                newest = min(last, inbox.next_key - 1)
                for key in range(max(first, newest - _NEWEST + 1), newest + 1):
                    offset = inbox.offset(key)
                    if offset is not None and not (held and inbox.is_held(key)):
                        self._loops.reached(account.name, offset, now_ms, seen=state is not State.OFFERED)
            done = inbox.move(first, last, state, ackless=ackless)
            if done:
                batch.ladder.note(account, done, step, Claimed if claimed else None, ackless=ackless)
                moved = True
        if inbox.held < held:
            self._holds.recheck(account)
        if moved:
            account.changed = True
            batch.dirty = True
            if session is not None and state is not State.OFFERED:
                account.evidence = step
        return moved
