"""Objectives: who may do what to them, and what becomes durable together when somebody does.

What may follow what is `TRANSITIONS` in the contract; who may do it is `RIGHTS` here. A change keeps in one
transaction: the objective as it stands now, an entry of its event log, a link of the audit chain, and one lifecycle
message with its deliveries. Whoever has no part in an objective and no permission over objectives gets the answer that
an id gets which never was.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tieline.contract import chain, lifecycle
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.event import ObjectiveChanged
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Attachment, Content, check_content
from tieline.contract.permission import OBJECTIVES_CANCEL, OBJECTIVES_CREATE, OBJECTIVES_REASSIGN, OBJECTIVES_WATCH
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import ObjectiveList, ObjectiveState, ObjectiveView, Reply
from tieline.core import ledger
from tieline.core.directory import Account, Directory, Session
from tieline.core.store import Foundation, ObjectiveQuery, ObjectiveRow, Store, page

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_NOTHING = Content(target=lifecycle.thread_of("none"), body="nothing")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_OVERSIGHT = (OBJECTIVES_CREATE, OBJECTIVES_CANCEL, OBJECTIVES_REASSIGN, OBJECTIVES_WATCH)
"""Whoever has one of these may see every objective."""


class Right(Struct, frozen=True):
    """Who may make a change: those with a part in the objective, or with a permission."""

    permission: str | None = None
    assignee: bool = False
    originator: bool = False

    def holds(self, session: Session, row: ObjectiveRow) -> bool:
        """Whether the session may."""
        if self.permission is not None and session.may(self.permission):
            return True
        number = session.account.number if session.account is not None else None
        return (self.assignee and number == row.assignee) or (self.originator and number == row.originator)

    def __str__(self) -> str:
        parts = ["the assignee"] * self.assignee + ["the originator"] * self.originator
        return " or ".join([*parts, *([f"who has {self.permission}"] if self.permission else [])])


RIGHTS: dict[type[o.Change], Right] = {
    o.Block: Right(OBJECTIVES_CANCEL, assignee=True),
    o.Unblock: Right(OBJECTIVES_CANCEL, assignee=True),
    o.Complete: Right(assignee=True),
    o.Cancel: Right(OBJECTIVES_CANCEL, originator=True),
    o.Reassign: Right(OBJECTIVES_REASSIGN),
    o.Watch: Right(OBJECTIVES_WATCH, originator=True),
}


def rights_of(row: ObjectiveRow, session: Session) -> tuple[str, ...]:
    """The changes that a session may make to an objective now, by name, in the order of `RIGHTS`.

    Clients show what is in it and know no rule themselves. A change that would change nothing is left out.
    """
    if session.account is None:
        return ()
    return tuple(
        str(kind.__struct_config__.tag)
        for kind, right in RIGHTS.items()
        if row.objective.status in o.TRANSITIONS[kind]
        and not (kind is o.Unblock and row.objective.status is o.Status.ACTIVE)
        and right.holds(session, row)
    )


class _Step(Struct, frozen=True):
    """One happening, and the objective after it."""

    row: ObjectiveRow
    happening: o.AnyHappening
    leaving: int | None = None
    """The number of a member that this happening takes out of the thread; it hears of it all the same."""


class Objectives:
    """Those that can still change. Only the broker changes it."""

    def __init__(self, foundation: Foundation, store: Store) -> None:
        self._open = {row.objective.id: row for row in foundation.objectives}
        self._next_serial = foundation.next_serial
        self._store = store

    def __len__(self) -> int:
        return len(self._open)

    def find(self, objective_id: str) -> ObjectiveRow | None:
        """The objective with this id."""
        known = self._open.get(o.ObjectiveId(objective_id))
        return known or self._store.objectives.find(o.ObjectiveId(objective_id))

    def find_open(self, objective_id: str) -> ObjectiveRow | None:
        """The objective with this id, if it can still change."""
        return self._open.get(o.ObjectiveId(objective_id))

    def made_by(self, account: Account) -> int:
        """How many of them a member has made."""
        return sum(row.originator == account.number for row in self._open.values())

    def serial(self) -> int:
        """The number of a new objective."""
        self._next_serial += 1
        return self._next_serial - 1

    def keep(self, row: ObjectiveRow) -> None:
        """Remember an objective as it stands now."""
        if row.objective.status in o.TERMINAL:
            self._open.pop(row.objective.id, None)
        else:
            self._open[row.objective.id] = row

    def others_in_thread(self, objective_id: str, sender: Account | None, directory: Directory) -> list[Account] | None:
        """Who hears what a member says in an objective's thread, or `None` if it has no part in it."""
        row = self.find(objective_id)
        if row is None or sender is None:
            return None
        members = thread(row, directory)
        return [account for account in members.values() if account is not sender] if sender.number in members else None


