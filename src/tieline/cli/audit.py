"""`tieline audit`: checking the tamper-evident log of a home, and taking it elsewhere.

Above: the command line. Below: `core.audit`, which decides, over a store's inspection. It works on the home, with the
hub running or not: an audit that asks the hub would trust what it checks.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.session import JsonOption, ended_by

if TYPE_CHECKING:
    from tieline.core.audit import Report
    from tieline.stores.sqlite.inspection import SqliteInspection

audit_app = typer.Typer(help="Check and export the audit chain.", no_args_is_help=True)

HomeOption = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="The hub's folder; else TIELINE_HOME.", show_default=False)
]

_FINDINGS_SHOWN = 10


class Format(StrEnum):
    """How a log can be written down."""

    JSONL = "jsonl"


@audit_app.command("verify")
def verify(home: HomeOption = None, json: JsonOption = False) -> None:
    """Check that the audit chain is whole and that nothing is stored which it does not say.

    Exit codes: 0 intact, 1 broken, 2 could not be checked.
    """
    ended_by(lambda: _verify(home, json=json))


def _verify(home: Path | None, *, json: bool) -> None:
    from tieline.core import audit

    with _inspection(home) as inspection:
        report = audit.verify(inspection)
    if json:
        print_json({"intact": report.intact, **_fields(report)})
    elif report.intact:
        say(f"Intact: {report.rows} rows, {report.messages} messages. The last row's hash is {report.head or '–'}.")
    if report.intact:
        return
    first, *others = report.findings
    for finding in others[: _FINDINGS_SHOWN - 1]:
        warn(f"  row {finding.offset}: {neutral_line(finding.what)}")
    if len(others) >= _FINDINGS_SHOWN:
        warn(f"  … and {len(others) - _FINDINGS_SHOWN + 1} more; --json has them")
    raise Failure(Exit.FAILED, f"the audit chain is broken at row {first.offset}: {first.what}")


def _fields(report: "Report") -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(report)


@audit_app.command("export")
def export(
    home: HomeOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.JSONL,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to; else stdout.")] = None,
) -> None:
    """Write the log, one row a line, each with the text that was hashed and its hash."""
    assert form is Format.JSONL, "there is no other yet"
    ended_by(lambda: _export(home, out))


def _export(home: Path | None, out: Path | None) -> None:
    import msgspec

    from tieline.wire.native.views import view_row

    encoder = msgspec.json.Encoder()
    with _inspection(home) as inspection, _writing(out) as file:
        count = 0
        for row in inspection.rows():
            file.write(encoder.encode(view_row(row)) + b"\n")
            count += 1
    if out is not None:
        say(f"{count} rows are in {out}.")


@contextlib.contextmanager
def _inspection(home: Path | None) -> "Iterator[SqliteInspection]":
    import apsw

    from tieline.core.store import StoreError
    from tieline.stores.sqlite.inspection import open_inspection
    from tieline.wire.home import find_home

    folder = find_home(home)
    try:
        with contextlib.closing(open_inspection(folder)) as inspection:
            yield inspection
    except (StoreError, apsw.Error) as error:
        hint = "name the hub's home with --home DIR"
        raise Failure(Exit.USAGE, f"the log of {folder} cannot be read: {error}", hint) from error


@contextlib.contextmanager
def _writing(out: Path | None) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all and is its owner's alone, or stdout."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as error:
        raise Failure(Exit.FAILED, f"cannot write {out}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
