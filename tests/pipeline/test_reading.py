"""Tests that other programs read the tables of a lake without Tieline: pandas, and Sail by its own reader of Delta.

`test_object_store.py` does the same with DuckDB and Polars.
"""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.pipeline.oracle import Oracle, ordered
from tests.pipeline.test_engines import SAIL_ENGINE, job, sail
from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TABLE = "edges"
"""A table with numbers, texts, lists and nulls."""


def test_pandas_reads_a_table(filled: Lake, oracle: Oracle) -> None:
    found = DeltaTable(filled.path / TABLE).to_pandas()[SCHEMAS[TABLE].fieldNames()]
    lists = found["response_ms"].map(list)
    assert lists.map(len).tolist() == found["answers"].tolist()
    rows = [tuple(row) for row in found.assign(response_ms=lists).drop(columns="response_p50_ms").to_numpy().tolist()]
    assert ordered(rows) == ordered([row[:-1] for row in oracle.rows(TABLE)])
    middles = found["response_p50_ms"].dropna().astype(int).tolist()
    assert sorted(middles) == sorted(row[-1] for row in oracle.rows(TABLE) if row[-1] is not None)


@sail
def test_sail_reads_a_table_by_itself(filled: Lake, oracle: Oracle, made_home: Path) -> None:
    *_, told = job(SAIL_ENGINE, made_home, filled, f"native:{TABLE}")
    assert ordered([tuple(row) for row in json.loads(told)]) == oracle.rows(TABLE)
