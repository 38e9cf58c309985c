"""The documents that commands print with `--json`, where no other part of Tieline has a type for them.

Used by: the commands, and `shapes`, which makes a JSON Schema of all types. Uses: the types of the hub's own protocol.
Some documents only add fields to another type, or leave some out. They are derived from that type, so that they change
with it. A command imports this module only when it prints JSON.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, defstruct, field, structs

from tieline.cli.doctor_canary import RoundTrip
from tieline.cli.doctor_finding import Grade
from tieline.core.audit import AuditReport
from tieline.pipeline.verify_report import VerifyReport
from tieline.server.config_origin import Setting
from tieline.wire.native.frames import (
    Accepted,
    Issued,
    Message,
    ObjectiveEventView,
    ObjectiveView,
    Readers,
    ReceiptView,
    Welcome,
)

_S = TypeVar("_S", bound=Struct)
_Fields = Iterable[tuple[str, Any] | tuple[str, Any, Any]]

OPTIONAL: Any = UNSET
"""Default of a field that a document has only in some cases."""


def derive(
    kind: type[Struct], name: str, about: str, *, without: Sequence[str] = (), first: _Fields = (), last: _Fields = ()
) -> type[Struct]:
    """Return a type with the name `name` and the fields of `kind`, except the fields in `without`.

    The fields in `first` and `last` are added before and after them. `about` is the docstring of the type.
    """
    make: Any = field  # it takes either default; its types know only one at a time
    kept = [
        (one.name, one.type, make(default=one.default, default_factory=one.default_factory, name=one.encode_name))
        for one in structs.fields(kind)
        if one.name not in without
    ]
    return defstruct(
        name,
        [*first, *kept, *last],
        namespace={"__doc__": about},
        module=__name__,
        frozen=True,
        kw_only=True,
        omit_defaults=kind.__struct_config__.omit_defaults,
    )


def fill(kind: type[_S], value: object, **more: Any) -> _S:
    """Return a document of type `kind` with the fields of `value`. `more` has the fields that `value` lacks."""
    kept = {name: getattr(value, name) for name in kind.__struct_fields__ if name not in more and hasattr(value, name)}
    return kind(**kept, **more)


# Messages.

Sent = derive(
    Accepted,
    "Sent",
    "A message that the hub accepted. With `--wait-for`, `receipts` are those at the end of the wait.",
    without=("n",),
    last=(("receipts", tuple[ReceiptView, ...] | UnsetType, OPTIONAL),),
)


class Arrived(Struct, frozen=True):
    """A delivery that `watch` shows, with its key and its place in its stream."""

    key: int
    seq: int
    message: Message


class Erased(Struct, frozen=True):
    """A redacted message. `removed` are backups that were removed for it.

    `left` are files that still have its content, and backups that may have it.
    """

    id: str
    by: str
    at_ms: int
    again: bool
    removed: list[str]
    left: list[str]


class Resumed(Struct, frozen=True):
    """A conversation after `resume`: if it was paused before (`paused`), and how many messages are delivered now."""

    thread: str
    paused: bool
    released: int


class Allowed(Struct, frozen=True):
    """A conversation without limits until `until_ms`, and the number of messages that are delivered now."""

    thread: str
    until_ms: int | None
    released: int


# Agents.


class PlannedFile(Struct, frozen=True):
    """A planned change of a settings file. `changed` is true if the change is needed; `diff` has its lines."""

    path: str
    changed: bool
    diff: list[str]


class ConnectedProgram(Struct, kw_only=True):
    """Result of connecting an agent program. `applied` is false if nothing was changed.

    `proved`, `not_proved` and `problems` are sentences about the test of the connection. `next` are commands that start
    the program and write to it.
    """

    program: str
    member: str
    new_member: bool
    hub: str
    files: list[PlannedFile]
    applied: bool = False
    proved: list[str] = []
    not_proved: list[str] = []
    problems: list[str] = []
    advice: str
    next: list[str] = []


class Connected(Struct, frozen=True):
    """The programs that `connect` connected, or would connect with `--yes`."""

    programs: list[ConnectedProgram]


class RestoredFile(Struct, frozen=True):
    """A settings file that is as it was before. `exact` is false if somebody else had changed it meanwhile."""

    path: str
    exact: bool


class DisconnectedProgram(Struct, frozen=True):
    """Result of disconnecting an agent program. `applied` is false if the change was only shown."""

    program: str
    files: list[RestoredFile]
    applied: bool


# Team.

NewToken = derive(Issued, "NewToken", "A member and its new token, which is shown only once.", without=("n",))
Speaker = derive(
    Welcome,
    "Speaker",
    "The session of this command: its member (`null` for the operator), its limits, and the hub.",
    last=(("hub", str),),
)


class RemovedMember(Struct, frozen=True):
    """A member that was removed. `room_token_works` is true if the room token, which it may know, is still valid.

    `room_token` is the new one, if the old one was replaced. `open_objectives` has the ids of the objectives that are
    still assigned to the member.
    """

    member: str
    removed: bool
    room_token_works: bool
    open_objectives: list[str]
    room_token: str | UnsetType = UNSET


class Subscription(Struct, frozen=True):
    """A member and a channel. `subscribed` is true if the member is in the channel now."""

    member: str
    channel: str
    subscribed: bool


class ObjectiveHistory(Struct, frozen=True):
    """An objective with all entries of its event log, the oldest first."""

    objective: ObjectiveView
    events: list[ObjectiveEventView]


# Operating.


class LoginLink(Struct, frozen=True):
    """A link that logs a member in to the console, once, before `expires_at_ms`."""

    member: str
    url: str
    expires_at_ms: int


class RestoredHome(Struct, frozen=True):
    """A home that was made from a backup: the time of the backup, and the rows and messages in it."""

    home: str
    at_ms: int
    rows: int
    messages: int


class Fault(Struct, frozen=True, kw_only=True):
    """A fault in the hub (with `why`), or in data beside the hub, which the doctor may be able to repair."""

    about: str
    fault: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    what: str
    why: str | UnsetType = UNSET
    repairable: bool | UnsetType = UNSET
    repaired: bool | UnsetType = UNSET
    do: str


class CheckResult(Struct, frozen=True):
    """A check of the doctor: `grade` is `ok`, `note` or `wrong`."""

    about: str
    grade: Grade
    what: str


class Examination(Struct, frozen=True, kw_only=True):
    """Faults that the doctor found, all its checks, and with `--canary` the test messages."""

    findings: list[Fault]
    checks: list[CheckResult]
    canary: list[RoundTrip] | UnsetType = UNSET


class ShownSettings(Struct, frozen=True):
    """The settings of the running hub, or those of the next start, with the path of `tieline.toml`."""

    running: bool
    file: str
    settings: tuple[Setting, ...]


LogReaders = derive(Readers, "LogReaders", "The logs of a hub, and their readers.", without=("n",))


AuditVerdict = derive(
    AuditReport,
    "AuditVerdict",
    "Result of an audit: if the chain is intact, what was checked, and the faults.",
    first=(("intact", bool),),
)


# The pipeline.


class PipelineRun(Struct, frozen=True):
    """Result of one run of the pipeline.

    `missed` is only there if the hub deleted rows before the pipeline read them, and `erased` only if quotes of
    redacted messages were erased.
    """

    events_read: int
    batches: int
    tables: dict[str, int]
    seconds: float
    missed: dict[str, int] | UnsetType = UNSET
    erased: int | UnsetType = UNSET


class LakeTable(Struct, frozen=True):
    """A table of a lake: the numbers of its rows and files, and the version of the Delta table."""

    rows: int
    files: int
    version: int


class LakeReader(Struct, frozen=True):
    """A lake as a reader of the logs. `share` says how much of the limits for its unread rows is used up."""

    name: str
    wait_ms: int
    wait_bytes: int
    share: float


class LakeState(Struct, frozen=True):
    """The newest commit of a lake: its tables, and the number of log rows that are not in the lake yet (`waiting`).

    Without a hub, `waiting` is `null`. `reader` is `null` if the hub does not know the lake yet. `changed` is `null` if
    the lake was made from this hub's log; otherwise it is a sentence that says why the log must be another one.
    """

    lake: str
    commit: int
    at_ms: int
    position: dict[str, int]
    engine: str
    waiting: int | None
    missed: dict[str, int]
    counts: dict[str, int]
    tables: dict[str, LakeTable]
    reader: LakeReader | None
    changed: str | None


class RebuiltTables(Struct, frozen=True):
    """The rows of each table, after all were rebuilt."""

    tables: dict[str, int]


class RebuiltTable(Struct, frozen=True):
    """The rows of one table, after it was rebuilt."""

    table: str
    rows: int


class Rewound(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """Result of `pipeline rewind`: the positions of a lake in the logs, before the command and after it."""

    before: dict[str, int]
    after: dict[str, int]


class TableColumn(Struct, frozen=True):
    """A column of a table of the pipeline."""

    column: str
    type: str
    meaning: str


class TableState(Struct, frozen=True, rename={"sources": "from"}):
    """A table of the pipeline. `tested_commit` is the newest commit for which the table passed its tests.

    If a test failed, `failed` names it, and `tested_commit` is `null`.
    """

    table: str
    about: str
    sources: list[str]
    keys: list[str]
    rows: int
    newest_day: str | None
    changed_ms: int | None
    tests: list[str]
    columns: list[TableColumn]
    tested_commit: int | None
    failed: str | None


LogVerdict = derive(
    VerifyReport,
    "LogVerdict",
    "Result of an audit on Spark: if the chain is intact, what was checked, and the faults.",
    first=(("intact", bool),),
)


# Failures.


class Problem(Struct, frozen=True):
    """The reason why a command failed. `code` is the code of a refusal, or another word for programs."""

    exit: int
    code: str | None
    message: str
    hint: str


class Failed(Struct, frozen=True):
    """The last line of stderr, if a command with `--json` has another exit code than 0."""

    error: Problem
