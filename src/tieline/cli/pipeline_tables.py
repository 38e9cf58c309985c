"""`tieline pipeline tables`: every table and column, with its meaning, its sources, its age and its tests.

Used by: `main`. Uses: the definitions of the tables, and the lake (the folder or URL of the tables). It needs no Spark
session.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.audit import HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say, warn
from tieline.cli.pipeline import JsonOption, LakeOption, open_lake, pipeline_app
from tieline.cli.pipeline_report import report
from tieline.cli.pipeline_verify import verify
from tieline.cli.session import ended_by

if TYPE_CHECKING:
    from tieline.pipeline.lake import Lake

__all__ = ["pipeline_app", "report", "verify"]


@pipeline_app.command()
def tables(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Show the columns of this table.", show_default=False)
    ] = None,
    home: HomeOption = None,
    lake: LakeOption = None,
    check: Annotated[bool, typer.Option("--check", help="Test all rows of all tables now.")] = False,
    json: JsonOption = False,
) -> None:
    """List the tables: what a row is, the sources, the rows, the last change, and the tests.

    A run tests what it wrote. With --check, everything is tested, and the exit code is 1 if a test fails.
    """
    ended_by(lambda: _tables(open_lake(home, lake), table, check=check, json=json))


def _tables(lake: "Lake", table: str | None, *, check: bool, json: bool) -> None:
    from tieline.pipeline.catalogue import SCHEMAS
    from tieline.pipeline.checks import check_tables, read_checked
    from tieline.pipeline.lake import LakeError

    if table is not None and table not in SCHEMAS:
        raise Failure(Exit.USAGE, f"there is no table {table!r}", f"there are {', '.join(SCHEMAS)}")
    try:
        checked = check_tables(lake, everything=True) if check else read_checked(lake)
        head, changed = lake.head(), lake.last_written()
        found = [
            _described(lake, name, head.rows(name), changed.get(name)) for name in SCHEMAS if table in (None, name)
        ]
    except LakeError as error:
        raise Failure(Exit.FAILED, str(error)) from error
    failed = {one.table: one.what for one in checked.failed}
    for one in found:
        name = one["table"]
        one["tested_commit"] = None if name in failed else checked.passed.get(name)
        one["failed"] = failed.get(name)
    if json:
        print_json(found)
    elif table is None:
        _print_all(found)
    else:
        _print_one(found[0])
    for name, what in failed.items():
        warn(f"A test of {name} failed: {neutral_line(what)}.")
    if check and failed:
        raise Failure(
            Exit.FAILED, f"{len(failed)} tables failed their tests", "'tieline pipeline rebuild --all' mends them"
        )


def _described(lake: "Lake", name: str, rows: int, changed_ms: int | None) -> dict[str, Any]:
    from tieline.pipeline.catalogue import KEYS, about, described, sources, tests

    days = [file.day for file in lake.day_files(name, lake.head()) if file.day is not None]
    return {
        "table": name,
        "about": about(name),
        "from": sources(name),
        "keys": list(KEYS[name]),
        "rows": rows,
        "newest_day": max(days, default=None),
        "changed_ms": changed_ms,
        "tests": tests(name),
        "columns": described(name),
    }


def _print_all(found: list[dict[str, Any]]) -> None:
    print_table(
        ("TABLE", "ROWS", "NEWEST DAY", "CHANGED", "TESTS", "FROM", "A ROW IS"),
        [
            (
                one["table"], f"{one['rows']:,}", one["newest_day"] or "",
                local_time(one["changed_ms"]) if one["changed_ms"] else "", _state(one), ", ".join(one["from"]),
                one["about"].removeprefix("One row for ").removesuffix("."),
            )
            for one in found
        ],
        empty="no tables",
    )  # fmt: skip
    say("'tieline pipeline tables TABLE' shows the columns of a table.")


def _print_one(one: dict[str, Any]) -> None:
    say(f"{one['table']}: {one['about']}", style="bold")
    changed = f", last changed {local_time(one['changed_ms'])}" if one["changed_ms"] else ""
    say(f"{one['rows']:,} rows{changed}. From: {', '.join(one['from'])}.")
    print_table(
        ("COLUMN", "TYPE", "MEANING"),
        [(column["column"], column["type"], column["meaning"]) for column in one["columns"]],
        empty="no columns",
    )
    say(f"Tests ({_state(one)}):")
    for test in one["tests"]:
        say(f"  {test}")


def _state(one: dict[str, Any]) -> str:
    if one["failed"]:
        return "failed"
    return "not run" if one["tested_commit"] is None else "passed"
