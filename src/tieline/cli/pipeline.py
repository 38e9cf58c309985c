"""`tieline pipeline …`: turns a hub's logs into tables, queries the tables, and checks them. It needs no running hub.

Used by: `main`. Uses: `tieline.pipeline`, which is imported only when a command runs, because it needs more packages.
"""

import contextlib
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.audit import CheckpointOption, HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.cli.session import ended_by
from tieline.protocols import protocols

if TYPE_CHECKING:
    from tieline.pipeline.lake import Lake
    from tieline.pipeline.verify import VerifyReport

pipeline_app = typer.Typer(help="Turn the logs into tables, on Spark.", no_args_is_help=True)

_LAKE_FOLDER = "lake"
_ROWS_SHOWN = 1000
_FINDINGS_SHOWN = 10

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
MasterOption = Annotated[str, typer.Option("--master", metavar="M", help="Spark master.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_SIGNED = {each.name: each.signatures.variable for each in protocols() if each.signatures is not None}
"""Names of the environment variables with the secrets for message signatures, by protocol."""
_VERIFY_HELP = "\n\n".join(
    (
        "Check the audit chain and the stored data against it, in parallel.",
        textwrap.fill(
            "Checkpoints, in the home or kept elsewhere, show if the end of the chain was cut off. "
            + "".join(
                f"With {variable} set, the signatures of {name} messages are checked too. "
                for name, variable in _SIGNED.items()
            )
            + "Exit codes: 0 intact, 1 broken, 2 could not be checked, 3 refused, 4 hub not reachable.",
            116,
        ),
    )
)


@pipeline_app.command("run")
def run(  # noqa: PLR0913 - as many options
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    lake: LakeOption = None,
    master: MasterOption = "local[*]",
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Keep reading new rows until Ctrl-C, or stop at the end of the log.")
    ] = False,
    *,
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
        where = _where(home, hub, token)
        alert_options = AlertOptions(alerts, speaker, budget, home, where.get("url"), where.get("token"))
        _run(where, open_lake(home, lake), master, alert_options, follow=follow, json=json)

    ended_by(work)


@pipeline_app.command("status")
def status(home: HomeOption = None, lake: LakeOption = None, json: JsonOption = False) -> None:
    """Show the tables, the position in the logs, and the number of rows to read."""
    ended_by(lambda: _status(home, open_lake(home, lake), json=json))


@pipeline_app.command("sql")
def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Query in Spark SQL. 'status' lists the names of the tables.")
    ],
    home: HomeOption = None,
    lake: LakeOption = None,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
) -> None:
    """Query the tables with SQL. At most 1000 rows are printed. The query must only read."""
    ended_by(lambda: _sql(query, open_lake(home, lake), master, json=json))


@pipeline_app.command("rebuild")
def rebuild(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Name of the table; 'status' lists the tables.", show_default=False),
    ] = None,
    home: HomeOption = None,
    lake: LakeOption = None,
    master: MasterOption = "local[*]",
    every: Annotated[bool, typer.Option("--all", help="Compute all tables; also those of an older version.")] = False,
    json: JsonOption = False,
) -> None:
    """Compute a table again from all rows that were read. Needed after a change of prices or of a table's rules.

    With --all, compute all tables. A lake that an older version of Tieline wrote gets the present form.
    """
    ended_by(lambda: _rebuild(None if every else table, open_lake(home, lake), master, every=every, json=json))


@pipeline_app.command("rewind")
def rewind(
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    lake: LakeOption = None,
    master: MasterOption = "local[*]",
    json: JsonOption = False,
) -> None:
    """Go back to what the log still has, after the hub was restored from a backup.

    Rows that the log does not have any more, and all that was computed from them, leave the tables.
    """
    ended_by(lambda: _rewind(_where(home, hub, token), open_lake(home, lake), master, json=json))


@pipeline_app.command("verify", help=_VERIFY_HELP)
def verify(
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    master: MasterOption = "local[*]",
    checkpoint: CheckpointOption = None,
    json: JsonOption = False,
) -> None:
    """Check the audit chain and the stored data against it, in parallel."""
    ended_by(lambda: _verify(_where(home, hub, token), master, checkpoint or [], json=json))


def _where(home: Path | None, hub: str | None, token: str | None) -> dict[str, str]:
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

    _require_extra()
    from tieline.pipeline.lake import Lake

    if lake is None:
        return Lake(find_home(home) / _LAKE_FOLDER)
    return Lake(lake if "://" in lake else Path(lake).expanduser().absolute())


