"""The audit: checks the stored event log (the main log) from outside, without using any state of the broker.

Integrity: offsets have no gaps, and every hash matches the previous hash, the time and the event of its row. Older
versions of the hub wrote hashes that do not cover the time. The report has the offset of the first row whose hash
covers the time.

Completeness: every message has a `send` row with the hash of the stored message, or a later `redact` row with this
hash. For every stored status change of a delivery (a step), the log has the row that made it. For every delivery that a
snapshot shows as settled, the log has the row that settled it. Every objective, and every entry of its event log, has a
row in the main log. Every row about an objective has an entry in the event log of the objective.

The audit reads in log order, so it never holds the whole log in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import MsgspecError, Struct

from tieline.contract import chain
from tieline.contract.chain import Link
from tieline.contract.delivery import SETTLED, State
from tieline.contract.event import AnyEvent, LogRow, Moved, ObjectiveChanged, Redacted, Sent
from tieline.core import ledger
from tieline.core.checkpoints import Checkpoint
from tieline.core.inbox import Image
from tieline.core.ladder import STATES

FINDINGS_MAX = 100
"""Largest number of findings in one report. One broken row can cause many findings, and a longer list helps nobody."""


class StoredMessage(Struct, frozen=True):
    """Record of a stored message, with the fields that the audit checks."""

    offset: int
    id: str
    sender: str
    target: str
    protocol: str
    verified: int
    sent_at_ms: int
    route: bytes
    content: bytes
    signature: str = ""
    wire_id: str | None = None

    def seal(self) -> str:
        """Return the hash of the stored message. The `Sent` event of the message must have the same hash."""
        stamps = (self.id, self.sender, self.protocol, self.verified, self.sent_at_ms)
        return chain.seal_stored(self.content, self.route, stamps, self.signature, self.wire_id)


class StoredStep(Struct, frozen=True):
    """Record of a stored status change of one member's deliveries.

    `number` is the member's number. The deliveries with the keys `first` to `last` changed. `offset` is the offset of
    the log row that made the change.
    """

    offset: int
    number: int
    state: int
    first: int
    last: int


class StoredObjective(Struct, frozen=True):
    """Record of the stored state of an objective. `offset` is the log offset of its last change."""

    offset: int
    id: str
    status: str
    parties: bytes
    content: bytes


class StoredObjectiveEvent(Struct, frozen=True):
    """Record of a stored entry of an objective's event log.

    `offset` is the offset of the main log row about the same change.
    """

    offset: int
    id: str
    at_ms: int
    actor: str
    event: bytes


class Inspection(Protocol):
    """Interface to read a hub's store for the audit.

    All methods read the same state, even if the hub writes at the same time.
    """

    def objectives(self) -> Iterator[StoredObjective]:
        """Yield all objectives, ordered by the log offset of their last change."""

    def objective_events(self) -> Iterator[StoredObjectiveEvent]:
        """Yield the entries of the event logs of all objectives, ordered by log offset."""

    def rows(self) -> Iterator[LogRow]:
        """Yield all rows of the main log, ordered by offset."""

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all stored messages, ordered by log offset."""

    def steps(self) -> Iterator[StoredStep]:
        """Yield all stored status changes of deliveries, ordered by the offset of the log row that made them."""

    def images(self) -> Iterable[tuple[int, Image]]:
        """Return pairs of a member's number and its inbox, as saved in the last snapshot."""

    def snapshot_end(self) -> int:
        """Return the offset of the first log row that the last snapshot does not include."""

    def members(self) -> Iterator[tuple[int, str, int]]:
        """Yield number, name and creation time of every member, including removed members."""

    def close(self) -> None:
        """Close the store."""


class AuditFinding(Struct, frozen=True):
    """One fault that the audit found: the offset of the log row, and a sentence that says what is wrong."""

    offset: int
    """The offset of the log row with the fault."""
    what: str


class AuditReport(Struct, frozen=True):
    """Result of an audit: the numbers of log rows and messages that were checked, and the faults."""

    rows: int
    messages: int
    head: str
    """Hash of the last row. With a copy of this hash elsewhere, you can detect later that rows at the end were
    removed."""
    findings: tuple[AuditFinding, ...]
    times_from: int = 0
    """From this offset on, the hashes also cover the times of the rows. The hashes of earlier rows cover only the
    events."""

    @property
    def intact(self) -> bool:
        """True if the audit found no fault."""
        return not self.findings


