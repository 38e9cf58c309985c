"""The logs: decides who may read them, and who may set the positions of their readers.

The broker answers commands about the main log at once. The journal answers commands about the activity log later.
"""

from tieline.contract import command as c
from tieline.contract.reader import Reader
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import LogRows, ReaderState, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Session
from tieline.core.journal import AdvanceReader, ForgetReader, ListReaders, ReadRows
from tieline.core.outcome import Deferred
from tieline.core.readers import Readers
from tieline.core.reading import READ_LOG
from tieline.core.rules import Rules, decides
from tieline.core.store import ACTIVITY, INTEGER_MAX, MAIN


class LogRules(Rules):
    """Rules of the commands that read the logs, and that list, set and forget their readers.

    Each of these commands needs the permission `log.read`.
    """

    def __init__(self, batch: Batch, readers: Readers) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._store = batch.store
        self._readers = readers

    @decides(c.ReadLog)
    def read(self, session: Session, command: c.ReadLog) -> Reply | Deferred:
        """Reply with committed rows of the main log or the activity log.

        For the activity log, the journal replies later.
        """
        refusal = _refusal(session, command.log)
        if refusal is not None:
            return refusal
        start, limit = max(0, min(command.start, INTEGER_MAX)), max(1, min(command.limit, self._limits.read_max))
        if command.log == ACTIVITY:
            return Deferred(ReadRows(start, limit))
        rows, end = self._store.read_log(start, limit)
        state = self._readers.state(end)
        return LogRows(tuple(rows), end, state.epoch, state.kept_from)

    @decides(c.ListReaders)
    def readers(self, session: Session, command: c.ListReaders) -> Reply | Deferred:
        """Reply with both logs and all their readers.

        This method collects the main log and its readers. The journal adds the activity log and its readers, and then
        replies.
        """
        refusal = session.refuse_without(READ_LOG)
        if refusal is not None:
            return refusal
        _, end = self._store.read_log(0, 0)
        return Deferred(ListReaders(self._readers.state(end), self._readers.rows))

    @decides(c.AdvanceReader)
    def advance(self, session: Session, command: c.AdvanceReader) -> Reply | Deferred:
        """Set a reader's position in one log, and reply with the reader.

        For the activity log, the journal does this and replies later.
        """
        refusal = _refusal(session, command.log)
        if refusal is not None:
            return refusal
        wish = Reader(
            name=command.name,
            log=command.log,
            position=command.position,
            by=session.speaker,
            at_ms=self._batch.now_ms,
        )
        if command.log == ACTIVITY:
            return Deferred(AdvanceReader(wish, command.epoch, command.rewind))
        _, end = self._store.read_log(0, 0)
        made = self._readers.advance(wish, end, command.epoch, rewind=command.rewind)
        if isinstance(made, Refusal):
            return made
        self._written()
        return ReaderState(made, self._readers.state(end))

    @decides(c.ForgetReader)
    def forget(self, session: Session, command: c.ForgetReader) -> Reply | Deferred:
        """Delete a reader from both logs.

        This method deletes it from the main log. The journal deletes it from the activity log, and replies later.
        """
        refusal = session.refuse_without(READ_LOG)
        if refusal is not None:
            return refusal
        known = self._readers.forget(command.name)
        if known:
            self._written()
        return Deferred(ForgetReader(command.name, known))

    def _written(self) -> None:
        """Record that this command changed stored state, so that its reply waits for the commit."""
        self._batch.changed = self._batch.dirty = self._batch.outcome.urgent = True


def _refusal(session: Session, log: str) -> Refusal | None:
    refusal = session.refuse_without(READ_LOG)
    if refusal is None and log not in (MAIN, ACTIVITY):
        return Refusal(Code.UNKNOWN_LOG, f"there is no log {log!r}; there are {MAIN} and {ACTIVITY}")
    return refusal