def _require_extra() -> None:
    from tieline.pipeline.java import MissingPart, require_extra

    try:
        require_extra()
    except MissingPart as error:
        raise Failure(Exit.FAILED, str(error)) from error


def _require_tables(lake: "Lake") -> None:
    with _told():
        if lake.head().number == 0:
            raise Failure(Exit.FAILED, f"{lake} is empty", "'tieline pipeline run' fills it")


@contextlib.contextmanager
def _told() -> Iterator[None]:
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
def _session(master: str, *, brief: bool = False) -> Iterator[Any]:
    """Start a Spark session with a temporary folder, and yield it.

    An error inside the `with` block becomes a `Failure`. A `brief` session is configured for a small amount of work.
    `master` is the address of the Spark cluster.
    """
    from tieline.pipeline.session import start_session

    with tempfile.TemporaryDirectory(prefix="tieline-spark-", ignore_cleanup_errors=True) as scratch, _told():
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


def _is_little(rows: int) -> bool:
    """Return true if `rows` is so small that a Spark session for a small amount of work is better."""
    from tieline.pipeline.flow import FEW_ROWS

    return rows < FEW_ROWS


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _run(
    where: dict[str, str], lake: "Lake", master: str, alert_options: AlertOptions, *, follow: bool, json: bool
) -> None:
    import msgspec

    from tieline.cli.pipeline_progress import Display
    from tieline.cli.pipeline_run import Run, interrupts
    from tieline.pipeline.run import Summary, is_brief, new_rows

    with _told():
        waiting, before = new_rows(lake, where), lake.head().missed()
    after_batch = AfterBatch(lake, alert_options, where)
    summary, ended = Summary(), False
    # Without new rows Spark is not started: its start takes longer than most runs.
    if waiting or follow:
        brief = is_brief(lake, waiting) and not follow
        with Display(waiting, quiet=json) as display, _session(master, brief=brief) as spark, interrupts() as noted:
            summary = Run(lake, where, display, after_batch, noted).bring_in(spark, follow=follow)
            ended = bool(noted)
    told = after_batch.finish()
    missed = {name: count for name, count in summary.missed.items() if count > before.get(name, 0)}
    if json:
        told_all = msgspec.structs.asdict(summary)
        print_json({name: value for name, value in told_all.items() if name != "missed" or missed})
    elif summary.batches:
        batches = "a batch" if summary.batches == 1 else f"{summary.batches} batches"
        say(f"{summary.events_read:,} events in {batches}, {summary.seconds:.1f} s: {lake}")
    elif not ended:
        say(f"Nothing new: {lake} is up to date.")
    if told and not json:
        say(f"{told} alert{'s' if told > 1 else ''} went to {neutral_line(alert_options.target or '')}.")
    if ended and not follow and summary.events_read < waiting:
        raise Failure(Exit.INTERRUPTED, "stopped before all rows were read", "run the same command again to continue")
    if missed:
        hint = "run the pipeline more often, or raise reader_wait_ms and reader_wait_bytes of the hub"
        raise Failure(Exit.MISSED, missing(summary.missed), hint)


def missing(missed: dict[str, int]) -> str:
    """Return a sentence about the rows that the hub deleted before the pipeline read them.

    `missed` has the number of deleted rows of each kind.
    """
    from tieline.pipeline.lake import MISSED

    what = " and ".join(f"{count:,} {MISSED[name]}" for name, count in missed.items())
    return f"the hub had deleted {what} before they were read, so the tables do not count them"


def _status(home: Path | None, lake: "Lake", *, json: bool) -> None:
    from tieline.cli.output import print_table
    from tieline.pipeline.run import new_rows

    with _told():
        head = lake.head()
        tables = {
            name: {"rows": head.rows(name), "files": len(lake.data_files(name, head)), "version": version}
            for name, version in sorted(head.versions.items())
        }
    waiting: int | None = None
    with contextlib.suppress(Failure), _told():
        waiting = new_rows(lake, _where(home, None, None))
    if json:
        told = {"lake": str(lake), "commit": head.number, "at_ms": head.at_ms, "position": head.position,
                "engine": head.engine}  # fmt: skip
        print_json({**told, "waiting": waiting, "missed": head.missed(), "counts": head.counts, "tables": tables})
        return
    if head.number == 0:
        say(f"{lake} is empty: 'tieline pipeline run' fills it.")
        return
    print_table(
        ("TABLE", "ROWS", "FILES"),
        [(name, f"{one['rows']:,}", str(one["files"])) for name, one in tables.items()],
        empty="no tables",
    )
    read = ", ".join(f"{log} up to {end:,}" for log, end in head.position.items())
    say(f"Commit {head.number}; read: {read}" + ("." if waiting is None else f"; {waiting:,} rows wait."))
    if head.missed():
        warn(f"Of all rows, {missing(head.missed())}.")


