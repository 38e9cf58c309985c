"""Tests that other programs read the tables of a lake without Tieline, as the page on the pipeline shows it.

These programs are DuckDB, Polars, pandas, and Sail by its own reader of Delta. `test_object_store.py` reads every gold
table of a lake in an object store.
"""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from tests.faults.processes import ROOT
from tests.pipeline.oracle import Oracle, ordered
from tests.pipeline.plain_oracle import rank
from tests.pipeline.test_engines import SAIL_ENGINE, job, sail
from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TABLE = "edges"
"""A table with numbers, texts, lists and nulls."""
PAGE = (ROOT / "docs" / "pipeline.md").read_text("utf-8")


def example(part: str, language: str = "python") -> str:
    """Return the only block of the page that contains `part`."""
    (found,) = (block for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if part in block)
    return str(found)


def last_value(code: str, known: Mapping[str, Any] | None = None) -> Any:
    """Run Python code. Return the value of its last line, which is an expression or sets a name."""
    names = dict(known or {})
    *_, last = parsed = ast.parse(code).body
    exec(compile(ast.Module([*parsed], []), "docs/pipeline.md", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "docs/pipeline.md", "eval"), names)
    assert isinstance(last, ast.Assign)
    return names[ast.unparse(last.targets[0])]


@pytest.fixture
def beside_a_lake(filled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: the current folder has the filled lake under the name `lake`, as on the page."""
    (tmp_path / "lake").symlink_to(filled.path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("beside_a_lake")
def test_the_examples_of_the_page_read_the_lake_with_duckdb_polars_and_pandas(filled: Lake, oracle: Oracle) -> None:
    pairs = Counter[tuple[str, str]]()
    for _, sender, recipient, messages, *_ in oracle.rows(TABLE):
        pairs[sender, recipient] += messages
    expected = [(*pair, count) for pair, count in pairs.items()]
    assert expected
    assert ordered(last_value(example("from edges where day >=")).fetchall()) == ordered(expected)
    assert ordered(last_value(example("polars.read_delta")).rows()) == ordered(expected)
    opened = last_value(example("commits.number.idxmax()"), {"DeltaTable": DeltaTable})
    assert opened.version() == filled.head().versions[TABLE]
    times: dict[str, list[int]] = defaultdict(list)
    for member, *_, acked, _, _ in oracle.rows("latency"):
        times[member] += acked
    latency = filled.table("latency").to_pyarrow_table()
    found = dict(duckdb.execute(example("unnest(acked_ms)", "sql")).fetchall())
    assert latency.num_rows
    assert found == {member: rank(sorted(each), 0.99) for member, each in times.items() if each}


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