def thread(row: ObjectiveRow, directory: Directory) -> dict[int, Account]:
    """Everybody in an objective's thread, by number: its parties, and those who manage members."""
    parties = {number: directory.accounts[number] for number in row.parties if number in directory.accounts}
    return {**parties, **directory.managers}


def unknown(objective_id: str) -> Refusal:
    """The refusal for an id that there is not, or that is none of the asker's business."""
    return Refusal(Code.UNKNOWN_OBJECTIVE, f"there is no objective {objective_id[:140]!r}")


def decide(
    broker: "Broker", command: c.CreateObjective | c.ChangeObjective | c.ListObjectives | c.ViewObjective
) -> Reply:
    """Decide a command about objectives."""
    match command:
        case c.CreateObjective():
            return create(broker, command)
        case c.ChangeObjective():
            return change(broker, command)
        case c.ListObjectives():
            return select(broker, command)
        case c.ViewObjective():
            return view(broker, command)
        case _:
            assert_never(command)


# Changing.


def create(broker: "Broker", command: c.CreateObjective) -> Reply:
    """Make an objective and give it to its assignee."""
    actor = _actor(broker, command)
    if isinstance(actor, Refusal):
        return actor
    session, account = actor
    if not session.may(OBJECTIVES_CREATE):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {OBJECTIVES_CREATE}")
    refusal = _check_new(broker, command, session.account)
    if refusal is not None:
        return refusal
    named = _find_all(broker, (command.assignee, *command.watchers))
    if isinstance(named, Refusal):
        return named
    assignee, *others = named
    watchers = list(dict.fromkeys(other for other in others if other not in (assignee, account)))
    if len(watchers) > broker.limits.objective_watchers_max:
        return _too_many_watchers(broker)
    serial = broker.objectives.serial()
    objective = o.Objective(
        id=o.ObjectiveId(f"obj-{_base36(broker.now_ms)}-{_base36(serial)}"),
        title=command.title.strip(),
        outcome=command.outcome.strip(),
        body=command.body.strip(),
        assignee=assignee.name,
        originator=account.name,
        watchers=tuple(watcher.name for watcher in watchers),
        created_at_ms=broker.now_ms,
        updated_at_ms=broker.now_ms,
        attachments=command.attachments,
    )
    row = ObjectiveRow(serial, objective, tuple(party.number for party in (assignee, account, *watchers)))
    assigned = o.Assigned(objective.title, objective.outcome, objective.assignee, objective.watchers)
    watched = [_Step(row, o.WatcherAdded(name)) for name in objective.watchers]
    return _carry_out(broker, session, [_Step(row, assigned), *watched])


def change(broker: "Broker", command: c.ChangeObjective) -> Reply:
    """Do something to an objective."""
    actor = _actor(broker, command)
    if isinstance(actor, Refusal):
        return actor
    session, _ = actor
    row = _visible(broker, session, command.objective_id)
    if isinstance(row, Refusal):
        return row
    right = RIGHTS[type(command.change)]
    if not right.holds(session, row):
        return Refusal(Code.FORBIDDEN, f"only {right} may do this to {command.objective_id}")
    status = o.TRANSITIONS[type(command.change)].get(row.objective.status)
    steps = _steps(broker, row, status, command.change)
    if isinstance(steps, Refusal):
        return steps
    if status is None:
        return Refusal(
            Code.OBJECTIVE_ENDED, f"{command.objective_id} is {row.objective.status.value} and changes no more"
        )
    return _carry_out(broker, session, steps) if steps else ObjectiveState(row.objective)


def _steps(
    broker: "Broker", row: ObjectiveRow, status: o.Status | None, change: o.AnyChange
) -> Sequence[_Step] | Refusal:
    """What a change amounts to; nothing, when all is as it asks for."""
    refusal = _check_change(broker, change)
    if refusal is not None:
        return refusal
    before = row.objective
    now = replace(before, status=status or before.status, updated_at_ms=broker.now_ms)
    match change:
        case o.Block(reason):
            after = replace(now, block_reason=reason.strip())
            changed = (after.status, after.block_reason) != (before.status, before.block_reason)
            return [_Step(replace(row, objective=after), o.Blocked(reason.strip()))] if changed else ()
        case o.Unblock():
            after = replace(now, block_reason=None)
            return [_Step(replace(row, objective=after), o.Unblocked())] if after.status is not before.status else ()
        case o.Complete(result):
            after = replace(now, result=result.strip(), completed_at_ms=broker.now_ms, block_reason=None)
            return [_Step(replace(row, objective=after), o.Completed(result.strip()))]
        case o.Cancel(reason):
            return [_Step(replace(row, objective=now), o.Cancelled((reason or "").strip() or None))]
        case o.Reassign(to, note):
            return _reassign(broker, replace(row, objective=now), to, (note or "").strip() or None)
        case o.Watch(add, remove):
            return _watch(broker, replace(row, objective=now), add, remove)
        case _:
            assert_never(change)


