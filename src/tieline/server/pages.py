"""The pages of the hub itself on its HTTP port: `/healthz`, and `/metrics` for Prometheus.

Used by: the code that assembles the hub. Uses: the local hub. Requests that no other application serves come to these
pages. A request for any other path gets status 404.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tieline import __version__
from tieline.contract.command import Attach, Detach, ListMembers, ListReaders
from tieline.contract.member import Credential, Unnamed
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Readers, Roster
from tieline.server.local_hub import LocalHub


class _Collector(Collector):
    """Source of the hub's metrics for Prometheus (`/metrics`): messages, commits, sessions, failures and others."""

    def __init__(self, hub: LocalHub, roster: Roster, readers: Readers) -> None:
        self._hub = hub
        self._roster = roster
        self._readers = readers

    def collect(self) -> Iterator[Metric]:
        counters, recorder, health = self._hub.counters, self._hub.recorder, self._hub.health
        for name, text, value in (
            ("tieline_messages_accepted", "Messages made durable since the start", counters.accepted),
            ("tieline_deliveries_created", "Deliveries of those messages", counters.deliveries),
            ("tieline_batches", "Batches of commands decided", counters.batches),
            ("tieline_commits", "Transactions committed", counters.commits),
            ("tieline_commit_seconds", "Time spent in commits", counters.commit_seconds),
            ("tieline_commit_failures", "Transactions that failed", health.store.failures),
            ("tieline_checkpoint_failures", "Moves of the write-ahead log that failed", health.checkpoint.failures),
            ("tieline_activity_commit_failures", "Transactions of activity that failed", health.activity.failures),
            ("tieline_search_failures", "Failures of the search index", health.search.failures),
            ("tieline_faults", "Commands at which the hub failed", health.faults),
            ("tieline_activity_events", "Events of activity made durable since the start", recorder.counters.events),
            ("tieline_activity_commits", "Transactions of the activity log", recorder.counters.commits),
            ("tieline_activity_commit_seconds", "Time spent in those", recorder.counters.commit_seconds),
        ):
            yield CounterMetricFamily(name, text, value=value)
        severe = any(problem.severe for problem in health.problems)
        yield GaugeMetricFamily("tieline_store_failing", "1 while something cannot be kept or read", value=severe)
        if health.clock is not None:
            jump = health.clock.jump_ms / 1000
            yield GaugeMetricFamily("tieline_clock_jump_seconds", "How far the system's clock is off", value=jump)
            yield CounterMetricFamily("tieline_clock_jumps", "Jumps of the system's clock", value=health.clock.jumps)
        yield GaugeMetricFamily("tieline_activity_waiting", "Uploads and questions that wait", value=recorder.waiting)
        yield GaugeMetricFamily("tieline_members", "Members", value=len(self._roster.members))
        sessions = GaugeMetricFamily("tieline_sessions", "Open sessions of members", labels=["protocol"])
        counts: dict[str, int] = {}
        for presence in self._roster.members:
            for protocol in presence.sessions:
                counts[protocol] = counts.get(protocol, 0) + 1
        for protocol, count in sorted(counts.items()):
            sessions.add_metric([protocol], count)
        yield sessions
        held = sum(presence.held for presence in self._roster.members)
        yield GaugeMetricFamily("tieline_held", "Deliveries that are held or slowed", value=held)
        backlog = sum(presence.backlog for presence in self._roster.members)
        yield GaugeMetricFamily("tieline_backlog", "Deliveries that wait for an acknowledgement", value=backlog)
        yield from self._logs()

    def _logs(self) -> Iterator[Metric]:
        ends = {one.log: one.end for one in self._readers.logs}
        rows = GaugeMetricFamily("tieline_log_rows", "The offset that the next row of a log will have", labels=["log"])
        for log, end in ends.items():
            rows.add_metric([log], end)
        yield rows
        labels = ["reader", "log"]
        unread = GaugeMetricFamily("tieline_reader_unread", "Rows of a log that a reader has not read", labels=labels)
        missed = CounterMetricFamily("tieline_reader_missed", "Rows that were deleted unread", labels=labels)
        late = GaugeMetricFamily("tieline_reader_late", "1 if retention will soon stop to wait", labels=labels)
        for one in self._readers.readers:
            unread.add_metric([one.name, one.log], ends[one.log] - one.position)
            missed.add_metric([one.name, one.log], one.missed)
            late.add_metric([one.name, one.log], one.warned)
        yield from (unread, missed, late)
        limits = self._hub.limits
        for name, text, value in (
            ("tieline_reader_wait_seconds", "How much longer unread rows are kept", limits.reader_wait_ms / 1000),
            ("tieline_reader_wait_bytes", "Size of a database that ends the waiting", limits.reader_wait_bytes),
        ):
            yield GaugeMetricFamily(name, text, value=value)


class Pages:
    """HTTP application with the pages for health and metrics. It serves every request.

    `metrics` are more sources of numbers. `operator` is the credential for reading the numbers about the logs. Without
    it, `/metrics` does not show them. `about` is more to say about the hub at `/healthz`.
    """

    def __init__(
        self,
        hub: LocalHub,
        operator: Credential | None = None,
        metrics: Sequence[Collector] = (),
        about: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._hub = hub
        self._about = {"version": __version__, **about}
        self._operator = operator
        self._more_metrics = metrics
        self._app = Starlette(routes=[Route("/healthz", self._health), Route("/metrics", self._metrics)])

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Return true, because these pages come last, and answer each request that no other application serves."""
        del scope
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the health or the metrics. Any other path gets status 404."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Do nothing, because no answer of these pages stays open."""

    # The pages.

    async def _health(self, _request: Request) -> Response:
        if self._hub.failure.done():
            reason = str(self._hub.failure.result())
            return JSONResponse({"status": "failed", **self._about, "reason": reason}, 503)
        problems = self._hub.health.problems
        if not problems:
            return JSONResponse({"status": "ok", **self._about})
        severe = any(problem.severe for problem in problems)
        reasons = [{"what": one.what, "reason": one.reason, "do": one.do} for one in problems]
        status = "failing" if severe else "impaired"
        return JSONResponse({"status": status, **self._about, "reasons": reasons}, 503 if severe else 200)

    async def _metrics(self, _request: Request) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        for collector in (_Collector(self._hub, *await self._figures()), *self._more_metrics):
            registry.register(collector)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _figures(self) -> tuple[Roster, Readers]:
        """Return data for the metrics: the members, and the readers of the logs.

        Both are empty if the hub does not answer.
        """
        roster: Roster | Refusal = Roster(())
        readers: Readers | Refusal = Readers((), ())
        # A new session each time: a kept session would end when the store fails once.
        credential = self._operator or Unnamed("metrics", "http")
        attached = await self._hub.ask(Attach(protocol="http", credential=credential))
        if isinstance(attached, Attached):
            roster = await self._hub.ask(ListMembers(attached.session))
            if self._operator is not None:
                readers = await self._hub.ask(ListReaders(attached.session))
            self._hub.submit((Detach(attached.session),))
        return (
            roster if isinstance(roster, Roster) else Roster(()),
            readers if isinstance(readers, Readers) else Readers((), ()),
        )
