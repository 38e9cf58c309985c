"""Objectives: who may change them, and which data a change stores in one transaction.

`TRANSITIONS` in the contract lists the allowed changes of status. `RIGHTS` below lists who may make a change. One
transaction stores the changed objective, an entry of its event log, a row of the main log, and one lifecycle message
with its deliveries. If a session takes no part in an objective and has no permission for objectives, it gets the same
refusal as for an unknown id.
"""

from collections.abc import Collection, Sequence
from typing import assert_never

from msgspec import Struct
from msgspec.structs import asdict, replace

from tieline.contract import chain, lifecycle
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.delivery import State
from tieline.contract.event import ObjectiveChanged
from tieline.contract.identifiers import MemberName
from tieline.contract.keys import one_key
from tieline.contract.message import Attachment, Content, check_content
from tieline.contract.permission import OBJECTIVES_CANCEL, OBJECTIVES_CREATE, OBJECTIVES_REASSIGN, OBJECTIVES_WATCH
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import ObjectiveList, ObjectiveState, ObjectiveView, Reply, SeenObjective
from tieline.core import ledger
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory, Session
from tieline.core.outcome import Post
from tieline.core.posting import Posting
from tieline.core.rules import Rules, decides
from tieline.core.store import ObjectiveQuery, ObjectiveRow, Store, StoredState, page

_NOTHING = Content(target=lifecycle.thread_of("none"), body="nothing")
_OVERSIGHT = (OBJECTIVES_CREATE, OBJECTIVES_CANCEL, OBJECTIVES_REASSIGN, OBJECTIVES_WATCH)
"""A session with one of these permissions may see every objective."""
_NO_ACTOR = Refusal(Code.FORBIDDEN, "only a member can make or change an objective: say which one acts")


class Right(Struct, frozen=True):
    """The right to make one kind of change to an objective.

    The assignee, the originator (who created the objective) and members with `permission` may have this right.
    """

    permission: str | None = None
    assignee: bool = False
    originator: bool = False

    def allows(self, session: Session, row: ObjectiveRow) -> bool:
        """True if the session has this right for the objective."""
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
    """Return the names of the changes that a session may make to an objective now, in the order of `RIGHTS`.

    A client offers its user exactly these changes, so the client needs no rules of its own. A change without effect is
    left out.
    """
    if session.account is None:
        return ()
    return tuple(
        str(kind.__struct_config__.tag)
        for kind, right in RIGHTS.items()
        if row.objective.status in o.TRANSITIONS[kind]
        and not (kind is o.Unblock and row.objective.status is o.Status.ACTIVE)
        and right.allows(session, row)
    )


def _seen(row: ObjectiveRow, session: Session) -> SeenObjective:
    """Return the objective for this session, with the changes that the session may make to it."""
    return SeenObjective(**asdict(row.objective), may=rights_of(row, session))


class _Step(Struct, frozen=True):
    """One change of an objective: the objective after the change (`row`), and the entry for its event log."""

    row: ObjectiveRow
    happening: o.AnyHappening
    leaving: int | None = None
    """The number of a member that this change removes from the thread. That member still gets the message about the
    change."""


class Objectives:
    """The open objectives (neither done nor cancelled), in memory. Only the broker changes this object."""

    def __init__(self, stored_state: StoredState, store: Store) -> None:
        self._open = {row.objective.id: row for row in stored_state.objectives}
        self._next_serial = stored_state.next_serial
        self._store = store

    def __len__(self) -> int:
        return len(self._open)

    def find(self, objective_id: str) -> ObjectiveRow | None:
        """Return the objective with this id, open or not; `None` if there is no such objective."""
        known = self._open.get(o.ObjectiveId(objective_id))
        return known or self._store.objectives.find(o.ObjectiveId(objective_id))

    def find_open(self, objective_id: str) -> ObjectiveRow | None:
        """Return the open objective with this id; `None` if it is done, cancelled or unknown."""
        return self._open.get(o.ObjectiveId(objective_id))

    def made_by(self, account: Account) -> int:
        """Return the number of open objectives that a member has created."""
        return sum(row.originator == account.number for row in self._open.values())

    def serial(self) -> int:
        """Return the next serial number, for a new objective. Each call returns another number."""
        self._next_serial += 1
        return self._next_serial - 1

    def keep(self, row: ObjectiveRow) -> None:
        """Store the current state of an objective in memory. If it is done or cancelled, remove it from memory."""
        if row.objective.status in o.TERMINAL:
            self._open.pop(row.objective.id, None)
        else:
            self._open[row.objective.id] = row

    def others_in_thread(self, objective_id: str, sender: Account | None, directory: Directory) -> list[Account] | None:
        """Return all members of an objective's thread except the sender; `None` if the sender is not in the thread."""
        row = self.find(objective_id)
        if row is None or sender is None:
            return None
        members = thread(row, directory)
        return [account for account in members.values() if account is not sender] if sender.number in members else None


