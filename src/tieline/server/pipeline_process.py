"""The pipeline as a child process of the hub: `tieline pipeline run --follow --every …`, for `serve --pipeline`.

Used by: the code that assembles the hub. Uses: a program under a guard, which ends the pipeline with the hub, also if
the hub is killed. The hub never imports the pipeline. If the process dies, it is started again, after growing waits.
Its output becomes lines of the hub's log, marked with `part=pipeline`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tieline.agents.program import NotStarted, Program, start_program
from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE
from tieline.server.config import Config, ConfigError
from tieline.server.storage import MEMORY, in_database
from tieline.wire.backoff import Backoff
from tieline.wire.duration import parse_duration
from tieline.wire.insights import StoredReport

_BACKOFF = Backoff(initial_ms=1000, wait_ms_max=60_000, attempts_max=None)
"""Waits before the process is started again. A process that dies at once takes a second of processor time."""
_LASTED_SECONDS = 120.0
"""A process that ran this long was no failed start, so the next wait is the shortest again."""
_DAYS_MAX = 7
"""Longest interval, in days. The hub keeps messages for a week."""
_ERROR = "tieline: "
"""Beginning of a line by which a command says that it failed (`cli.output.complain`)."""

log = structlog.get_logger(__name__)


class PipelineProcess(Collector):
    """The process that runs the pipeline for a hub at intervals. It is restarted until `stop` is called."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._program: Program | None = None
        self._starts = 0
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process, and keep it running until `stop` is called."""
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the process. Rows that it has not read are read after the next start."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._program is not None:
            await self._program.end()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the process, for Prometheus."""
        running = self._program is not None
        yield GaugeMetricFamily("tieline_pipeline_running", "1 while the pipeline's process runs", value=running)
        yield CounterMetricFamily("tieline_pipeline_starts", "Starts of the pipeline's process", value=self._starts)

    async def _keep(self) -> None:
        failures = 0
        while True:
            begun = time.monotonic()
            self._starts += 1
            try:
                code = await self._run()
            except NotStarted as error:
                code = str(error)
            failures = 0 if time.monotonic() - begun > _LASTED_SECONDS else failures + 1
            wait = _BACKOFF.wait_seconds(failures)
            log.warning("the pipeline's process ended", part="pipeline", code=code, again_in_seconds=round(wait, 1))
            await asyncio.sleep(wait)

    async def _run(self) -> int | str:
        """Start the process, log its output until it ends, and return its exit code (or a text, if it was killed)."""
        # The home's key makes the process an operator; a member that the environment names may not be allowed to.
        environment = {
            name: value for name, value in os.environ.items() if name not in (MEMBER_VARIABLE, TOKEN_VARIABLE)
        }
        errors = asyncio.subprocess.STDOUT
        program = await start_program(self.command, None, environment=environment, pipes=True, errors=errors)
        self._program = program
        while True:
            try:
                line = await program.stdout.readline()
            except ValueError:
                # A line that is longer than the buffer; its beginning is dropped.
                continue
            if not line:
                break
            _log(line.decode(errors="replace").strip())
        code = await program.wait()
        self._program = None
        return code


def _log(line: str) -> None:
    if line:
        (log.warning if line.startswith(_ERROR) else log.info)(line, part="pipeline")


class ReportTime(Collector):
    """Source of one metric: the time at which the pipeline's last report was stored in the hub, from any machine."""

    def __init__(self, report: StoredReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Yield the time as seconds since 1970, or nothing if there is no report."""
        stored_at_ms = self._report.stored_at_ms()
        if stored_at_ms is not None:
            text = "When the pipeline's last report was stored"
            yield GaugeMetricFamily("tieline_pipeline_report_time_seconds", text, value=stored_at_ms / 1000)


def make_pipeline(home: Path, config: Config) -> PipelineProcess | None:
    """Return the pipeline's process for the hub in `home`; `None` if the hub does not run the pipeline.

    The caller must start the process. Raises `ConfigError` if the configuration cannot be used.
    """
    section = config.pipeline
    if not section.every:
        return None
    try:
        parse_duration(section.every, _DAYS_MAX)
    except ValueError as error:
        raise ConfigError(f"the interval of the pipeline {error}") from error
    if in_database(config.store.url):
        hint = "run it beside the hub: tieline pipeline run --hub URL --follow"
        raise ConfigError(f"a hub runs the pipeline itself only with the store 'sqlite'; {hint}")
    if config.store.url == MEMORY:
        raise ConfigError("the pipeline reads the hub's database, so it needs the store 'sqlite'")
    own = (sys.executable, "-P", "-m", "tieline.cli.main", "pipeline", "run")
    return PipelineProcess((*own, "--home", str(home), "--follow", "--every", section.every, *section.arguments))