def _sql(query: str, lake: "Lake", master: str, *, json: bool) -> None:
    from tieline.cli.output import print_table

    _require_tables(lake)
    with _session(master, brief=_is_little(sum(lake.head().sizes.values()))) as spark:
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

    if not (every and lake.is_old()):
        _require_tables(lake)
    if table is None and not every:
        raise Failure(Exit.USAGE, "name a table, or --all")
    if table is not None and table not in REBUILDABLE:
        raise Failure(Exit.USAGE, f"there is no table {table!r}", f"there are {', '.join(REBUILDABLE)}")
    with _session(master, brief=not lake.is_old() and _is_little(lake.head().rows(BRONZE))) as spark:
        from tieline.pipeline.run import rebuild, rebuild_all

        head = rebuild_all(spark, lake) if table is None else rebuild(spark, lake, table)
    rows = {name: head.rows(name) for name in REBUILDABLE if table in (None, name)}
    if json:
        print_json({"tables": rows} if table is None else {"table": table, "rows": rows[table]})
        return
    for name, count in rows.items():
        say(f"{name} has {count:,} rows.")


def _rewind(where: dict[str, str], lake: "Lake", master: str, *, json: bool) -> None:
    import asyncio

    _require_tables(lake)
    with _session(master, brief=_is_little(sum(lake.head().position.values()))) as spark:
        from tieline.pipeline.reader import tell_position
        from tieline.pipeline.run import rewind

        before = lake.head()
        head = rewind(spark, lake, where)
        asyncio.run(tell_position(lake, where, head, rewind=True))
    if json:
        print_json({"from": before.position, "to": head.position})
    else:
        went = ", ".join(f"{log} from {before.position[log]:,} to {end:,}" for log, end in head.position.items())
        say(f"The lake went back: {went}.")


def _verify(where: dict[str, str], master: str, kept: list[Path], *, json: bool) -> None:
    import msgspec

    from tieline.cli.checkpoints import Checkpoints, read_checkpoints

    _require_extra()
    if "home" in where:
        checkpoints, problems = Checkpoints(Path(where["home"])).read(kept)
    else:
        # There is no signing key here, because the key does not leave the hub's home. Only the given files are read.
        checkpoints, problems = [one for path in kept for one in read_checkpoints(path)], []
    with _checked():
        from tieline.pipeline.row import MAIN
        from tieline.pipeline.source import Options

        rows = Options(where).log().end(MAIN)
        with _session(master, brief=_is_little(rows)) as spark:
            from tieline.pipeline.verify import VerifyFinding, verify

            report = verify(spark, where, checkpoints)
    wrong = [VerifyFinding(report.verified_rows, "checkpoint", problem) for problem in problems]
    report = msgspec.structs.replace(report, findings=(*report.findings, *wrong))
    if json:
        print_json({"intact": report.intact, **msgspec.structs.asdict(report)})
    elif report.intact:
        say(f"Intact: {report.verified_rows:,} rows, {report.messages:,} messages.")
    if report.signatures_unchecked and not json:
        how = "run this on the hub's machine" if "url" in where else f"set {' and '.join(_SIGNED.values())}"
        signed = f"{report.signatures_unchecked:,} {' and '.join(_SIGNED)} messages"
        say(f"The signatures of {signed} were not checked: {how} for that.")
    if not report.intact:
        raise _broken(report)


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    """Raise `Failure` with exit code 2 if an error in the `with` block prevents the check.

    Exit code 1 is reserved for a broken log.
    """
    from tieline.core.store import StoreError

    try:
        with _told():
            yield
    except StoreError as error:
        raise Failure(Exit.USAGE, f"the log could not be checked: {error}") from error
    except Failure as failure:
        if failure.code is not Exit.FAILED:
            raise
        raise Failure(Exit.USAGE, f"the log could not be checked: {failure.message}", failure.hint) from failure


def _broken(report: "VerifyReport") -> Failure:
    first, *others = report.findings
    for finding in others[: _FINDINGS_SHOWN - 1]:
        warn(f"  {neutral_line(finding.what)}")
    left = len(others) - _FINDINGS_SHOWN + 1
    if left > 0:
        warn(f"  … and {'more than ' if report.more else ''}{left} more; --json has {len(report.findings)} of them")
    return Failure(Exit.FAILED, f"the audit chain is not intact: {first.what}")
