"""Test data: a report of the pipeline, as JSON."""

import json
import time
from typing import Any

import msgspec

from tieline.wire.report_parts import Report

NOW_MS = time.time_ns() // 1_000_000


def report(**changed: Any) -> bytes:
    """Return a report of the pipeline as JSON: three messages, and nothing else in any other field."""
    empty = {field.encode_name: _empty(field.type) for field in msgspec.structs.fields(Report)}
    known = {"totals": {"messages": 3}, "commit": 1, "position": {"main": 9}, "refreshed_at_ms": NOW_MS}
    made = msgspec.convert({**empty, **known}, Report)
    return json.dumps({**msgspec.to_builtins(made), **changed}).encode()


def _empty(kind: Any) -> Any:
    """Return the empty value of a field's type, as JSON."""
    match msgspec.inspect.type_info(kind):
        case msgspec.inspect.ListType():
            return []
        case msgspec.inspect.DictType() | msgspec.inspect.StructType():
            return {}
        case msgspec.inspect.UnionType():
            return None
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.StrType():
            return ""
        case _:
            return 0
