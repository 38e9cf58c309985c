"""Writes a lake of many days without Spark, to measure reports: `python -m bench.year_lake FOLDER DAYS`.

Forty members, and for each day eight files of each table by minute, as many as the pipeline leaves there before it
merges them.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tieline.pipeline.catalogue import STORED, TIMES
from tieline.pipeline.lake import Commit, Lake
from tieline.pipeline.storage import DataFile
from tieline.pipeline.tasks import TableWriter

MEMBERS = 40
DELIVERIES = 20_000
"""Deliveries on each day, and as many times in the lists of the tables."""
FILES = 8
_DAY, _HOUR, _MINUTE = 86_400_000, 3_600_000, 60_000
_START = 20_000 * _DAY
_MODELS = ("claude-opus-4-5", "claude-sonnet-4-5", "gpt-5.2", "local-mistral")


def make_year(path: Path, days: int) -> int:
    """Write a lake with as many days. Returns the number of deliveries."""
    chance = np.random.default_rng(1)
    lake = Lake(path)
    files: dict[str, list[DataFile]] = {}
    with lake.held():
        for number in range(days):
            for name, columns in _day(chance, _START + number * _DAY).items():
                schema = to_arrow_schema(STORED[name])
                count = len(next(iter(columns.values())))
                given = {one.name: columns.get(one.name, pa.nulls(count)) for one in schema}
                table = pa.table(given).cast(schema)
                pieces = FILES if TIMES[name] == "minute_ms" else 1
                for piece in range(pieces):
                    some = table.slice(piece * count // pieces, (piece + 1) * count // pieces - piece * count // pieces)
                    writer = TableWriter(lake.storage, name, 1, schema, TIMES[name])
                    files.setdefault(name, []).extend(writer.write(iter([some])))
        for name, written in files.items():
            lake.commit_table(name, 1, to_arrow_schema(STORED[name]), written)
        position = {"main": 4 * DELIVERIES * days, "activity": 0}
        lake.commit(lake.follow(Commit(), files, position=position))
    return DELIVERIES * days


def _names(numbers: "np.ndarray[Any, Any]") -> pa.Array:
    return pa.array([f"member-{number}" for number in numbers], pa.string())


def _lists(starts: "np.ndarray[Any, Any]", values: "np.ndarray[Any, Any]") -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values, pa.int64()))


def _grouped(keys: "np.ndarray[Any, Any]", values: "np.ndarray[Any, Any]") -> tuple[Any, Any, pa.Array]:
    """Returns the distinct keys, their counts, and the sorted values of each key."""
    order = np.lexsort((values, keys))
    found, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    return found, counts, _lists(np.append(starts, len(keys)), values[order])


def _day(chance: "np.random.Generator", day_ms: int) -> dict[str, dict[str, Any]]:
    """Returns the columns of the tables for one day."""
    members = chance.integers(0, MEMBERS, DELIVERIES)
    senders = chance.integers(0, MEMBERS, DELIVERIES)
    minutes = np.sort(chance.integers(8 * 60, 20 * 60, DELIVERIES)) * _MINUTE + day_ms
    took = (chance.exponential(20_000, DELIVERIES)).astype(np.int64) + 1
    keys, counts, times = _grouped(minutes * MEMBERS + members, took)
    minute, member = keys // MEMBERS, _names(keys % MEMBERS)
    zeros = np.zeros(len(keys), np.int64)
    none = dict.fromkeys(("seen", "expired", "dead", "late"), zeros)
    steps = {**none, "offered": counts, "acked": counts, "offered_ms": times, "acked_ms": times}
    found: dict[str, dict[str, Any]] = {
        "latency": {"member": member, "protocol": pa.array(["tieline"] * len(keys)), "minute_ms": minute, **steps},
        "backlog": {"member": member, "minute_ms": minute, "arrived": counts, "departed": counts},
    }
    keys, counts, times = _grouped(members, took)
    zeros = np.zeros(len(keys), np.int64)
    ones = np.full(len(keys), day_ms)
    found["service"] = {
        "day_ms": ones, "member": _names(keys), "protocol": pa.array(["tieline"] * len(keys)),
        "priority": pa.array(["normal"] * len(keys)), "offered": counts, "acked": counts, "seen": zeros,
        "expired": zeros, "dead": zeros, "late": zeros, "offered_ms": times, "acked_ms": times,
    }  # fmt: skip
    found["members"] = {
        "day_ms": ones, "member": _names(keys), "sent": counts, "received": counts, "departed": counts,
        "offered": counts, "acked": counts, "refused": zeros, "exchanges": counts, "input_tokens": zeros,
        "output_tokens": zeros, "cost_nano_usd": zeros, "heard_ms": ones + 20 * _HOUR,
    }  # fmt: skip
    keys, counts, _ = _grouped(minutes * MEMBERS + senders, took)
    found["storms"] = {
        "minute_ms": keys // MEMBERS, "sender": _names(keys % MEMBERS), "messages": counts, "deliveries": counts,
        "storm": counts > 8,
    }  # fmt: skip
    answered = DELIVERIES // 3
    keys, counts, times = _grouped(senders[:answered] * MEMBERS + members[:answered], took[:answered])
    found["edges"] = {
        "day_ms": np.full(len(keys), day_ms), "sender": _names(keys // MEMBERS), "recipient": _names(keys % MEMBERS),
        "messages": counts * 3, "answers": counts, "response_ms": times,
    }  # fmt: skip
    found["responses"] = {
        "day_ms": np.full(answered, day_ms), "offset": np.arange(answered), "sender": _names(senders[:answered]),
        "responder": _names(members[:answered]), "response_ms": took[:answered], "replies": np.ones(answered, np.int64),
    }  # fmt: skip
    sent_ms, number = minutes - took, np.arange(DELIVERIES)
    found["deliveries"] = {
        "number": members, "key": number, "offset": number, "sent_ms": sent_ms, "acked_ms": minutes,
        "thread": pa.array([f"thread-{one % 200}" if one % 3 == 0 else None for one in number.tolist()], pa.string()),
    }  # fmt: skip
    found["threads"] = {
        "day_ms": np.full(200, day_ms), "conversation": pa.array([f"#channel-{number}" for number in range(200)]),
        "messages": np.full(200, 100), "first_ms": np.full(200, day_ms), "last_ms": np.full(200, day_ms + _HOUR),
        "participants": pa.array([[f"member-{number % 40}", "member-7"] for number in range(200)]),
    }  # fmt: skip
    calls = DELIVERIES // 4
    models = np.array(_MODELS)[chance.integers(0, 4, calls)]
    times_ms = np.sort(chance.integers(8 * _HOUR, 20 * _HOUR, calls)) + day_ms
    found["activity"] = {
        "offset": np.arange(calls), "at_ms": times_ms, "ts_ms": times_ms, "number": members[:calls],
        "member": _names(members[:calls]), "kind": pa.array(["llm_exchange"] * calls), "model": pa.array(models),
        "failed": took[:calls] < 400, "cost_nano_usd": took[:calls] * 1000,
    }  # fmt: skip
    hours = np.repeat(np.arange(8, 20) * _HOUR + day_ms, MEMBERS * 2)
    found["llm"] = {
        "hour_ms": hours, "member": _names(np.arange(len(hours)) % MEMBERS),
        "model": pa.array(np.array(_MODELS)[np.arange(len(hours)) % 4]),
        "objective": pa.array([f"obj-{number % 50}" for number in range(len(hours))]),
        **{name: np.full(len(hours), 5) for name in ("exchanges", "input_tokens", "output_tokens", "lasted_ms",
                                                     "cache_read_tokens", "cache_write_tokens", "cost_nano_usd")},
        **{name: np.zeros(len(hours), np.int64) for name in ("late", "unpriced")},
        "failed": np.ones(len(hours), np.int64),
    }  # fmt: skip
    found["failures"] = {
        "day_ms": np.full(40, day_ms), "kind": pa.array(["expired"] * 40), "member": _names(np.arange(40)),
        "cause": pa.array(["time to live passed"] * 40), "count": np.ones(40, np.int64),
    }  # fmt: skip
    return found


if __name__ == "__main__":
    print(make_year(Path(sys.argv[1]), int(sys.argv[2])))
