"""The parts of the report, as types.

Above: `report`, which fills them in, the page, alerts, and the build of the console, which generates its own types from
them. Below: nothing: no Arrow and no Spark, so that the types also work on a machine without the pipeline.
"""

from typing import Any

from msgspec import Struct


class Totals(Struct):
    """How much there was."""

    messages: int = 0
    deliveries: int = 0
    acked: int = 0
    expired: int = 0
    activity: int = 0
    dead: int = 0
    late: int = 0
    """Steps of deliveries that came later than the watermark. Late steps are also counted in the other sums."""
    waiting: int = 0
    """Deliveries that wait now."""
    cost_usd: float = 0.0


class Edge(Struct, rename={"sender": "from", "recipient": "to"}):
    """Who wrote to whom. `answers` are the sender's replies to the recipient, and how long they took."""

    sender: str
    recipient: str
    messages: int
    answers: int = 0
    response_p50_ms: int | None = None


class Latency(Struct):
    """How long after sending a member's deliveries on a wire were acknowledged; or offered, on a wire that cannot."""

    member: str
    protocol: str
    p50_ms: int
    p99_ms: int
    deliveries: int
    measured: str
    """`acked` or `offered`."""


class LatencyPoint(Struct):
    """Acknowledgements of all members in a while that begins then."""

    at_ms: int
    acked: int
    p50_ms: int
    p99_ms: int


class BacklogPoint(Struct):
    """Deliveries that waited at the end of a while that begins then, and how many came and left in it."""

    at_ms: int
    waiting: int
    arrived: int
    departed: int


class Backlog(Struct):
    """What waits for a member now."""

    member: str
    waiting: int
    arrived: int
    departed: int


class Objective(Struct):
    """Where an objective stands and what it took."""

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
    """Start and end of each time in which the objective was blocked; the end is `None` while it still is."""


class Usage(Struct):
    """Exchanges of a member with a model."""

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
    """Exchanges with a model in an hour."""

    hour_ms: int
    model: str
    exchanges: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Loop(Struct):
    """A conversation in which agents answered each other automatically."""

    day_ms: int
    conversation: str
    messages: int
    hops: int
    members: list[str]
    pauses: int
    first_ms: int
    last_ms: int


class Storm(Struct):
    """A minute in which one member said very much."""

    minute_ms: int
    sender: str
    messages: int
    deliveries: int


class Threads(Struct):
    """Conversations, counted by day."""

    conversations: int = 0
    unanswered: int = 0
    longest: list[dict[str, Any]] = []


class Member(Struct):
    """What a member did, and when it last did something of its own: spoke, read or worked."""

    member: str
    sent: int
    received: int
    acked: int
    refused: int
    exchanges: int
    cost_usd: float
    heard_ms: int | None = None
    waits_since_ms: int | None = None
    """The minute of the first delivery that came after `heard_ms`."""


class Finding(Struct):
    """Something that the audit found."""

    kind: str
    offset: int
    at_ms: int
    member: str
    what: str


class Audit(Struct):
    """How far the chain of the main log was checked, and what is wrong with it."""

    verified_rows: int = 0
    intact: bool = True
    """True if every row follows from the row before it."""
    chain_breaks: int = 0
    bad_signatures: int = 0
    findings: list[Finding] = []


class Report(Struct):
    """Everything."""

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
    """Span of the report, with `to_ms`: the first and the last minute in which anything happened."""
    to_ms: int | None
    series_ms: int
    """Length of the interval that one point of a series covers."""
    since_ms: int | None
    commit: int
    position: dict[str, int]
    refreshed_at_ms: int
    left_out: dict[str, int]