def _reassign(broker: "Broker", row: ObjectiveRow, to: str, note: str | None) -> Sequence[_Step] | Refusal:
    account = broker.directory.find(to)
    if account is None:
        return broker.directory.unknown_member(to)
    if account.number == row.assignee:
        return Refusal(Code.INVALID_REQUEST, f"{row.objective.id} is assigned to {to} already")
    before = row.objective.assignee
    after = replace(row.objective, assignee=account.name)
    kept = replace(row, objective=after, parties=(account.number, *row.parties[1:]))
    return [_Step(kept, o.Reassigned(before, account.name, note), leaving=row.assignee)]


def _watch(broker: "Broker", row: ObjectiveRow, add: Sequence[str], remove: Sequence[str]) -> Sequence[_Step] | Refusal:
    """One step for each name that makes a difference."""
    added = _find_all(broker, add)
    if isinstance(added, Refusal):
        return added
    steps: list[_Step] = []
    for account in added:
        if account.number not in row.parties:
            watchers = (*row.objective.watchers, account.name)
            parties = (*row.parties, account.number)
            row = replace(row, objective=replace(row.objective, watchers=watchers), parties=parties)
            steps.append(_Step(row, o.WatcherAdded(account.name)))
    for name in remove:
        # By name, because a watcher may be no member any more.
        if name in row.objective.watchers:
            index = row.objective.watchers.index(name)
            watchers = row.objective.watchers[:index] + row.objective.watchers[index + 1 :]
            leaving = row.parties[2 + index]
            parties = row.parties[: 2 + index] + row.parties[3 + index :]
            row = replace(row, objective=replace(row.objective, watchers=watchers), parties=parties)
            steps.append(_Step(row, o.WatcherRemoved(name), leaving=leaving))
        elif broker.directory.find(name) is None:
            return broker.directory.unknown_member(name)
    if len(row.objective.watchers) > broker.limits.objective_watchers_max:
        return _too_many_watchers(broker)
    return steps


def _carry_out(broker: "Broker", session: Session, steps: Sequence[_Step]) -> Reply:
    """Keep each step and tell of it; all of them are in the same transaction."""
    audiences = [_audience(step, broker.directory) for step in steps]
    everybody = {number: account for audience in audiences for number, account in audience.items()}
    refusal = _check_room(broker, everybody.values(), len(steps))
    if refusal is not None:
        return refusal
    for step, audience in zip(steps, audiences, strict=True):
        objective = step.row.objective
        event = o.ObjectiveEvent(broker.ledger.end, broker.now_ms, MemberName(session.speaker), step.happening)
        said = ObjectiveChanged(
            objective.id,
            o.kind_of(step.happening),
            session.speaker,
            objective.status.value,
            objective.assignee,
            chain.seal(ledger.encode_struct(step.happening), b"", objective.id, session.speaker, broker.now_ms),
            chain.seal(ledger.encode_struct(objective), ledger.encode_numbers(step.row.parties), objective.id),
        )
        broker.store.objectives.change(broker.ledger.append(said, broker.now_ms), step.row, event)
        broker.objectives.keep(step.row)
        told = lifecycle.content_of(objective, step.happening, session.speaker)
        broker.post(session, told, audience.values())
    return ObjectiveState(steps[-1].row.objective)


def _audience(step: _Step, directory: Directory) -> dict[int, Account]:
    """Who hears of a step: its thread, and who leaves it by this."""
    audience = thread(step.row, directory)
    if step.leaving in directory.accounts:
        audience[step.leaving] = directory.accounts[step.leaving]
    return audience


def _actor(broker: "Broker", command: c.CreateObjective | c.ChangeObjective) -> tuple[Session, Account] | Refusal:
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if session.account is None:
        return Refusal(Code.FORBIDDEN, "only a member can make or change an objective: say which one acts")
    return session, session.account


def _find_all(broker: "Broker", names: Sequence[str]) -> list[Account] | Refusal:
    found = []
    for name in names:
        account = broker.directory.find(name)
        if account is None:
            return broker.directory.unknown_member(name)
        found.append(account)
    return found


# Reading.


def _visible(broker: "Broker", session: Session, objective_id: str) -> ObjectiveRow | Refusal:
    """An objective, if the session may know of it."""
    row = broker.objectives.find(objective_id)
    if row is None:
        return unknown(objective_id)
    account = session.account
    insider = account is not None and account.number in thread(row, broker.directory)
    return row if insider or any(map(session.may, _OVERSIGHT)) else unknown(objective_id)


