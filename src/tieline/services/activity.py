"""Activity from telemetry exporters: stores the records of an OpenTelemetry (OTLP) request as the member's activity.

Used by: routes that accept OTLP requests. Uses: `otlp`, which reads bodies, and the interface `contract.hub`. An
answer has the same format as its request, as exporters expect. Status 429 or 503 asks the exporter to retry.
"""

import asyncio
from typing import Any

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.refusal import Refusal
from tieline.services import otlp
from tieline.wire.http import Answer
from tieline.wire.route import STATUS, Call, no
from tieline.wire.sessions import Make

_RETRY = ((b"retry-after", b"5"),)
_AGAIN = frozenset({429, 503})


async def export(signal: otlp.Signal, call: Call, body: bytes, now_ms: int) -> Answer:
    """Store the records in the body of an exporter's request as activity. Return the HTTP answer.

    `signal` is the kind of records, logs or traces. The answer contains the number of records that could not be stored.
    """
    kind = call.header(b"content-type") or ""
    packed = call.header(b"content-encoding") or ""
    # On a thread, because a large body takes a while and must not block the event loop.
    found = await asyncio.to_thread(otlp.decode, signal, body, kind, packed, now_ms)
    if isinstance(found, otlp.Malformed):
        return _no(found.status, found.message, kind)
    kept = 0
    for events, size in found.uploads(call.hub.limits.activity_events_max):
        match await call.ask(_recording(events, size)):
            case (r.Recorded(count),):
                kept += count
            case (Refusal() as refusal, *_) if not kept:
                return _no(STATUS.get(refusal.code, 400), refusal.message, kind)
            case _:
                # A part is stored already, so the exporter must not retry. The answer tells how many are not stored.
                found = replace(found, rejected=found.rejected + len(found.events) - kept)
                break
    encoded, content_type = otlp.encode_answer(signal, kind, found)
    return Answer(200, encoded, content_type.encode())


def _recording(events: tuple[dict[str, Any], ...], size: int) -> Make:
    return lambda session: (c.RecordActivity(session, events=events, size=size),)


def _no(status: int, text: str, kind: str) -> Answer:
    encoded = otlp.encode_failure(kind, text)
    said = no(status, text) if encoded is None else Answer(status, encoded, otlp.PROTOBUF.encode())
    return replace(said, headers=_RETRY) if status in _AGAIN else said
