"""`tieline pipeline …`: turns a hub's logs into tables, queries the tables, and checks them. It needs no running hub.

Used by: `main`. Uses: `tieline.pipeline`, which is imported only when a command runs, because it needs more packages.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tieline.cli.audit import HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.cli.session import ended_by

if TYPE_CHECKING:
    from tieline.pipeline.lake import Lake

pipeline_app = typer.Typer(help="Turn the logs into tables, on Spark.", no_args_is_help=True)

_LAKE_FOLDER = "lake"
_ROWS_SHOWN = 1000
_EVERY_DAYS_MAX = 7  # the hub keeps messages for a week

HubOption = Annotated[
    str | None,
    typer.Option("--hub", metavar="URL", help="Read from this hub, over HTTP, instead of a home.", show_default=False),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        envvar="TIELINE_TOKEN",
        help="Token with the permission log.read, for --hub.",
        show_default=False,
        show_envvar=True,
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="PLACE",
        help="Folder or URL of the tables, such as s3://bucket/lake. Default: <home>/lake.",
        show_default=False,
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="M",
        help="Spark master, such as spark://HOST:7077, or sc://HOST of a Spark Connect server. Default: local[*].",
        show_default=False,
    ),
]
EngineOption = Annotated[
    Literal["spark", "sail"] | None,
    typer.Option(
        "--engine", help="Engine: Spark, or Sail, which needs no Java. Default: spark if installed.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@pipeline_app.command("run")
def run(  # noqa: PLR0913 - as many options
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    lake: LakeOption = None,
    master: MasterOption = None,
    engine: EngineOption = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--once",
            help="Keep reading new rows until Ctrl-C, or stop at the end of the log, which is the default.",
            show_default=False,
        ),
    ] = None,
    *,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="TIME",
            help="Follow, but run only so often, for example 5m. Between the runs there is no Spark.",
            show_default=False,
        ),
    ] = None,
    alerts: Annotated[
        str | None,
        typer.Option("--alerts", metavar="TARGET", help="Send each finding once to this '#channel' or '@member'."),
    ] = None,
    speaker: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Member that sends the alerts. Default: pipeline.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", min=0, help="Budget for models per day, for alerts."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read the new rows of the logs into the tables.

    If a run is stopped, even by force, nothing is lost or counted twice: the next run continues after the last complete
    batch. With --json, the last line is {"events_read", "batches", "tables", "seconds"}.
    """

    def work() -> None:
        if every is not None and follow is not False:
            _run_every(every)
            return
        where = log_options(home, hub, token)
        alert_options = AlertOptions(alerts, speaker, budget, home, where.get("url"), where.get("token"))
        _run(
            where,
            open_lake(home, lake),
            spark_master(master, engine),
            alert_options,
            follow=bool(follow),
            quiet=every is not None,
            json=json,
        )

    ended_by(work, json=json)


@pipeline_app.command("status")
def status(home: HomeOption = None, lake: LakeOption = None, json: JsonOption = False) -> None:
    """Show the tables, the position in the logs, and the number of rows to read."""
    ended_by(lambda: _status(home, open_lake(home, lake), json=json), json=json)


@pipeline_app.command("sql")
def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Query in Spark SQL. 'status' lists the names of the tables.")
    ],
    home: HomeOption = None,
    lake: LakeOption = None,
    master: MasterOption = None,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Query the tables with SQL. At most 1000 rows are printed. The query must only read."""
    ended_by(lambda: _sql(query, open_lake(home, lake), spark_master(master, engine), json=json), json=json)


@pipeline_app.command("rebuild")
def rebuild(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Name of the table; 'status' lists the tables.", show_default=False),
    ] = None,
    home: HomeOption = None,
    lake: LakeOption = None,
    master: MasterOption = None,
    engine: EngineOption = None,
    every: Annotated[bool, typer.Option("--all", help="Compute all tables; also those of an older version.")] = False,
    json: JsonOption = False,
) -> None:
    """Compute a table again from all rows that were read. Needed after a change of prices or of a table's rules.

    With --all, compute all tables. A lake that an older version of Tieline wrote gets the present form.
    """
    tables = None if every else table
    ended_by(
        lambda: _rebuild(tables, open_lake(home, lake), spark_master(master, engine), every=every, json=json), json=json
    )


@pipeline_app.command("rewind")
def rewind(
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    lake: LakeOption = None,
    master: MasterOption = None,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Go back to what the log still has, after the hub was restored from a backup.

    Rows that the log does not have any more, and all that was computed from them, leave the tables.
    """
    ended_by(
        lambda: _rewind(log_options(home, hub, token), open_lake(home, lake), spark_master(master, engine), json=json),
        json=json,
    )