def thread(row: ObjectiveRow, directory: Directory) -> dict[int, Account]:
    """Return all members of an objective's thread, by number.

    They are its assignee, its originator, its watchers, and all members who may manage members.
    """
    parties = {number: directory.accounts[number] for number in row.parties if number in directory.accounts}
    return {**parties, **directory.managers}


def unknown(objective_id: str) -> Refusal:
    """Return the refusal for an objective that does not exist, or that the session may not see."""
    return Refusal(Code.UNKNOWN_OBJECTIVE, f"there is no objective {objective_id[:140]!r}")


class ObjectiveRules(Rules):
    """Rules for the commands that create, change and read objectives."""

    def __init__(
        self, batch: Batch, directory: Directory, objectives: Objectives, posting: Posting, deliveries: Deliveries
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._objectives = objectives
        self._posting = posting
        self._deliveries = deliveries

    # Changing.

    @decides(c.CreateObjective)
    def create(self, session: Session, command: c.CreateObjective) -> Reply:
        """Create an objective, assign it to a member, and reply with it."""
        account = session.account
        if account is None:
            return _NO_ACTOR
        refusal = session.refuse_without(OBJECTIVES_CREATE) or self._check_new(command, account)
        if refusal is not None:
            return refusal
        if command.objective_id is not None and self._objectives.find(command.objective_id) is not None:
            return Refusal(Code.INVALID_REQUEST, f"there is an objective {command.objective_id!r} already")
        named = self._find_all((command.assignee, *command.watchers))
        if isinstance(named, Refusal):
            return named
        assignee, *others = named
        watchers = list(dict.fromkeys(other for other in others if other not in (assignee, account)))
        if len(watchers) > self._limits.objective_watchers_max:
            return self._too_many_watchers()
        serial = self._objectives.serial()
        objective = o.Objective(
            id=command.objective_id or o.ObjectiveId(f"obj-{o.base36(self._batch.now_ms)}-{o.base36(serial)}"),
            title=command.title.strip(),
            outcome=command.outcome.strip(),
            body=command.body.strip(),
            assignee=assignee.name,
            originator=account.name,
            watchers=tuple(watcher.name for watcher in watchers),
            created_at_ms=self._batch.now_ms,
            updated_at_ms=self._batch.now_ms,
            attachments=command.attachments,
        )
        row = ObjectiveRow(serial, objective, tuple(party.number for party in (assignee, account, *watchers)))
        assigned = o.Assigned(objective.title, objective.outcome, objective.assignee, objective.watchers)
        watched = [_Step(row, o.WatcherAdded(name)) for name in objective.watchers]
        return self._carry_out(session, [_Step(row, assigned), *watched])

    @decides(c.ChangeObjective)
    def change(self, session: Session, command: c.ChangeObjective) -> Reply:
        """Change an objective, for example block, complete or reassign it. Reply with the changed objective."""
        if session.account is None:
            return _NO_ACTOR
        row = self._visible(session, command.objective_id)
        if isinstance(row, Refusal):
            return row
        right = RIGHTS[type(command.change)]
        if not right.allows(session, row):
            return Refusal(Code.FORBIDDEN, f"only {right} may do this to {command.objective_id}")
        status = o.TRANSITIONS[type(command.change)].get(row.objective.status)
        steps = self._steps(row, status, command.change)
        if isinstance(steps, Refusal):
            return steps
        if status is None:
            return Refusal(
                Code.OBJECTIVE_ENDED, f"{command.objective_id} is {row.objective.status.value} and changes no more"
            )
        return self._carry_out(session, steps) if steps else ObjectiveState(_seen(row, session))

    def _steps(self, row: ObjectiveRow, status: o.Status | None, change: o.AnyChange) -> Sequence[_Step] | Refusal:
        """Return the single steps of a change, or a refusal. `status` is the status after the change.

        The result is empty if the change has no effect.
        """
        refusal = self._check_change(change)
        if refusal is not None:
            return refusal
        before = row.objective
        now = replace(before, status=status or before.status, updated_at_ms=self._batch.now_ms)
        match change:
            case o.Block(reason):
                after = replace(now, block_reason=reason.strip())
                changed = (after.status, after.block_reason) != (before.status, before.block_reason)
                return [_Step(replace(row, objective=after), o.Blocked(reason.strip()))] if changed else ()
            case o.Unblock():
                after = replace(now, block_reason=None)
                return (
                    [_Step(replace(row, objective=after), o.Unblocked())] if after.status is not before.status else ()
                )
            case o.Complete(result):
                after = replace(now, result=result.strip(), completed_at_ms=self._batch.now_ms, block_reason=None)
                return [_Step(replace(row, objective=after), o.Completed(result.strip()))]
            case o.Cancel(reason):
                return [_Step(replace(row, objective=now), o.Cancelled((reason or "").strip() or None))]
            case o.Reassign(to, note):
                return self._reassign(replace(row, objective=now), to, (note or "").strip() or None)
            case o.Watch(add, remove):
                return self._watch(replace(row, objective=now), add, remove)
            case _:
                assert_never(change)

    def _reassign(self, row: ObjectiveRow, to: str, note: str | None) -> Sequence[_Step] | Refusal:
        account = self._directory.find(to)
        if account is None:
            return self._directory.unknown_member(to)
        if account.number == row.assignee:
            return Refusal(Code.INVALID_REQUEST, f"{row.objective.id} is assigned to {to} already")
        before = row.objective.assignee
        after = replace(row.objective, assignee=account.name)
        kept = replace(row, objective=after, parties=(account.number, *row.parties[1:]))
        return [_Step(kept, o.Reassigned(before, account.name, note), leaving=row.assignee)]

    def _watch(self, row: ObjectiveRow, add: Sequence[str], remove: Sequence[str]) -> Sequence[_Step] | Refusal:
        """Return one step for each watcher that is really added or removed, or a refusal."""
        added = self._find_all(add)
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
            # Watchers are removed by name, because a watcher may have been removed as a member.
            if name in row.objective.watchers:
                index = row.objective.watchers.index(name)
                watchers = row.objective.watchers[:index] + row.objective.watchers[index + 1 :]
                leaving = row.parties[2 + index]
                parties = row.parties[: 2 + index] + row.parties[3 + index :]
                row = replace(row, objective=replace(row.objective, watchers=watchers), parties=parties)
                steps.append(_Step(row, o.WatcherRemoved(name), leaving=leaving))
            elif self._directory.find(name) is None:
                return self._directory.unknown_member(name)
        if len(row.objective.watchers) > self._limits.objective_watchers_max:
            return self._too_many_watchers()
        return steps

    def _carry_out(self, session: Session, steps: Sequence[_Step]) -> Reply:
        """Store each step of a change, and send a message about each step to the thread. Return the reply.

        All steps are in one transaction.
        """
        audiences = [_audience(step, self._directory) for step in steps]
        everybody = {number: account for audience in audiences for number, account in audience.items()}
        refusal = self._check_room(everybody.values(), len(steps))
        if refusal is not None:
            return refusal
        for step, audience in zip(steps, audiences, strict=True):
            objective = step.row.objective
            event = o.ObjectiveEvent(
                self._batch.ledger.end, self._batch.now_ms, MemberName(session.speaker), step.happening
            )
            said = ObjectiveChanged(
                id=objective.id,
                kind=o.kind_of(step.happening),
                by=session.speaker,
                status=objective.status.value,
                assignee=objective.assignee,
                digest=chain.seal(
                    ledger.encode_struct(step.happening), b"", objective.id, session.speaker, self._batch.now_ms
                ),
                state=chain.seal(
                    ledger.encode_struct(objective), ledger.encode_numbers(step.row.parties), objective.id
                ),
            )
            self._store.objectives.change(self._batch.ledger.append(said, self._batch.now_ms), step.row, event)
            self._objectives.keep(step.row)
            told = lifecycle.content_of(objective, step.happening, session.speaker)
            self._tell_actor(session, self._posting.post(session, told, audience.values()))
        return ObjectiveState(_seen(steps[-1].row, session))

    def _tell_actor(self, session: Session, post: Post) -> None:
        """Mark a message about a change of an objective as offered to the member who made the change.

        Do this only if the session of this member cannot acknowledge. The reply to its command has the same content as
        the message.
        """
        account = session.account
        assert account is not None, "only a member changes an objective"
        if not session.acknowledges and account.number in post.numbers:
            key = post.keys[post.numbers.index(account.number)]
            self._deliveries.move(account, one_key(key), State.OFFERED, session=session)

    def _find_all(self, names: Sequence[str]) -> list[Account] | Refusal:
        found = []
        for name in names:
            account = self._directory.find(name)
            if account is None:
                return self._directory.unknown_member(name)
            found.append(account)
        return found

    # Reading.

    def _visible(self, session: Session, objective_id: str) -> ObjectiveRow | Refusal:
        """Return the objective with this id, or a refusal if the session may not see it."""
        row = self._objectives.find(objective_id)
        if row is None:
            return unknown(objective_id)
        account = session.account
        insider = account is not None and account.number in thread(row, self._directory)
        return row if insider or any(map(session.may, _OVERSIGHT)) else unknown(objective_id)

    @decides(c.ViewObjective)
    def view(self, session: Session, command: c.ViewObjective) -> Reply:
        """Reply with an objective and a page of its event log."""
        row = self._visible(session, command.objective_id)
        if isinstance(row, Refusal):
            return row
        after = max(-1, min(command.after, self._batch.ledger.end))
        events = self._store.objectives.events(row.serial, after, self._limits.read_max + 1)
        within = events[: self._limits.read_max]
        shown = page(within, lambda event: len(ledger.encode_struct(event.what)), self._limits.page_bytes_max)
        return ObjectiveView(_seen(row, session), tuple(shown), len(shown) == len(events))

    @decides(c.ListObjectives)
    def select(self, session: Session, command: c.ListObjectives) -> Reply:
        """Reply with a page of objectives.

        A session that may create objectives sees all objectives. Any other session sees only the objectives in which
        its member takes part.
        """
        everything = session.may(OBJECTIVES_CREATE)
        if session.account is None and not everything:
            return Refusal(Code.FORBIDDEN, "objectives are for members")
        assignee = self._directory.find(command.assignee) if command.assignee is not None else None
        if command.assignee is not None and assignee is None:
            return self._directory.unknown_member(command.assignee)
        before = self._visible(session, command.before) if command.before is not None else None
        if isinstance(before, Refusal):
            return before
        query = ObjectiveQuery(
            party=None if everything or session.account is None else session.account.number,
            assignee=assignee.number if assignee is not None else None,
            statuses=command.statuses,
            before=before.serial if before is not None else None,
            limit=max(1, min(command.limit, self._limits.read_max)) + 1,
        )
        rows = self._store.objectives.select(query)
        within = rows[: query.limit - 1]
        shown = page(within, lambda row: len(ledger.encode_struct(row.objective)), self._limits.page_bytes_max)
        return ObjectiveList(tuple(_seen(row, session) for row in shown), len(shown) == len(rows))

    # Limits.

    def _check_new(self, command: c.CreateObjective, originator: Account) -> Refusal | None:
        limits = self._limits
        if len(self._objectives) >= limits.objectives_open_max:
            return Refusal(Code.TOO_MANY_OBJECTIVES, f"{limits.objectives_open_max} objectives are open already")
        if self._objectives.made_by(originator) >= limits.member_objectives_max:
            most = limits.member_objectives_max
            return Refusal(Code.TOO_MANY_OBJECTIVES, f"{originator.name} has {most} open objectives already")
        return (
            _check_text("a title", command.title, limits.objective_title_chars_max)
            or _check_text("an outcome", command.outcome, limits.objective_outcome_chars_max)
            or _check_text("a body", command.body, limits.objective_body_chars_max, needed=False)
            or self._check_attachments(command.attachments)
        )

    def _check_change(self, change: o.AnyChange) -> Refusal | None:
        limits = self._limits
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

    def _check_attachments(self, attachments: tuple[Attachment, ...]) -> Refusal | None:
        """Return a refusal if the attachments of an objective exceed a limit; otherwise `None`.

        They have the same limits as the attachments of a message.
        """
        said = replace(_NOTHING, attachments=attachments)
        return check_content(said, self._limits)

    def _check_room(self, accounts: Collection[Account], count: int) -> Refusal | None:
        """Return a refusal if there are too many recipients, or if an inbox has no room for `count` more messages."""
        limits = self._limits
        if len(accounts) > limits.recipients_max:
            return Refusal(Code.TOO_MANY_RECIPIENTS, f"more than {limits.recipients_max} members would hear of it")
        for account in accounts:
            waiting = account.inbox.backlog
            if waiting + count > limits.backlog_max:
                return Refusal(Code.BACKLOG_FULL, f"{account.name} has {waiting} messages waiting")
        return None

    def _too_many_watchers(self) -> Refusal:
        most = self._limits.objective_watchers_max
        return Refusal(Code.INVALID_REQUEST, f"an objective has at most {most} watchers")


def _audience(step: _Step, directory: Directory) -> dict[int, Account]:
    """Return the members who get the message about a step: the thread, and the member who leaves it by this step."""
    audience = thread(step.row, directory)
    if step.leaving in directory.accounts:
        audience[step.leaving] = directory.accounts[step.leaving]
    return audience


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
