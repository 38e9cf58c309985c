"""Converts telemetry of agents (OTLP over HTTP: logs and traces) to activity.

Used by: the routes `/otlp/v1/logs` and `/otlp/v1/traces`, which submit `Telemetry.events` to the hub. The hub removes
secrets before it stores anything. Uses: `telemetry_record`, which converts one record. Bodies are JSON or Protocol
Buffers, plain or compressed with gzip. Both formats are decoded to the same values here.

A record about a model call (GenAI semantic conventions) becomes an `llm_exchange` event. A record about another HTTP
request becomes an `opaque_http` event. All other records are ignored; only their number is counted. A body that is not
a valid request is refused as a whole. A record that is too large is left out, and the sender is told how many records
were left out.
"""

import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract.limits import DEFAULT_LIMITS, MEBIBYTE
from tieline.services import protobuf
from tieline.services.protobuf import Field, Kind, ProtobufMessage
from tieline.services.telemetry_record import REPOSITORY, TelemetryRecord, activity_of

JSON = "application/json"
PROTOBUF = "application/x-protobuf"

BODY_BYTES_MAX = 16 * MEBIBYTE
"""Maximum size of a request's body in bytes, before and after unpacking. Exporters send some hundred records at
once."""
_RECORDS_MAX = 10_000
_ATTRIBUTES_MAX = 1024
"""Maximum number of attributes of one telemetry record. Exporters themselves send at most 128."""
_FAILURE_BYTES_MAX = 1000
_NESTING_MAX = 64
"""Maximum number of levels of nesting in the value of a telemetry attribute. The hub itself allows more levels."""


class Signal(StrEnum):
    """Kind of telemetry in the body of an exporter's request: logs or traces."""

    LOGS = "logs"
    TRACES = "traces"


class Malformed(Struct, frozen=True):
    """Answer that refuses the whole body of an exporter's request: the HTTP status and the error text."""

    status: int
    message: str


class Telemetry(Struct, frozen=True):
    """Decoded body of an exporter's request: the activity events, and the number of records that were left out."""

    events: tuple[dict[str, Any], ...]
    sizes: tuple[int, ...]
    """Size of each event as JSON, in bytes."""
    ignored: int = 0
    """Number of telemetry records that are neither about a model call nor about an HTTP request."""
    rejected: int = 0
    """Number of telemetry records that cannot be stored."""

    def uploads(
        self, events_max: int = DEFAULT_LIMITS.activity_events_max
    ) -> Iterator[tuple[tuple[dict[str, Any], ...], int]]:
        """Split the events into batches of at most `events_max` events.

        Yield each batch with its total size in bytes.
        """
        for start in range(0, len(self.events), events_max):
            yield self.events[start : start + events_max], sum(self.sizes[start : start + events_max])


# The JSON form


