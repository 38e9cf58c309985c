"""The parts of the report, as types.

Used by: `report`, which fills them in, its HTML page, alerts, and the build of the console, which generates its own
types from these types. Uses: nothing. The module needs no Arrow and no Spark, so that the types also work on a machine
without the pipeline.
"""

from typing import Any

from msgspec import Struct


class Totals(Struct):
    """Part of the report: sums over everything."""

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
    """Row of the report: number of deliveries that wait for a member now, and that have ever arrived and left."""

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
    """The minute of the first delivery that arrived for the member after `heard_ms`. `None` if no delivery arrived."""


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
    position: dict[str, int]
    refreshed_at_ms: int
    left_out: dict[str, int]
    missed: dict[str, int]
    """Number of `messages`, rows of `activity` and other `rows` that the hub had deleted before they were read."""
    missed_ms: int | None
    """Time of the last batch in which data were missing, because the hub had deleted them. `None` if nothing is
    missing.
    """
