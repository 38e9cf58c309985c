"""Tests of the examples: every command has one, and the command line accepts each."""

import shlex
from collections.abc import Iterator
from typing import Any

import typer

from tieline.cli.main import make_app


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Yield every command that a person can see in a group, with its words after `tieline`."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def words_after_tieline(line: str) -> list[str]:
    """Return the arguments of `tieline` in a line for the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    start = words.index("tieline") + 1
    end = next((at for at in range(start, len(words)) if words[at] in ("|", ">")), len(words))
    return words[start:end]


def test_every_command_has_an_example_that_it_accepts() -> None:
    app: Any = typer.main.get_command(make_app())
    context = app.make_context("tieline", [], resilient_parsing=True)
    for path, command in commands(app):
        assert command.epilog, f"{path} has no example"
        _, *lines = command.epilog.strip("\b\n").splitlines()
        for line in lines:
            words = words_after_tieline(line)
            assert words[: len(path.split())] == path.split(), line
            # This parses the words, and does not run the command.
            command.make_context(path, words[len(path.split()) :], parent=context)


def test_an_example_of_a_group_runs_the_group() -> None:
    app: Any = typer.main.get_command(make_app())
    invite = app.commands["invite"]
    assert "tieline invite --as carol" in invite.epilog


def test_every_command_and_every_parameter_explains_itself() -> None:
    app: Any = typer.main.get_command(make_app())
    for path, command in commands(app):
        assert not command.help.startswith("The same"), path
        for parameter in command.params:
            assert parameter.help, f"{path}: {parameter.name} says nothing"
            assert not parameter.help.startswith("The same"), f"{path}: {parameter.name}"
