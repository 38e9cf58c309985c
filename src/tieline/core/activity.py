"""Activity, the record of an agent's actions: decides who may report it and who may read it.

The broker only checks that the session may make the request, which is fast. The journal does the work later and then
makes the reply.
"""

from tieline.contract import command as c
from tieline.contract.permission import ACTIVITY_READ
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Directory, Session
from tieline.core.journal import Record, Select
from tieline.core.outcome import Deferred
from tieline.core.rules import Rules, decides
from tieline.core.store import ActivityQuery

_DONE = Done()


class ActivityRules(Rules):
    """Rules for the commands that report, read and follow activity (the record of an agent's actions)."""

    def __init__(self, batch: Batch, directory: Directory) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._directory = directory

    @decides(c.RecordActivity)
    def record(self, session: Session, command: c.RecordActivity) -> Reply | Deferred:
        """Check a report of activity by the session's member.

        If the report is valid, the journal (the thread for activity) stores it and replies later.
        """
        account = session.account
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can report activity")
        if not 0 < len(command.events) <= self._limits.activity_events_max:
            return Refusal(Code.INVALID_REQUEST, f"an upload has 1 to {self._limits.activity_events_max} events")
        work = Record(account.number, account.name, self._batch.now_ms, command.events, command.size)
        return Deferred(work)

    @decides(c.ReadActivity)
    def read(self, session: Session, command: c.ReadActivity) -> Reply | Deferred:
        """Check that the session may read a member's activity.

        If it may, the journal (the thread for activity) reads the activity and replies later.
        """
        account = self._directory.find_for(session, ACTIVITY_READ, command.member)
        if isinstance(account, Refusal):
            return account
        limits = self._limits
        query = ActivityQuery(
            number=account.number,
            from_ms=command.from_ms,
            to_ms=command.to_ms,
            kinds=command.kinds,
            limit=max(1, min(command.limit, limits.read_max)),
            bytes_max=limits.page_bytes_max,
        )
        return Deferred(Select(account.name, query))

    @decides(c.FollowActivity)
    def follow(self, session: Session, command: c.FollowActivity) -> Reply:
        """Check that the session may follow a member's activity: get each new event as soon as it is stored."""
        account = self._directory.find_for(session, ACTIVITY_READ, command.member)
        if isinstance(account, Refusal):
            return account
        session.follows_others |= session.account is not account
        return _DONE
