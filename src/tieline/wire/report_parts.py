"""The parts of the report, as types.

Used by: `report`, which fills them in, its HTML page, alerts, and the build of the console, which generates its own
types from these types. Uses: nothing. The module needs no Arrow and no Spark, so that the types also work on a machine
without the pipeline.
"""

from typing import Any

from msgspec import Struct

CHECKS_FILE = "checks.json"
"""Path of the results of the tests of the tables, relative to the lake."""


class Totals(Struct):
    """Part of the report: sums over all members."""

    messages: int = 0
    deliveries: int = 0
    acked: int = 0
    expired: int = 0
    activity: int = 0
    dead: int = 0
    late: int = 0
    """State changes of deliveries that came more than a day after the message. The other sums include these changes."""
    waiting: int = 0
    """Deliveries that are not handled yet."""
    cost_usd: float = 0.0
    refused: int = 0
    """Commands that the hub refused."""
    exchanges: int = 0
    """Model calls."""
    failed_calls: int = 0
    retried_calls: int = 0
    """Failed model calls after which the member called the same model again within five minutes."""
    cache_hit: float | None = None
    """Share of the input tokens that came from a model's cache. `None` without model calls."""
    loop_cost_usd: float = 0.0
    """Cost of the model calls that members of loops made while the loops lasted."""
    first_response_p50_ms: int | None = None
    """Median time from a message to the first answer of another member. `None` if no message was answered."""


class Edge(Struct, rename={"sender": "from", "recipient": "to"}):
    """Row of the report: number of messages from one member to another.

    `answers` counts the sender's replies to the recipient.
    """

    sender: str
    recipient: str
    messages: int
    answers: int = 0
    response_p50_ms: int | None = None


class Latency(Struct):
    """Row of the report: time from sending until a member's deliveries on a protocol were acknowledged.

    If no delivery was acknowledged, it is the time until the deliveries were offered (sent on the wire).
    """

    member: str
    protocol: str
    p50_ms: int
    p99_ms: int
    deliveries: int
    measured: str
    """The state until which the time was measured: `acked` or `offered`."""


class ServiceLevel(Struct):
    """Row of the report: how many deliveries of one priority a member acknowledged, and how fast.

    `expired` and `dead` are the numbers of deliveries that were lost.
    """

    member: str
    priority: str
    acked: int
    p50_ms: int | None
    p99_ms: int | None
    within_minute: float | None
    """Share of the acknowledged deliveries that were acknowledged within a minute. `None` if there are none."""
    expired: int
    dead: int


class Response(Struct):
    """Row of the report: how often a member was the first to answer another member's message, and how fast."""

    member: str
    answers: int
    p50_ms: int
    p99_ms: int


class Failure(Struct):
    """Row of the report: failures of one kind and cause at one member, now and in the time span before.

    The kinds are `expired` and `dead` (deliveries), `refused` (commands) and `call` (model calls).
    """

    kind: str
    cause: str
    member: str
    count: int
    before: int | None = None
    """The number in the time span before. `None` if the report compares nothing."""


class LatencyPoint(Struct):
    """Point of a time series: latency of all deliveries acknowledged in the interval that begins at `at_ms`."""

    at_ms: int
    acked: int
    p50_ms: int
    p99_ms: int


class BacklogPoint(Struct):
    """Point of a time series: how many deliveries waited at the end of an interval, and arrived and left during it.

    `at_ms` is the start of the interval.
    """

    at_ms: int
    waiting: int
    arrived: int
    departed: int


class Backlog(Struct):
    """Row of the report: the deliveries of one member. Number that wait now, that ever arrived, and that ever left."""

    member: str
    waiting: int
    arrived: int
    departed: int


class Objective(Struct):
    """Row of the report: status, duration and cost of an objective."""

    id: str
    title: str | None
    assignee: str | None
    status: str | None
    created_ms: int | None
    finished_ms: int | None
    cycle_ms: int | None
    blocked_ms: int | None
    blocked_since_ms: int | None
    exchanges: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    blocked: list[tuple[int, int | None]] = []
    """Start and end of each time in which the objective was blocked. The end is `None` while the objective is blocked.
    """


class Wait(Struct):
    """Row of the report: an objective that is blocked now, and what it waits for.

    The reason of the block may name other objectives by their ids, and members as `@name`.
    """

    objective: str
    title: str | None
    assignee: str | None
    since_ms: int
    reason: str
    objectives: list[str]
    members: list[str]
    chain: list[str]
    """The objective, the one that it waits for, and so on. The last item is a member (`@name`) if one is known: the
    member that the last objective waits for, or its assignee if it is not blocked.
    """
    circle: bool = False
    """True if the objectives of the chain wait for each other."""


class Spend(Struct):
    """Row of the report: number, tokens and cost of the model calls of one member, model, objective, scope or thread.

    `by` says of what `name` is the name: `member`, `model`, `objective`, `scope` or `thread`. The name of calls without
    an objective, scope or thread is empty. A scope is mostly a repository.
    """

    by: str
    name: str
    exchanges: int
    failed: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    cache_hit: float | None = None
    """Share of the input tokens that came from a cache. `None` if there were no input tokens."""
    before_usd: float | None = None
    """The cost in the time span before. `None` if the report compares nothing."""
    title: str | None = None
    """Title of the objective, if `name` is one."""
    members: list[str] = []
    """The members whose calls cost most, at most three. Empty if `name` is a member."""