def _run_every(every: str) -> None:
    """Run this same command again and again, without `--follow`. `every` is the interval as text, such as `5m`."""
    import sys

    from tieline.cli.duration import duration_option
    from tieline.cli.pipeline_every import run_every

    run_every(duration_option(every, "--every", _EVERY_DAYS_MAX), sys.argv[1:])


def log_options(home: Path | None, hub: str | None, token: str | None) -> dict[str, str]:
    """Return the options that name the source of the logs: the hub's home folder, or the hub's URL and token.

    Raise `Failure` if the options are not complete.
    """
    from tieline.wire.home import find_home

    if hub is None:
        folder = find_home(home)
        if not (folder / "tieline.db").exists():
            raise Failure(
                Exit.USAGE, f"there is no log in {folder}", "name the hub's home with --home DIR, or --hub URL"
            )
        return {"home": str(folder)}
    if home is not None:
        raise Failure(Exit.USAGE, "--home and --hub exclude each other")
    if not token:
        hint = "'tieline member add NAME --permission log.read' creates one; give it as --token or TIELINE_TOKEN"
        raise Failure(Exit.USAGE, "--hub needs a token", hint)
    return {"url": hub if "://" in hub else f"http://{hub}", "token": token}


def open_lake(home: Path | None, lake: str | None) -> "Lake":
    """Return the lake (the folder or URL with the pipeline's tables) for a command.

    It is the folder or URL `lake`, if given; else the folder `lake` in the hub's home.
    """
    from tieline.wire.home import find_home

    require_extra()
    from tieline.pipeline.lake import Lake

    if lake is None:
        return Lake(find_home(home) / _LAKE_FOLDER)
    return Lake(lake if "://" in lake else Path(lake).expanduser().absolute())


def spark_master(master: str | None, engine: str | None) -> str:
    """Return the Spark master that a command uses: `master`, else the one of `engine`, else the default."""
    from tieline.pipeline.engines import LOCAL, SAIL, default_master

    if engine == SAIL and master is not None:
        raise Failure(
            Exit.USAGE, "--engine sail and --master exclude each other", "a Sail server has a master sc://HOST"
        )
    if engine == SAIL:
        return SAIL
    return master or (default_master() if engine is None else LOCAL)


def require_extra() -> None:
    from tieline.pipeline.java import MissingPart, require_extra

    try:
        require_extra()
    except MissingPart as error:
        raise Failure(Exit.FAILED, str(error)) from error


def _require_tables(lake: "Lake") -> None:
    with told_failures():
        if lake.head().number == 0:
            raise Failure(Exit.FAILED, f"{lake} is empty", "'tieline pipeline run' fills it")


@contextlib.contextmanager
def told_failures() -> Iterator[None]:
    """Turn an error of a log or a lake (the pipeline's tables) in the `with` block into a `Failure`."""
    from tieline.pipeline.http_log import LogRefused, LogUnreachable
    from tieline.pipeline.java import MissingPart
    from tieline.pipeline.lake import LakeError
    from tieline.pipeline.run import RunFailed

    try:
        yield
    except (MissingPart, LakeError, RunFailed) as error:
        raise Failure(Exit.FAILED, str(error)) from error
    except LogUnreachable as error:
        raise Failure(Exit.UNREACHABLE, str(error)) from error
    except LogRefused as error:
        raise Failure(Exit.REFUSED, str(error)) from error