class _Ranges:
    """The settled deliveries (acked, expired or dead) of one member according to the log, as ranges of keys."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def add(self, first: int, last: int) -> None:
        self._ends[first] = max(last, self._ends.get(first, last))

    def gaps(self, first: int, last: int) -> Iterator[int]:
        """Yield the first key of each gap. A gap is a run of keys from `first` to `last` that are in no range."""
        at = first
        for start, end in sorted(self._ends.items()):
            if start > last:
                break
            if start > at:
                yield at
            at = max(at, end + 1)
        if at <= last:
            yield at


class _Audit:
    def __init__(self, inspection: Inspection) -> None:
        self.findings: list[AuditFinding] = []
        self.message_count = 0
        self._messages = inspection.messages()
        self._steps = inspection.steps()
        self._objectives = inspection.objectives()
        self._objective_events = inspection.objective_events()
        self._message = next(self._messages, None)
        self._step = next(self._steps, None)
        self._objective = next(self._objectives, None)
        self._objective_event = next(self._objective_events, None)
        self._settled: dict[int, _Ranges] = {}
        # Messages that are not stored as they were sent, by offset, with the hash of what is stored. A later row may
        # say that they were redacted.
        self._changed: dict[int, tuple[str, str]] = {}

    def find(self, offset: int, what: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(AuditFinding(offset, what))

    def look_at(self, row: LogRow) -> None:
        """Compare a log row with the messages, status changes and objectives that are stored beside the log.

        Add each fault to `findings`.
        """
        try:
            event = ledger.decode_event(row.event)
        except MsgspecError as error:
            self.find(row.offset, f"row {row.offset} is no event: {error}")
            return
        if isinstance(event, Moved) and event.at_ms not in (0, row.at_ms):
            self.find(row.offset, f"row {row.offset} says another time than its event")
        if isinstance(event, Moved) and STATES[type(event)] in SETTLED:
            ranges = self._settled.setdefault(event.number, _Ranges())
            for first, last in event.keys:
                ranges.add(first, last)
        self._match_messages(row.offset, event)
        self._match_steps(row.offset, event)
        self._match_objective_events(row, event)
        self._match_objectives(row.offset, event)

    def _match_messages(self, offset: int, event: AnyEvent) -> None:
        while self._message is not None and self._message.offset <= offset:
            message = self._message
            self.message_count += 1
            if message.offset < offset or not isinstance(event, Sent) or event.id != message.id:
                self.find(message.offset, f"message {message.id} has no send row at {message.offset}")
            elif event.target != message.target:
                self._not_as_sent(offset, message.id)
            elif event.digest != (seal := message.seal()):
                self._changed[offset] = (message.id, seal)
            self._message = next(self._messages, None)
        if isinstance(event, Redacted) and self._changed.get(event.offset) == (event.id, event.digest):
            del self._changed[event.offset]

    def _not_as_sent(self, offset: int, message_id: str) -> None:
        self.find(offset, f"what is stored of message {message_id} is not what row {offset} says was sent")

    def _match_steps(self, offset: int, event: AnyEvent) -> None:
        while self._step is not None and self._step.offset <= offset:
            step = self._step
            made = (
                step.offset == offset
                and isinstance(event, Moved)
                and event.number == step.number
                and STATES[type(event)] == step.state
                and (step.first, step.last) in event.keys
            )
            if not made:
                keys = f"deliveries {step.first} to {step.last} of member number {step.number}"
                self.find(step.offset, f"{keys} have no {State(step.state).word} row at {step.offset}")
            self._step = next(self._steps, None)

    def _match_objective_events(self, row: LogRow, event: AnyEvent) -> None:
        told = False
        while self._objective_event is not None and self._objective_event.offset <= row.offset:
            entry = self._objective_event
            digest = chain.seal(entry.event, b"", entry.id, entry.actor, entry.at_ms)
            told = entry.offset == row.offset and isinstance(event, ObjectiveChanged) and event.digest == digest
            if not told:
                self.find(entry.offset, f"the event log of {entry.id} is not what row {entry.offset} says happened")
            self._objective_event = next(self._objective_events, None)
        if isinstance(event, ObjectiveChanged) and not told:
            self.find(row.offset, f"row {row.offset} says that {event.id} changed, and its event log does not")

    def _match_objectives(self, offset: int, event: AnyEvent) -> None:
        while self._objective is not None and self._objective.offset <= offset:
            objective = self._objective
            state = chain.seal(objective.content, objective.parties, objective.id)
            said = event if objective.offset == offset and isinstance(event, ObjectiveChanged) else None
            if said is None or (said.state, said.status) != (state, objective.status):
                self.find(objective.offset, f"objective {objective.id} is not as row {objective.offset} left it")
            self._objective = next(self._objectives, None)

    def finish(self, inspection: Inspection, end: int) -> None:
        """Add findings for stored items without a row in the log, and for faults in the snapshot.

        `end` is the offset after the last log row.
        """
        for offset, (message_id, _) in self._changed.items():
            self._not_as_sent(offset, message_id)
        self.findings.sort(key=lambda finding: finding.offset)
        while self._message is not None:
            self.message_count += 1
            self.find(self._message.offset, f"message {self._message.id} has no send row: the log ends at {end}")
            self._message = next(self._messages, None)
        while self._step is not None:
            self.find(self._step.offset, f"a step points at row {self._step.offset}: the log ends at {end}")
            self._step = next(self._steps, None)
        while self._objective_event is not None:
            self.find(end, f"the event log of {self._objective_event.id} goes on after the log's end at {end}")
            self._objective_event = next(self._objective_events, None)
        while self._objective is not None:
            self.find(end, f"objective {self._objective.id} has no row: the log ends at {end}")
            self._objective = next(self._objectives, None)
        if inspection.snapshot_end() > end:
            self.find(end, f"the snapshot is of row {inspection.snapshot_end()}, but the log ends at {end}")
        for number, image in inspection.images():
            ranges = self._settled.get(number, _Ranges())
            for key in ranges.gaps(1, image.base - 1):
                self.find(end, f"delivery {key} of member number {number} is settled, but no row says so")
            for index, rung in enumerate(image.rungs):
                key = image.base + index
                if rung >> 1 > max(State):
                    self.find(end, f"delivery {key} of member number {number} has no state that there is")
                elif State(rung >> 1) in SETTLED and any(ranges.gaps(key, key)):
                    self.find(end, f"delivery {key} of member number {number} is settled, but no row says so")


def verify(inspection: Inspection, checkpoints: Sequence[Checkpoint] = ()) -> AuditReport:
    """Check the whole log and the data stored beside it. Return a report with the faults.

    `checkpoints` are signed records of the length that the log had at earlier times. They show if the end of the log
    was removed.
    """
    audit = _Audit(inspection)
    heads = {checkpoint.rows: checkpoint.head for checkpoint in checkpoints}
    head, end, times_from = chain.GENESIS, 0, 0
    before: Link | None = None
    for row in inspection.rows():
        link = chain.check_link(bytes.fromhex(head), row.at_ms, row.event, bytes.fromhex(row.hash))
        if row.offset != end:
            audit.find(end, f"row {end} is missing: after it comes row {row.offset}")
        elif link is Link.BROKEN:
            what = f"row {row.offset} was changed: its hash does not follow from its time, its event and the row before"
            audit.find(row.offset, what)
        elif not chain.follows(before, link):
            audit.find(row.offset, f"row {row.offset} was changed: its hash does not cover its time, as rows before do")
        audit.look_at(row)
        head, end, before = row.hash, row.offset + 1, link
        if link is Link.UNTIMED:
            times_from = end
        if heads.pop(end, head) != head:
            audit.find(row.offset, f"row {row.offset} is not the one that was there when a checkpoint was made of it")
    for rows in heads:
        if rows > 0:
            audit.find(end, f"the log is cut off: it ends at row {end}, and had {rows} rows at a checkpoint")
    audit.finish(inspection, end)
    return AuditReport(end, audit.message_count, head, tuple(audit.findings), times_from)