def view(broker: "Broker", command: c.ViewObjective) -> Reply:
    """An objective with its event log."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    row = _visible(broker, session, command.objective_id)
    if isinstance(row, Refusal):
        return row
    after = max(-1, min(command.after, broker.ledger.end))
    events = broker.store.objectives.events(row.serial, after, broker.limits.read_max + 1)
    within = events[: broker.limits.read_max]
    shown = page(within, lambda event: len(ledger.encode_struct(event.what)), broker.limits.page_bytes_max)
    return ObjectiveView(row.objective, tuple(shown), len(shown) == len(events))


def select(broker: "Broker", command: c.ListObjectives) -> Reply:
    """All objectives for who may create them; else those that the member has a part in."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    everything = session.may(OBJECTIVES_CREATE)
    if session.account is None and not everything:
        return Refusal(Code.FORBIDDEN, "objectives are for members")
    assignee = broker.directory.find(command.assignee) if command.assignee is not None else None
    if command.assignee is not None and assignee is None:
        return broker.directory.unknown_member(command.assignee)
    before = _visible(broker, session, command.before) if command.before is not None else None
    if isinstance(before, Refusal):
        return before
    query = ObjectiveQuery(
        party=None if everything or session.account is None else session.account.number,
        assignee=assignee.number if assignee is not None else None,
        statuses=command.statuses,
        before=before.serial if before is not None else None,
        limit=max(1, min(command.limit, broker.limits.read_max)) + 1,
    )
    rows = [row.objective for row in broker.store.objectives.select(query)]
    shown = page(rows[: query.limit - 1], lambda row: len(ledger.encode_struct(row)), broker.limits.page_bytes_max)
    return ObjectiveList(tuple(shown), len(shown) == len(rows))


# Limits.


def _check_new(broker: "Broker", command: c.CreateObjective, originator: Account | None) -> Refusal | None:
    limits = broker.limits
    if len(broker.objectives) >= limits.objectives_open_max:
        return Refusal(Code.TOO_MANY_OBJECTIVES, f"{limits.objectives_open_max} objectives are open already")
    if originator is not None and broker.objectives.made_by(originator) >= limits.member_objectives_max:
        most = limits.member_objectives_max
        return Refusal(Code.TOO_MANY_OBJECTIVES, f"{originator.name} has {most} open objectives already")
    return (
        _check_text("a title", command.title, limits.objective_title_chars_max)
        or _check_text("an outcome", command.outcome, limits.objective_outcome_chars_max)
        or _check_text("a body", command.body, limits.objective_body_chars_max, needed=False)
        or _check_attachments(broker, command.attachments)
    )


def _check_change(broker: "Broker", change: o.AnyChange) -> Refusal | None:
    limits = broker.limits
    match change:
        case o.Block(reason):
            return _check_text("a reason", reason, limits.objective_reason_chars_max)
        case o.Complete(result):
            return _check_text("a result", result, limits.objective_result_chars_max)
        case o.Cancel(reason):
            return _check_text("a reason", reason or "", limits.objective_reason_chars_max, needed=False)
        case o.Reassign(_, note):
            return _check_text("a note", note or "", limits.objective_reason_chars_max, needed=False)
        case o.Unblock() | o.Watch():
            return None
        case _:
            assert_never(change)


def _check_text(what: str, text: str, chars_max: int, *, needed: bool = True) -> Refusal | None:
    if needed and not text.strip():
        return Refusal(Code.INVALID_REQUEST, f"{what} is needed: say something")
    if len(text) > chars_max:
        return Refusal(Code.INVALID_REQUEST, f"{what} has at most {chars_max} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Refusal(Code.INVALID_REQUEST, f"{what} holds half a surrogate pair, which no wire can carry")
    return None


def _check_attachments(broker: "Broker", attachments: tuple[Attachment, ...]) -> Refusal | None:
    """By the rule for attachments of any message."""
    said = replace(_NOTHING, attachments=attachments)
    return check_content(said, broker.limits)


def _check_room(broker: "Broker", accounts: Collection[Account], count: int) -> Refusal | None:
    """By the rules for recipients of any message."""
    limits = broker.limits
    if len(accounts) > limits.recipients_max:
        return Refusal(Code.TOO_MANY_RECIPIENTS, f"more than {limits.recipients_max} members would hear of it")
    for account in accounts:
        waiting = account.inbox.backlog
        if waiting + count > limits.backlog_max:
            return Refusal(Code.BACKLOG_FULL, f"{account.name} has {waiting} messages waiting")
    return None


def _too_many_watchers(broker: "Broker") -> Refusal:
    most = broker.limits.objective_watchers_max
    return Refusal(Code.INVALID_REQUEST, f"an objective has at most {most} watchers")


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