@contextlib.contextmanager
def spark_session(master: str, *, brief: bool = False) -> Iterator[Any]:
    """Start a Spark session with a temporary folder, and yield it.

    An error inside the `with` block becomes a `Failure`. A `brief` session is configured for a small amount of work.
    `master` is the address of the Spark cluster.
    """
    from tieline.pipeline.session import start_session

    with tempfile.TemporaryDirectory(prefix="tieline-spark-", ignore_cleanup_errors=True) as scratch, told_failures():
        try:
            spark = start_session(master, scratch=Path(scratch), brief=brief)
            try:
                yield spark
            finally:
                spark.stop()
        except KeyboardInterrupt as error:
            raise Failure(Exit.INTERRUPTED, "stopped before it was done") from error
        except Exception as error:
            # Only errors of Spark, and of the bridge to Spark.
            if not type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise
            raise Failure(Exit.FAILED, f"Spark: {_first_line(error)}") from error


def is_little(rows: int) -> bool:
    """Return true if `rows` is so small that a Spark session for a small amount of work is better."""
    from tieline.pipeline.flow import FEW_ROWS

    return rows < FEW_ROWS


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _run(
    where: dict[str, str],
    lake: "Lake",
    master: str,
    alert_options: AlertOptions,
    *,
    follow: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Read the new rows of the log that `where` names into the tables of `lake`.

    With `quiet`, print nothing if there are no new rows, because this run is one of very many.
    """
    from tieline.cli.pipeline_progress import Display
    from tieline.cli.pipeline_run import Run, interrupts
    from tieline.cli.pipeline_status import kept_for, kept_sentence
    from tieline.pipeline.run import Summary, is_brief, new_rows

    _renew(lake, master)
    with told_failures():
        waiting, before = new_rows(lake, where), lake.head()
    kept = kept_for(lake, where)
    after_batch = AfterBatch(lake, alert_options, where)
    summary, ended = Summary(), False
    # Without new rows Spark is not started: its start takes longer than most runs.
    if waiting or follow or before.unerased():
        brief = is_brief(lake, waiting) and not follow
        with (
            Display(waiting, quiet=json) as display,
            spark_session(master, brief=brief) as spark,
            interrupts() as noted,
        ):
            summary = Run(lake, where, display, after_batch, noted).bring_in(spark, follow=follow)
            ended = bool(noted)
    told = after_batch.finish()
    missed = {name: count for name, count in summary.missed.items() if count > before.missed().get(name, 0)}
    erased = lake.newest().counts.get("erased", 0) - before.counts.get("erased", 0)
    if json:
        from tieline.cli.documents import OPTIONAL, PipelineRun, fill

        all_missed = summary.missed if missed else OPTIONAL
        print_json(fill(PipelineRun, summary, missed=all_missed, erased=erased or OPTIONAL))
    elif summary.batches:
        batches = "a batch" if summary.batches == 1 else f"{summary.batches} batches"
        say(f"{summary.events_read:,} events in {batches}, {summary.seconds:.1f} s: {lake}")
    elif not ended and not quiet:
        say(f"Nothing new: {lake} is up to date.")
    if kept is not None and not json and (summary.batches or not quiet):
        say(kept_sentence(kept, "was used up before this run"))
    if erased and not json:
        what = "a redacted message" if erased == 1 else f"{erased} redacted messages"
        say(f"The tables have nothing any more that quotes {what}.")
    if told and not json:
        say(f"{told} alert{'s' if told > 1 else ''} went to {neutral_line(alert_options.target or '')}.")
    if ended and not follow and summary.events_read < waiting:
        raise Failure(Exit.INTERRUPTED, "stopped before all rows were read", "run the same command again to continue")
    if missed:
        hint = "run the pipeline more often, or raise reader_wait_ms and reader_wait_bytes of the hub"
        raise Failure(Exit.MISSED, missing(summary.missed), hint)


def _renew(lake: "Lake", master: str) -> None:
    """Compute all tables of a lake again if an older version of Tieline wrote it."""
    from tieline.pipeline.lake import OldLake
    from tieline.pipeline.run import rebuild_all

    try:
        with told_failures():
            lake.head()
    except Failure as failure:
        if not isinstance(failure.__cause__, OldLake):
            raise
        warn(f"An older version of Tieline wrote {lake}. First all its tables are made anew from the rows that it has.")
        with spark_session(master) as spark:
            rebuild_all(spark, lake)


def missing(missed: dict[str, int]) -> str:
    """Return a sentence about the rows that the hub deleted before the pipeline read them.

    `missed` has the number of deleted rows of each kind.
    """
    from tieline.pipeline.lake import MISSED

    what = " and ".join(f"{count:,} {MISSED[name]}" for name, count in missed.items())
    return f"the hub had deleted {what} before they were read, so the tables do not count them"


def _status(home: Path | None, lake: "Lake", *, json: bool) -> None:
    from tieline.cli.pipeline_status import show_status

    where: dict[str, str] = {}
    with contextlib.suppress(Failure):
        where = log_options(home, None, None)
    show_status(lake, where, json=json)


def _sql(query: str, lake: "Lake", master: str, *, json: bool) -> None:
    from tieline.cli.output import print_table

    _require_tables(lake)
    with spark_session(master, brief=is_little(sum(lake.head().sizes.values()))) as spark:
        from tieline.pipeline.question import BadQuestion, ask

        try:
            names, rows = ask(spark, lake, query, _ROWS_SHOWN + 1)
        except BadQuestion as error:
            raise Failure(Exit.USAGE, str(error), error.hint) from error
    more = len(rows) > _ROWS_SHOWN
    plain = [[_plain(value) for value in row] for row in rows[:_ROWS_SHOWN]]
    if json:
        print_json([dict(zip(names, row, strict=True)) for row in plain])
    else:
        print_table(tuple(names), [tuple(_cell(value) for value in row) for row in plain], empty="no rows")
    if more:
        warn(f"These are the first {_ROWS_SHOWN:,} rows; there are more.")


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case list() | dict():
            import msgspec

            return neutral_line(msgspec.json.encode(value).decode())
        case _:
            return neutral_line(str(value))


def _plain(value: Any) -> Any:
    """Return a value from a Spark row as a JSON value."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return value.hex()
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case _:
            return str(value)


def _rebuild(table: str | None, lake: "Lake", master: str, *, every: bool, json: bool) -> None:
    from tieline.pipeline.catalogue import BRONZE, REBUILDABLE

    newest = lake.newest()
    if not every or not (newest.number or lake.is_old()):
        _require_tables(lake)
    if table is None and not every:
        raise Failure(Exit.USAGE, "name a table, or --all")
    if table is not None and table not in REBUILDABLE:
        raise Failure(Exit.USAGE, f"there is no table {table!r}", f"there are {', '.join(REBUILDABLE)}")
    with spark_session(master, brief=not lake.is_old() and is_little(newest.rows(BRONZE))) as spark:
        from tieline.pipeline.run import rebuild, rebuild_all

        head = rebuild_all(spark, lake) if table is None else rebuild(spark, lake, table)
    rows = {name: head.rows(name) for name in REBUILDABLE if table in (None, name)}
    if json:
        from tieline.cli.documents import RebuiltTable, RebuiltTables

        print_json(RebuiltTables(rows) if table is None else RebuiltTable(table, rows[table]))
        return
    for name, count in rows.items():
        say(f"{name} has {count:,} rows.")


def _rewind(where: dict[str, str], lake: "Lake", master: str, *, json: bool) -> None:
    import asyncio

    _require_tables(lake)
    with spark_session(master, brief=is_little(sum(lake.head().position.values()))) as spark:
        from tieline.pipeline.reader import tell_position
        from tieline.pipeline.run import rewind

        before = lake.head()
        head = rewind(spark, lake, where)
        asyncio.run(tell_position(lake, where, head, rewind=True))
    if json:
        from tieline.cli.documents import Rewound

        print_json(Rewound(before.position, head.position))
    else:
        went = ", ".join(f"{log} from {before.position[log]:,} to {end:,}" for log, end in head.position.items())
        say(f"The lake went back: {went}.")