class _AnyValue(Struct, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: "_ArrayValue | None" = None
    kvlist_value: "_KeyValueList | None" = None
    bytes_value: str | None = None


class _ArrayValue(Struct):
    values: list[_AnyValue] = []


class _KeyValue(Struct):
    key: str = ""
    value: _AnyValue | None = None


class _KeyValueList(Struct):
    values: list[_KeyValue] = []


class _Span(Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []


class _LogRecord(Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    event_name: str = ""
    body: _AnyValue | None = None
    attributes: list[_KeyValue] = []


class _ScopeSpans(Struct):
    spans: list[_Span] = []


class _Resource(Struct):
    attributes: list[_KeyValue] = []


class _ResourceSpans(Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] = []


class _Traces(Struct, rename="camel"):
    resource_spans: list[_ResourceSpans] = []


class _ScopeLogs(Struct, rename="camel"):
    log_records: list[_LogRecord] = []


class _ResourceLogs(Struct, rename="camel"):
    resource: _Resource | None = None
    scope_logs: list[_ScopeLogs] = []


class _Logs(Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] = []


# The Protocol Buffers form: numbers of opentelemetry-proto 1.x


def _messages() -> dict[Signal, ProtobufMessage]:
    value, array, pairs, pair = ProtobufMessage(), ProtobufMessage(), ProtobufMessage(), ProtobufMessage()
    value.fields = {
        1: Field("stringValue", Kind.TEXT),
        2: Field("boolValue", Kind.BOOLEAN),
        3: Field("intValue", Kind.INTEGER),
        4: Field("doubleValue", Kind.DOUBLE),
        5: Field("arrayValue", array),
        6: Field("kvlistValue", pairs),
        7: Field("bytesValue", Kind.BYTES),
    }
    array.fields = {1: Field("values", value, many=True)}
    pairs.fields = {1: Field("values", pair, many=True)}
    pair.fields = {1: Field("key", Kind.TEXT), 2: Field("value", value)}
    span, record = ProtobufMessage(), ProtobufMessage()
    span.fields = {
        1: Field("traceId", Kind.HEX),
        2: Field("spanId", Kind.HEX),
        7: Field("startTimeUnixNano", Kind.FIXED64),
        8: Field("endTimeUnixNano", Kind.FIXED64),
        9: Field("attributes", pair, many=True),
    }
    record.fields = {
        1: Field("timeUnixNano", Kind.FIXED64),
        5: Field("body", value),
        6: Field("attributes", pair, many=True),
        9: Field("traceId", Kind.HEX),
        10: Field("spanId", Kind.HEX),
        11: Field("observedTimeUnixNano", Kind.FIXED64),
        12: Field("eventName", Kind.TEXT),
    }
    return {
        Signal.TRACES: _request("resourceSpans", "scopeSpans", "spans", span, pair),
        Signal.LOGS: _request("resourceLogs", "scopeLogs", "logRecords", record, pair),
    }


def _request(resources: str, scopes: str, items: str, item: ProtobufMessage, pair: ProtobufMessage) -> ProtobufMessage:
    request, of_resource, resource, scope = (ProtobufMessage() for _ in range(4))
    request.fields = {1: Field(resources, of_resource, many=True)}
    of_resource.fields = {1: Field("resource", resource), 2: Field(scopes, scope, many=True)}
    resource.fields = {1: Field("attributes", pair, many=True)}
    scope.fields = {2: Field(items, item, many=True)}
    return request


_MESSAGES = _messages()
_TYPES: dict[Signal, type[_Traces] | type[_Logs]] = {Signal.TRACES: _Traces, Signal.LOGS: _Logs}


# Reading


def decode(signal: Signal, body: bytes, content_type: str, content_encoding: str, now_ms: int) -> Telemetry | Malformed:
    """Decode the body of an exporter's request into activity events. Return a refusal if the body is not valid.

    Run this function on a separate thread, because a large body takes a while. `now_ms` is used as the time of records
    that have no time.
    """
    if len(body) > BODY_BYTES_MAX:
        return Malformed(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    plain = _unpack(body, content_encoding)
    if isinstance(plain, Malformed):
        return plain
    request = _parse(signal, plain, content_type)
    if isinstance(request, Malformed):
        return request
    events: list[dict[str, Any]] = []
    sizes: list[int] = []
    ignored = rejected = 0
    for number, (item, named) in enumerate(_items(request)):
        if number >= _RECORDS_MAX:
            return Malformed(413, f"a body has at most {_RECORDS_MAX} records")
        try:
            record = _record(item, named, now_ms)
            event = activity_of(record)
            if event is None:
                ignored += 1
                continue
            size = len(msgspec.json.encode(event))
        except _Unkept:
            rejected += 1
            continue
        except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            # For example half a surrogate pair, or a number out of range.
            rejected += 1
            continue
        if size > DEFAULT_LIMITS.activity_event_bytes_max:
            rejected += 1
            continue
        events.append(event)
        sizes.append(size)
    return Telemetry(tuple(events), tuple(sizes), ignored, rejected)


def encode_answer(signal: Signal, content_type: str, telemetry: Telemetry) -> tuple[bytes, str]:
    """Return the HTTP answer to an accepted body, in the same format as the body, and its content type.

    The answer contains the number of records that could not be stored.
    """
    if not telemetry.rejected:
        return (b"", PROTOBUF) if _is_protobuf(content_type) else (b"{}", JSON)
    message = "some records are too large or cannot be written down"
    if _is_protobuf(content_type):
        partial = b"\x08" + _encode_varint(telemetry.rejected) + b"\x12" + bytes([len(message)]) + message.encode()
        return b"\x0a" + bytes([len(partial)]) + partial, PROTOBUF
    key = "rejectedSpans" if signal is Signal.TRACES else "rejectedLogRecords"
    return msgspec.json.encode({"partialSuccess": {key: str(telemetry.rejected), "errorMessage": message}}), JSON


def encode_failure(content_type: str, message: str) -> bytes | None:
    """Return the HTTP error answer to a Protocol Buffers body, encoded as a `google.rpc.Status`.

    Return `None` if the body is not in the Protocol Buffers format.
    """
    if not _is_protobuf(content_type):
        return None
    text = message.encode(errors="replace")[:_FAILURE_BYTES_MAX]
    return b"\x12" + _encode_varint(len(text)) + text


class _Unkept(Exception):
    """Raised if one telemetry record cannot be stored, for example because it has too many attributes.

    The caller leaves this record out and continues with the next one.
    """


def _unpack(body: bytes, content_encoding: str) -> bytes | Malformed:
    match content_encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            pass
        case _:
            return Malformed(415, "a body is plain or packed with gzip")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(body, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        return Malformed(400, f"the body is no gzip: {error}")
    if len(plain) > BODY_BYTES_MAX:
        return Malformed(413, f"a body has at most {BODY_BYTES_MAX} bytes when it is unpacked")
    if not unpacking.eof or unpacking.unused_data:
        return Malformed(400, "the body is cut short, or more follows its end")
    return plain


def _parse(signal: Signal, plain: bytes, content_type: str) -> _Traces | _Logs | Malformed:
    try:
        if _is_protobuf(content_type):
            return msgspec.convert(protobuf.decode(plain, _MESSAGES[signal]), _TYPES[signal])
        if _media_type(content_type) == JSON:
            return msgspec.json.decode(plain, type=_TYPES[signal])
    except (protobuf.NotProtobuf, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Malformed(400, f"the body is no request of {signal}: {error}")
    except RecursionError:
        return Malformed(400, "the body is nested too deep")
    return Malformed(415, f"a body is {JSON} or {PROTOBUF}")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_protobuf(content_type: str) -> bool:
    return _media_type(content_type) in (PROTOBUF, "application/protobuf")


def _items(request: _Traces | _Logs) -> Iterator[tuple[_Span | _LogRecord, list[_KeyValue]]]:
    """Yield the records of a request, each with the attributes of its resource that name the repository."""
    match request:
        case _Traces():
            for spans in request.resource_spans:
                named = _repository(spans.resource)
                yield from ((span, named) for scope in spans.scope_spans for span in scope.spans)
        case _Logs():
            for logs in request.resource_logs:
                named = _repository(logs.resource)
                yield from ((item, named) for scope in logs.scope_logs for item in scope.log_records)


def _repository(resource: _Resource | None) -> list[_KeyValue]:
    # Each name once, because every record gets them.
    return list({pair.key: pair for pair in resource.attributes if pair.key in REPOSITORY}.values()) if resource else []


def _record(item: _Span | _LogRecord, named: list[_KeyValue], now_ms: int) -> TelemetryRecord:
    """Return one OpenTelemetry span or log record as plain values. `now_ms` is used as its time if it has no time.

    `named` are attributes of its resource. An attribute of the record itself replaces one of these with the same name.
    """
    if len(item.attributes) > _ATTRIBUTES_MAX:
        raise _Unkept
    attributes = {pair.key: _plain(pair.value, _NESTING_MAX) for pair in (*named, *item.attributes)}
    match item:
        case _Span():
            end = _ms(item.end_time_unix_nano)
            start = _ms(item.start_time_unix_nano) or end or now_ms
            return TelemetryRecord(
                attributes, start, max(start, end), "", None, item.trace_id, item.span_id, is_span=True
            )
        case _LogRecord():
            at = _ms(item.time_unix_nano) or _ms(item.observed_time_unix_nano) or now_ms
            body = _plain(item.body, _NESTING_MAX)
            name = item.event_name or str(attributes.get("event.name", ""))
            return TelemetryRecord(attributes, at, at, name, body, item.trace_id, item.span_id, is_span=False)


def _ms(nanoseconds: int | str) -> int:
    """Return the time of a telemetry record in milliseconds. The result 0 means that the record has no time."""
    number = int(nanoseconds) if isinstance(nanoseconds, int) or len(nanoseconds) <= len(str(2**64)) else -1
    if not 0 <= number < 2**64:
        raise _Unkept
    return number // 1_000_000


def _plain(value: _AnyValue | None, levels: int) -> Any:
    """Return the value of a telemetry attribute as a JSON value.

    `levels` is the number of nested levels that are still allowed.
    """
    if value is None:
        return None
    if levels == 0:
        raise _Unkept
    if value.string_value is not None:
        return value.string_value
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return _integer(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_plain(one, levels - 1) for one in value.array_value.values]
    if value.kvlist_value is not None:
        return {pair.key: _plain(pair.value, levels - 1) for pair in value.kvlist_value.values}
    return value.bytes_value


def _integer(value: int | str) -> int:
    number = int(value) if isinstance(value, int) or len(value) <= len(str(-(2**63))) else 2**63
    if not -(2**63) <= number < 2**63:
        raise _Unkept
    return number


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:  # noqa: PLR2004 - the top bit says that more follows
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
