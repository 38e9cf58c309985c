"""Man pages: one for `tieline` and one for each of its commands, made from the same texts as their help.

Used by: `tieline man`. Uses: the command line.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tieline import __version__
from tieline.cli.overview import EXIT_CODES


def man(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the pages, such as ~/man/man1.")],
) -> None:
    """Write the man pages of all commands to a folder, such as one of your MANPATH."""
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    pages = man_pages()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    typer.echo(f"{len(pages)} pages are in {folder}. To read one: man -l {folder}/tieline-send.1")


def man_pages() -> dict[str, str]:
    """Return the man pages of `tieline` and of its commands, by file name."""
    from typer.main import get_command

    from tieline.cli.main import make_app

    app: Any = get_command(make_app())
    context = app.make_context("tieline", ["--help"], resilient_parsing=True)
    made = {"tieline.1": "\n".join(_overview(app)) + "\n"}
    for name, command in app.commands.items():
        if not command.hidden:
            made[f"tieline-{name}.1"] = "\n".join(_page(command, context, name)) + "\n"
    return made


def _overview(app: Any) -> Iterator[str]:
    yield from _head("tieline", "one hub for coding agents")
    yield from (".SH SYNOPSIS", r"\fBtieline\fR \fICOMMAND\fR [\fIARGUMENTS\fR]", ".SH DESCRIPTION", _text(app.help))
    for heading, lines in app.lines.items():
        yield f".SS {heading}"
        for names, sentence in lines:
            pages = ", ".join(rf"\fBtieline-{name}\fR(1)" for name in names.split(", "))
            yield from (".TP", pages, _text(sentence))
    yield ".SH NOTES"
    for note in (f"{EXIT_CODES}.", *app.notes):
        yield from (".PP", _text(note))


def _page(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = _context(command, parent, name)
    yield from _head(f"tieline-{name}", _first(command.help))
    yield ".SH SYNOPSIS"
    yield from _usage(command, context)
    yield ".SH DESCRIPTION"
    yield from _body(command, context)
    for sub, each in sorted(getattr(command, "commands", {}).items()):
        if not each.hidden:
            inner = _context(each, context, sub)
            yield f".SH {_text(f'{name} {sub}').upper()}"
            yield from _usage(each, inner)
            yield ".PP"
            yield from _body(each, inner)
    yield from (".SH SEE ALSO", r"\fBtieline\fR(1)")


def _context(command: Any, parent: Any, name: str) -> Any:
    return command.make_context(name, ["--help"], parent=parent, resilient_parsing=True)


def _head(name: str, sentence: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "tieline {__version__}" "Tieline"'
    yield from (".SH NAME", rf"{name} \- {_text(sentence)}")


def _usage(command: Any, context: Any) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield rf"\fB{_text(context.command_path)}\fR {_text(pieces)}"


def _body(command: Any, context: Any) -> Iterator[str]:
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_text(" ".join(paragraph.split())), ".PP")
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(" ".join(record[1].split())))
    if command.epilog:
        title, *lines = command.epilog.replace("\b", "").strip().split("\n")
        yield from (".PP", _text(title), ".PP", ".nf", *map(_text, lines), ".fi")


def _first(text: str | None) -> str:
    """Return the first sentence of a help text, without its full stop."""
    return re.split(r"\.(?:\s|$)", " ".join((text or "").split()), maxsplit=1)[0]


def _text(text: str | None) -> str:
    """Return text without anything that troff would take as an instruction."""
    safe = (text or "").replace("\\", r"\e").replace("-", r"\-")
    safe = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in safe)
    return rf"\&{safe}" if safe.startswith((".", "'")) else safe
