"""Golden test of ac7: activity from agents and OpenTelemetry exporters, read as a list and as a stream."""

import gzip
import json
from pathlib import Path

from tests.golden.ac7 import ac7, seat
from tests.golden.recorder import Recorder
from tests.golden.web import Web
from tests.golden.websocket import WebSocket
from tests.protocols.ac7.conformance.test_activity import closed, exchange, opaque, opened
from tests.services.test_otlp import CHAT, START_NS, logs, packed_traces, traces

_AT_MS = START_NS // 1_000_000


async def play(folder: Path, recorder: Recorder) -> None:
    """Upload activity, read it and follow its stream, and record the conversation."""
    async with ac7(folder, recorder) as there:
        ann, eve = await seat(there, "ann"), await seat(there, "eve", "activity.read")
        recorder.section("reports")
        events = await eve.stream("/members/ann/activity/stream")
        socket = await WebSocket.dial(
            there, "ann/socket", "/members/ann/activity/stream", Authorization=ann.headers["authorization"]
        )
        assert socket is not None
        for event in (opened(_AT_MS), exchange(_AT_MS + 1), opaque(_AT_MS + 2), closed(_AT_MS + 3)):
            await ann.ask("POST", "/members/ann/activity", {"events": [event]})
            await events.hear()
            await socket.hear()
        await ann.ask("POST", "/members/ann/activity", {"events": []})
        await ann.ask("POST", "/members/ann/activity", {"events": [{"kind": "else", "ts": 1}]})
        await ann.ask("POST", "/members/ann/activity", {"events": [{**opened(1), "objectiveId": ""}]})
        await ann.ask("POST", "/members/eve/activity", {"events": [opened(1)]})
        recorder.section("reading")
        await eve.ask("GET", "/members/ann/activity")
        await ann.ask(
            "GET", f"/members/ann/activity?kind=opaque_http&kind=objective_open&from=0&to={_AT_MS + 2}&limit=1"
        )
        await ann.ask("GET", "/members/eve/activity")
        await eve.ask("GET", "/members/nobody/activity")
        await ann.ask("GET", "/members/ann/activity?kind=else")
        await ann.ask("GET", "/members/ann/activity?limit=0")
        await ann.ask("GET", "/members/eve/activity/stream")
        recorder.section("telemetry")
        await _telemetry(ann)
        for _ in range(4):
            await events.hear()
            await socket.hear()
        await events.leave()
        await socket.leave()
        recorder.section("CommandSuite")
        used = {"kind": "tool_action", "ts": _AT_MS + 4, "toolName": "Bash", "durationMs": 3, "isError": False}
        await ann.ask("POST", "/members/ann/activity", {"events": [used]}, x_csuite_protocol="2")
        await ann.ask("GET", "/members/ann/activity?kind=tool_action", x_csuite_protocol="2")


async def _telemetry(ann: Web) -> None:
    kind, packed = "application/json", "application/x-protobuf"
    await ann.ask("POST", "/otlp/v1/traces", traces(CHAT), content_type=kind)
    await ann.ask("POST", "/otlp/v1/traces", packed_traces(CHAT), content_type=packed)
    whole = gzip.compress(packed_traces(CHAT), mtime=0)
    await ann.ask("POST", "/otlp/v1/traces", whole, content_type=packed, content_encoding="gzip")
    secret = {"http.request.method": "GET", "url.full": "https://example.test/", "http.response.status_code": 204}
    secret |= {"http.request.header.authorization": ["Bearer abcdefgh12345678"]}
    await ann.ask("POST", "/otlp/v1/logs", logs(secret), content_type=kind)
    await ann.ask("POST", "/otlp/v1/traces", b"{", content_type=kind)
    await ann.ask("POST", "/otlp/v1/traces", b"\xff\xff", content_type=packed)
    await ann.ask("POST", "/otlp/v1/logs", b"<xml/>", content_type="text/xml")
    await ann.ask("POST", "/otlp/v1/logs", b"{}", content_type=kind, content_encoding="br")
    await ann.ask("POST", "/otlp/v1/logs", json.dumps({"resourceLogs": []}).encode(), content_type=kind)
