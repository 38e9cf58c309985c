"""Tests of the whole command line: help, version, and wrong usage."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.cli.hub_process import run_cli
from tieline.cli.main import make_app

HEAVY = ("asyncio", "rich", "structlog", "tieline.client", "tieline.server", "uvicorn", "uvloop", "websockets")
SCREEN_LINES, SCREEN_COLUMNS = 40, 80
HEADINGS = ["Messages", "Agents", "Team", "Operate", "Data"]


@pytest.mark.slow
def test_version_is_printed(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "tieline")


@pytest.mark.slow
def test_help_fits_a_screen_and_has_every_group_and_command(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "--help", env={"COLUMNS": "80"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS
    assert [line for line in lines if line in HEADINGS] == HEADINGS
    listed = [name for line in lines if line.startswith("  ") for name in line[2:26].replace(",", " ").split()]
    whole = typer.main.get_command(make_app())
    assert isinstance(whole, TyperGroup)
    shown = {name: command.rich_help_panel for name, command in whole.commands.items() if not command.hidden}  # type: ignore[attr-defined]
    assert set(shown) <= set(listed)
    assert set(shown.values()) == set(HEADINGS), "the reference has the same headings"
    assert lines[2] == "Begin: tieline serve, then tieline connect. Documentation: /docs of the hub"
    assert "5 timeout" in done.stdout
    assert "\x1b" not in done.stdout


def test_read_is_take_and_in_no_list() -> None:
    whole = typer.main.get_command(make_app())
    assert isinstance(whole, TyperGroup)
    read, take = whole.commands["read"], whole.commands["take"]
    assert (read.help, [each.opts for each in read.params]) == (take.help, [each.opts for each in take.params])
    assert whole.commands["read"].hidden


def imported(only: str) -> set[str]:
    """Return the names of the modules that a process imports to make the command line for the command `only`.

    If `only` is empty, the process makes the command line for all commands.
    """
    script = f"import sys; from tieline.cli.main import make_app; make_app({only!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=20)
    return set(done.stdout.split())


def test_the_whole_command_line_imports_nothing_heavy() -> None:
    assert imported("") & set(HEAVY) == set()


def test_a_command_imports_no_other_command() -> None:
    modules = imported("send")
    assert "tieline.cli.messages" in modules
    assert modules & {"tieline.cli.serve", "tieline.cli.pipeline", "tieline.protocols.peerbus.commands"} == set()


def test_every_command_works_alone_as_in_the_whole() -> None:
    whole = typer.main.get_command(make_app())
    assert isinstance(whole, TyperGroup)
    for name, command in whole.commands.items():
        alone = typer.main.get_command(make_app(name))
        assert isinstance(alone, TyperGroup)
        assert [each.opts for each in alone.commands[name].params] == [each.opts for each in command.params], name
        if isinstance(command, TyperGroup):
            group = alone.commands[name]
            assert isinstance(group, TyperGroup)
            assert list(group.commands) == list(command.commands), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("send", "@bob"),
        ("send", "@bob", "hi", "--level", "loud", "--as", "alice"),
        ("send", "@bob", "hi", "--data", "[1]", "--as", "alice"),
        ("send", "@bob", "hi", "--timeout", "1", "--as", "alice"),
        ("send", "@bob", "hi"),
        ("serve", "--http", "nowhere"),
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = run_cli(tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.slow
def test_a_home_without_a_hub_is_exit_code_4_and_says_what_to_start(tmp_path: Path) -> None:
    for args in (("receipts", "x"), ("history",), ("resume", "#dev"), ("member", "list")):
        done = run_cli(tmp_path / "home", *args)
        assert (done.returncode, done.stdout) == (4, ""), args
        assert "tieline serve" in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_an_address_that_nobody_answers_at_is_exit_code_4(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "whoami", "--url", "127.0.0.1:1", "--token", "x" * 20)
    assert done.returncode == 4
    assert "no hub answers" in done.stderr
