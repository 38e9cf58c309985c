"""Test helpers that make lakes (the pipeline's tables): from given rows with Arrow, or as copies of other lakes."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tieline.pipeline.catalogue import STORED, TIMES
from tieline.pipeline.lake import Commit, Lake
from tieline.pipeline.tasks import TableWriter

DAY = 86_400_000
START = 20_000 * DAY + 9 * 3_600_000
"""Nine o'clock (UTC) of some day, in milliseconds."""
MINUTE = 60_000


def lake_of(path: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]], *, main: int = 100) -> Lake:
    """Make a lake whose tables have these rows. Columns that a row lacks are null.

    `main` is the position in the main log up to which the lake was read.
    """
    lake = Lake(path)
    with lake.held():
        for name, rows in tables.items():
            schema = to_arrow_schema(STORED[name])
            writer = TableWriter(lake.storage, name, 1, schema, TIMES[name])
            files = list(writer.write(iter([pa.Table.from_pylist(list(rows), schema)])))
            lake.commit_table(name, 1, schema, files)
        lake.commit(lake.follow(Commit(), tables, position={"main": main, "activity": 0}))
    return lake


def copied(lake: Lake, path: Path) -> Lake:
    """Copy a lake to another folder. Return the copy."""
    shutil.copytree(lake.path, path)
    return Lake(path)


def busy(path: Path, name: str = "bob") -> Lake:
    """Make a lake with a few rows in every table.

    `name` is used as a member, as an objective's title and as a model.
    """
    steps = {"expired": 0, "dead": 0, "late": 0, "seen": 0}
    return lake_of(
        path,
        {
            "latency": [
                {**steps, "member": name, "protocol": "tieline", "minute_ms": START, "offered": 3, "acked": 3,
                 "offered_ms": [1, 2, 3], "acked_ms": [10, 20, 30]},
                {**steps, "member": name, "protocol": "tieline", "minute_ms": START + MINUTE, "offered": 1, "acked": 1,
                 "offered_ms": [4], "acked_ms": [4000]},
                {**steps, "member": "carol", "protocol": "agent-channels", "minute_ms": START, "offered": 2, "acked": 0,
                 "offered_ms": [5, 7], "acked_ms": []},
                {**steps, "member": "dave", "protocol": "", "minute_ms": START, "offered": 0, "acked": 0,
                 "expired": 1, "offered_ms": [], "acked_ms": []},
            ],
            "backlog": [
                {"member": name, "minute_ms": START, "arrived": 4, "departed": 3},
                {"member": name, "minute_ms": START + MINUTE, "arrived": 0, "departed": 1},
                {"member": "dave", "minute_ms": START, "arrived": 250, "departed": 1},
                {"member": "carol", "minute_ms": START + 100 * MINUTE, "arrived": 2, "departed": 2},
            ],
            "edges": [
                {"day_ms": 20_000 * DAY, "sender": "alice", "recipient": name, "messages": 4, "answers": 0,
                 "response_ms": []},
                {"day_ms": 20_000 * DAY, "sender": name, "recipient": "alice", "messages": 2, "answers": 2,
                 "response_ms": [500, 900]},
                {"day_ms": 20_001 * DAY, "sender": name, "recipient": "alice", "messages": 1, "answers": 1,
                 "response_ms": [700]},
            ],
            "storms": [
                {"minute_ms": START, "sender": "alice", "messages": 250, "deliveries": 254, "storm": True},
                {"minute_ms": START + 100 * MINUTE, "sender": name, "messages": 2, "deliveries": 2, "storm": False},
            ],
            "objectives": [
                {"objective": "o-1", "title": name, "assignee": name, "status": "blocked", "created_ms": START,
                 "blocked_ms": 0, "blocked_since_ms": START + MINUTE, "changes": 2, "exchanges": 1, "input_tokens": 10,
                 "output_tokens": 5, "cost_nano_usd": 2_000_000_000},
                {"objective": "o-2", "title": "second", "assignee": "carol", "status": "done", "created_ms": START,
                 "finished_ms": START + 9 * MINUTE, "cycle_ms": 9 * MINUTE, "blocked_ms": 0, "changes": 2,
                 "exchanges": 0, "input_tokens": 0, "output_tokens": 0, "cost_nano_usd": 0},
            ],
            "objective_events": [
                {"offset": 1, "at_ms": START, "objective": "o-1", "status": "active"},
                {"offset": 2, "at_ms": START + MINUTE, "objective": "o-1", "status": "blocked",
                 "happening": '{"kind":"blocked","reason":"waits for o-2"}'},
            ],
            "llm": [
                {"hour_ms": START, "member": name, "model": name, "objective": "o-1", "exchanges": 2,
                 "failed": 1, "late": 0, "unpriced": 0,
                 "input_tokens": 100, "output_tokens": 50, "cache_read_tokens": 0, "cache_write_tokens": 0,
                 "lasted_ms": 5, "cost_nano_usd": 3_500_000_000},
            ],
            "loops": [
                {"day_ms": 20_000 * DAY, "conversation": f"@alice+@{name}", "messages": 5, "hops": 20,
                 "members": ["alice", name], "pauses": 0, "first_ms": START, "last_ms": START + MINUTE},
                {"day_ms": 20_001 * DAY, "conversation": f"@alice+@{name}", "messages": 0, "hops": 0, "members": [],
                 "pauses": 1, "first_ms": START + DAY, "last_ms": START + DAY},
            ],
            "findings": [
                {"day_ms": 20_000 * DAY, "offset": 41, "kind": "chain", "member": "", "at_ms": START,
                 "what": "row 41 does not follow from the row before it"},
                {"day_ms": 20_000 * DAY, "offset": 7, "kind": "signature", "member": name, "at_ms": START,
                 "what": "the signature of m is failed"},
            ],
            "threads": [
                {"day_ms": 20_000 * DAY, "conversation": f"@alice+@{name}", "messages": 7, "first_ms": START,
                 "last_ms": START + MINUTE, "participants": ["alice", name], "last_sender": "alice", "version": 9,
                 "unanswered": False},
            ],
            "members": [
                {"day_ms": 20_000 * DAY, "member": member, "sent": sent, "received": received, "departed": departed,
                 "offered": 4, "acked": 3, "refused": 1, "exchanges": 0, "cost_nano_usd": 0, "first_ms": START,
                 "last_ms": START, "heard_ms": heard_ms}
                for member, sent, received, departed, heard_ms in (
                    ("alice", 250, 0, 0, START), (name, 2, 4, 4, START + 100 * MINUTE), ("carol", 0, 2, 2, None),
                    ("dave", 0, 250, 1, None),
                )
            ],
            "service": [
                {**steps, "day_ms": 20_000 * DAY, "member": name, "protocol": "tieline", "priority": "normal",
                 "offered": 4, "acked": 4, "offered_ms": [1, 2, 3, 4], "acked_ms": [10, 20, 30, 4000]},
                {**steps, "day_ms": 20_000 * DAY, "member": "carol", "protocol": "agent-channels", "priority": "normal",
                 "offered": 2, "acked": 0, "offered_ms": [5, 7], "acked_ms": []},
                {**steps, "day_ms": 20_000 * DAY, "member": "dave", "protocol": "", "priority": "normal",
                 "offered": 0, "acked": 0, "expired": 1, "offered_ms": [], "acked_ms": []},
            ],
            "activity": [{"offset": 0, "at_ms": START, "ts_ms": START, "number": 1, "kind": "llm_exchange"}],
        },
    )  # fmt: skip