class Change(Struct):
    """Row of the report: a number that differs from the time span before.

    `what` says which number it is, such as `messages`, `cost of a model` or `p50_ms`. `name` says of whom or what; it
    is empty for a total.
    """

    what: str
    name: str
    before: float
    now: float


class Usage(Struct):
    """Row of the report: calls of a member to a model, with tokens and cost."""

    model: str
    member: str
    exchanges: int
    failed: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float


class UsageHour(Struct):
    """Row of the report: calls of all members to a model within an hour."""

    hour_ms: int
    model: str
    exchanges: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Loop(Struct):
    """Row of the report: a conversation in which agents answered each other automatically many times on one day."""

    day_ms: int
    conversation: str
    messages: int
    hops: int
    members: list[str]
    pauses: int
    first_ms: int
    last_ms: int
    cost_usd: float = 0.0
    """Cost of the model calls that its members made between its first and its last message."""


class Storm(Struct):
    """Row of the report: a minute in which one member sent very many messages."""

    minute_ms: int
    sender: str
    messages: int
    deliveries: int


class Threads(Struct):
    """Part of the report: the number of conversations, of those with one speaker, and the longest conversations."""

    conversations: int = 0
    unanswered: int = 0
    longest: list[dict[str, Any]] = []


class Member(Struct):
    """Row of the report: counts of one member.

    `heard_ms` is the time at which the member last sent a message, read a message or used a model.
    """

    member: str
    sent: int
    received: int
    acked: int
    refused: int
    exchanges: int
    cost_usd: float
    heard_ms: int | None = None
    waits_since_ms: int | None = None
    """The minute of the first delivery that arrived for the member from `heard_ms` on; `None` if there is none."""


class Finding(Struct):
    """Row of the report: an error that the audit found."""

    kind: str
    offset: int
    at_ms: int
    member: str
    what: str


class Audit(Struct):
    """Part of the report: how many rows of the audit chain (the hub's main log) were checked, and the errors found."""

    verified_rows: int = 0
    intact: bool = True
    """True if the hash of every row matches the row and the hash of the row before it."""
    chain_breaks: int = 0
    bad_signatures: int = 0
    findings: list[Finding] = []


class FailedCheck(Struct):
    """Row of the report: a test of a table that failed after a commit."""

    table: str
    check: str
    what: str
    commit: int
    at_ms: int


class Checked(Struct):
    """The results of the tests of the tables, as a run stores them in the lake under `CHECKS_FILE`."""

    commit: int = 0
    """Number of the last commit whose rows were tested."""
    at_ms: int = 0
    """Time of this commit. Files that were written later are not tested yet."""
    passed: dict[str, int] = {}
    """For each table, the number of the last commit after which its tests passed."""
    failed: list[FailedCheck] = []


class Report(Struct):
    """The whole report on a hub's traffic, latency, objectives, costs, loops and audit."""

    totals: Totals
    edges: list[Edge]
    latency: list[Latency]
    objectives: list[Objective]
    llm: list[Usage]
    loops: list[Loop]
    audit: Audit
    latency_series: list[LatencyPoint]
    backlog: list[Backlog]
    backlog_series: list[BacklogPoint]
    llm_by_hour: list[UsageHour]
    storms: list[Storm]
    threads: Threads
    members: list[Member]
    from_ms: int | None
    """Start of the first minute in which anything happened. `to_ms` is the end of the last minute."""
    to_ms: int | None
    series_ms: int
    """Length of the interval that one point of a time series covers."""
    since_ms: int | None
    commit: int
    engine: str
    """Engine that made the commit, such as `spark 4.3.0 (local[2])` or `sail 0.7.2`."""
    position: dict[str, int]
    refreshed_at_ms: int
    left_out: dict[str, int]
    missed: dict[str, int]
    """Number of `messages`, rows of `activity` and other `rows` that the hub had deleted before they were read."""
    missed_ms: int | None
    """Time of the last batch in which data were missing, because the hub had deleted them. `None` if nothing is
    missing.
    """
    service: list[ServiceLevel] = []
    responses: list[Response] = []
    failures: list[Failure] = []
    waits: list[Wait] = []
    spend: list[Spend] = []
    unpriced: list[str] = []
    """Models without a price."""
    before: Totals | None = None
    """The totals of the time span of the same length before. `None` if the report compares nothing."""
    before_ms: int | None = None
    """Start of the time span before."""
    changes: list[Change] = []
    """The largest differences from the time span before, largest first."""
    failed_checks: list[FailedCheck] = []
    """Tests of the tables that failed after a commit."""
    ranges: dict[str, "Report"] = {}
    """Reports over the last days, each compared with as many days before: `1d` and `7d`. Only the document that a run
    writes for the console has them. Itself, it is over thirty days.
    """
