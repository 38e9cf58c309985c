"""`tieline audit`: checks and exports the tamper-evident log in a hub's home folder.

Used by: the command line. Uses: `core.audit`, which checks the log through a read-only view of the store (an
inspection). The commands read the home directly, with the hub running or not. An audit through the hub would have to
trust the hub that it checks.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tieline.cli.extension import Export, extensions, offer
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.session import JsonOption, ended_by

if TYPE_CHECKING:
    from tieline.core.audit import Inspection

audit_app = typer.Typer(help="Check and export the audit chain.", no_args_is_help=True)

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="Home folder of the hub. Default: TIELINE_HOME.", show_default=False),
]
CheckpointOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Checkpoint file that was kept elsewhere; may be given several times."),
]

_FINDINGS_SHOWN = 10


_JSONL = "jsonl"
_EXPORTS = {export.form: export for extension in extensions() for export in extension.exports}
"""Export formats that protocols add to `tieline audit export`, by name."""
_EXPORT_HELP = "\n\n".join(
    (
        "; or ".join(
            (
                "Export the log: as JSON, one row per line, with the hashed text and the hash",
                *(export.summary for export in _EXPORTS.values()),
            )
        )
        + ".",
        *(export.help for export in _EXPORTS.values()),
    )
)


@audit_app.command("verify")
def verify(
    home: HomeOption = None,
    checkpoint: CheckpointOption = None,
    json: JsonOption = False,
) -> None:
    """Check that the audit chain is intact, and that everything in the store agrees with it.

    Checkpoints, in the home or kept elsewhere, show if the end of the chain was cut off.
    Exit codes: 0 intact, 1 broken, 2 could not be checked.
    """
    ended_by(lambda: _verify(home, checkpoint or [], json=json), json=json)


def _verify(home: Path | None, kept: list[Path], *, json: bool) -> None:
    from tieline.cli.checkpoints import Checkpoints
    from tieline.wire.home import find_home

    checkpoints = Checkpoints(find_home(home))
    with _inspection(home) as inspection:
        report = checkpoints.verify(inspection, kept)
    if json:
        from tieline.cli.documents import AuditVerdict, fill

        print_json(fill(AuditVerdict, report))
    elif report.intact:
        say(f"Intact: {report.rows} rows, {report.messages} messages. The last row's hash is {report.head or '–'}.")
        if report.times_from:
            say(f"The chain covers times from row {report.times_from} on; earlier rows were written without that.")
    if report.intact:
        return
    first, *others = report.findings
    for finding in others[: _FINDINGS_SHOWN - 1]:
        warn(f"  row {finding.offset}: {neutral_line(finding.what)}")
    if len(others) >= _FINDINGS_SHOWN:
        warn(f"  … and {len(others) - _FINDINGS_SHOWN + 1} more; --json has them")
    raise Failure(Exit.FAILED, f"the audit chain is broken at row {first.offset}: {first.what}")


def export(
    home: HomeOption = None,
    form: Annotated[str, typer.Option("--format", help="Format of the export.")] = _JSONL,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write. Default: stdout.")] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File to write, as --out names it.", show_default=False)
    ] = None,
) -> None:
    """Export the log in one of its formats."""
    where = out or file
    other = _EXPORTS.get(form)
    if other is None:
        ended_by(lambda: _export(home, where))
    else:
        ended_by(lambda: _export_as(other, home, where))


offer(export, "form", [_JSONL, *_EXPORTS])
audit_app.command("export", help=_EXPORT_HELP)(export)


def _export_as(form: Export, home: Path | None, out: Path | None) -> None:
    from tieline.core import audit

    if out is None:
        raise Failure(Exit.USAGE, "a database cannot be written to stdout", "name a file: --out FILE")
    with _inspection(home) as inspection:
        report = audit.verify(inspection)
        if not report.intact:
            raise Failure(
                Exit.FAILED, f"the audit chain is broken at row {report.findings[0].offset}, so nothing was written"
            )
    with _inspection(home) as inspection, _appearing(out) as temporary:
        count = form.write(inspection, temporary)
    say(f"{count} rows are in {out}.")


@audit_app.command("checkpoint")
def checkpoint(
    home: HomeOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a copy to this file. Keep it on another machine.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sign the length and the last hash of the audit chain, so that 'audit verify' can tell if its end was cut off.

    The first checkpoint creates the signing key in the home. Without this key, nobody who changes the database can
    hide rows. Somebody who has the whole home can: keep a copy elsewhere, and give it to 'audit verify --checkpoint'.
    """
    ended_by(lambda: _checkpoint(home, out, json=json), json=json)


def _checkpoint(home: Path | None, out: Path | None, *, json: bool) -> None:
    import msgspec

    from tieline.cli.checkpoints import Checkpoints
    from tieline.wire.home import find_home

    checkpoints = Checkpoints(find_home(home))
    with _inspection(home) as inspection:
        report = checkpoints.verify(inspection, ())
    if not report.intact:
        first = report.findings[0]
        raise Failure(Exit.FAILED, f"the audit chain is broken at row {first.offset}: {first.what}")
    made = checkpoints.add(report.rows, report.head)
    if out is not None:
        with _writing(out) as file:
            file.write(msgspec.json.encode(made) + b"\n")
    if json:
        print_json(made)
    else:
        say(f"Checkpoint: {made.rows} rows, the last one's hash is {made.head}.")


def _export(home: Path | None, out: Path | None) -> None:
    import msgspec

    from tieline.wire.native.derived import view_log_row

    encoder = msgspec.json.Encoder()
    with _inspection(home) as inspection, _writing(out) as file:
        count = 0
        for row in inspection.rows():
            file.write(encoder.encode(view_log_row(row)) + b"\n")
            count += 1
    if out is not None:
        say(f"{count} rows are in {out}.")


@contextlib.contextmanager
def _inspection(home: Path | None) -> "Iterator[Inspection]":
    import apsw

    from tieline.core.store import StoreError
    from tieline.server.config import ConfigError
    from tieline.server.storage import storage_of, store_url
    from tieline.wire.home import find_home

    folder = find_home(home)
    try:
        with contextlib.closing(storage_of(store_url(folder), folder).open_inspection()) as inspection:
            yield inspection
    except (StoreError, apsw.Error, ConfigError) as error:
        hint = "name the hub's home with --home DIR"
        raise Failure(Exit.USAGE, f"the log of {folder} cannot be read: {error}", hint) from error


@contextlib.contextmanager
def _writing(out: Path | None) -> Iterator[BinaryIO]:
    """Yield a file for writing, which only its owner can read. Without `out`, yield the standard output.

    The file is written under a temporary name. It gets the name `out` only when it is complete.
    """
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _appearing(out) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """Yield the path of an empty file, which only its owner can read.

    At the end of the `with` block, rename the file to `out`.
    """
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield temporary
        temporary.replace(out)
    except OSError as error:
        raise Failure(Exit.FAILED, f"cannot write {out}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
