"""Telemetry: the routes that receive activity of agents from OpenTelemetry exporters.

Used by: the server. Uses: the hub's activity service.
"""

from collections.abc import Callable

from tieline.services import otlp
from tieline.services.activity import export
from tieline.wire.http import Answer
from tieline.wire.route import Call, Route


class Telemetry:
    """The HTTP operations that receive activity of agents from OpenTelemetry exporters."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def routes(self) -> list[Route]:
        """Return the routes for telemetry."""
        return [
            Route(
                "POST",
                path,
                handler,
                takes=(otlp.JSON, otlp.PROTOBUF),
                gives=(otlp.JSON, otlp.PROTOBUF),
                body_bytes_max=otlp.BODY_BYTES_MAX,
                errors=(415, 429),
            )
            for path, handler in (("/otlp/v1/logs", self.logs), ("/otlp/v1/traces", self.traces))
        ]

    async def logs(self, call: Call, body: bytes) -> Answer:
        """Upload the member's own activity as OpenTelemetry logs, plain or with gzip."""
        return await export(otlp.Signal.LOGS, call, body, self._now_ms())

    async def traces(self, call: Call, body: bytes) -> Answer:
        """Upload the member's own activity as OpenTelemetry traces, plain or with gzip."""
        return await export(otlp.Signal.TRACES, call, body, self._now_ms())
