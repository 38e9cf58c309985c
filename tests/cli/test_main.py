"""Tests of the whole command line: help, version, completion, and wrong usage."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.cli.hub_process import TIELINE, environment, run_cli
from tieline.cli.main import make_app

HEAVY = ("asyncio", "rich", "structlog", "tieline.client", "tieline.server", "uvicorn", "uvloop", "websockets")


@pytest.mark.slow
def test_version_is_printed(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "tieline")


@pytest.mark.slow
def test_help_lists_the_commands_and_the_exit_codes(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "--help")
    assert done.returncode == 0
    for word in ("serve", "send", "drain", "member", "audit", "5 timed out"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout


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


@pytest.mark.slow
def test_the_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"_TIELINE_COMPLETE": "complete_bash", "COMP_WORDS": "tieline mem", "COMP_CWORD": "1"}
    assert run_cli(tmp_path, env=asked).stdout.split() == ["members", "member"]
    # It asks which shell started it, so one must wait for it.
    command = ["bash", "-c", f"{TIELINE} --show-completion; exit $?"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(tmp_path))
    assert "_TIELINE_COMPLETE" in shown.stdout
