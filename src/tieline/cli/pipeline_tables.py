"""`tieline pipeline tables`: every table and column, with its meaning, its sources, its age and its tests.

Used by: `main`. Uses: the definitions of the tables, and the lake (the folder or URL of the tables). The command needs
no Spark session.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.audit import HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, print_table, say, warn
from tieline.cli.pipeline import JsonOption, LakeOption, open_lake, pipeline_app
from tieline.cli.pipeline_report import report
from tieline.cli.pipeline_verify import verify
from tieline.cli.session import ended_by

if TYPE_CHECKING:
    from tieline.cli.documents import TableState
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
    ended_by(lambda: _tables(_open_lake(home, lake), table, check=check, json=json), json=json)


def _open_lake(home: Path | None, lake: str | None) -> "Lake":
    """Return the lake of the tables. The error for missing packages names the page that describes the tables."""
    from tieline.console.documentation import PREFIX
    from tieline.wire.home import find_home, read_running

    try:
        return open_lake(home, lake)
    except Failure as failure:
        running = read_running(find_home(home))
        page = f"{running.public if running else ''}{PREFIX}/reference/tables/"
        where = page if running else f"{page} of a hub"
        raise Failure(failure.code, failure.message, f"{where} describes every table and column") from failure


def _tables(lake: "Lake", table: str | None, *, check: bool, json: bool) -> None:
    from tieline.cli.documents import TableColumn, TableState
    from tieline.pipeline.catalogue import KEYS, SCHEMAS, about, described, sources, tests
    from tieline.pipeline.checks import check_tables, read_checked
    from tieline.pipeline.lake import LakeError

    if table is not None and table not in SCHEMAS:
        raise Failure(Exit.USAGE, f"there is no table {table!r}", f"there are {', '.join(SCHEMAS)}")
    try:
        checked = check_tables(lake, everything=True) if check else read_checked(lake)
        head, changed = lake.head(), lake.last_written()
        failed = {one.table: one.what for one in checked.failed}
        found = [
            TableState(
                table=name,
                about=about(name),
                sources=sources(name),
                keys=list(KEYS[name]),
                rows=head.rows(name),
                newest_day=_newest_day(lake, name),
                changed_ms=changed.get(name),
                tests=tests(name),
                columns=[TableColumn(**column) for column in described(name)],
                tested_commit=None if name in failed else checked.passed.get(name),
                failed=failed.get(name),
            )
            for name in SCHEMAS
            if table in (None, name)
        ]
    except LakeError as error:
        raise Failure(Exit.FAILED, str(error)) from error
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


def _newest_day(lake: "Lake", name: str) -> str | None:
    days = [file.day for file in lake.day_files(name, lake.head()) if file.day is not None]
    return max(days, default=None)


def _print_all(found: "list[TableState]") -> None:
    print_table(
        ("TABLE", "ROWS", "NEWEST DAY", "CHANGED", "TESTS", "FROM", "A ROW IS"),
        [
            (
                one.table, f"{one.rows:,}", one.newest_day or "",
                local_time(one.changed_ms) if one.changed_ms else "", _state(one), ", ".join(one.sources),
                one.about.removeprefix("One row for ").removesuffix("."),
            )
            for one in found
        ],
        empty="no tables",
    )  # fmt: skip
    say("'tieline pipeline tables TABLE' shows the columns of a table.")


def _print_one(one: "TableState") -> None:
    say(f"{one.table}: {one.about}", style="bold")
    changed = f", last changed {local_time(one.changed_ms)}" if one.changed_ms else ""
    say(f"{one.rows:,} rows{changed}. From: {', '.join(one.sources)}.")
    print_table(
        ("COLUMN", "TYPE", "MEANING"),
        [(column.column, column.type, column.meaning) for column in one.columns],
        empty="no columns",
    )
    say(f"Tests ({_state(one)}):")
    for test in one.tests:
        say(f"  {test}")


def _state(one: "TableState") -> str:
    if one.failed:
        return "failed"
    return "not run" if one.tested_commit is None else "passed"
