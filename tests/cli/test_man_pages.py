"""Tests of the man pages: each command has one, which says what the help says, and `man` shows it without a warning."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.hub_process import run_cli
from tieline.cli.main import make_app
from tieline.cli.man_pages import man_pages


def test_every_command_has_a_page_with_its_options_and_examples() -> None:
    pages = man_pages()
    app: Any = typer.main.get_command(make_app())
    shown = {name: command for name, command in app.commands.items() if not command.hidden}
    assert set(pages) == {"tieline.1", *(f"tieline-{name}.1" for name in shown)}
    for name, command in shown.items():
        page = pages[f"tieline-{name}.1"].replace("\\-", "-")
        inner = getattr(command, "commands", None) or {name: command}
        for each in inner.values():
            options = [option for one in each.params for option in one.opts if option.startswith("--")]
            assert [option for option in options if option not in page] == [], name
            lines = (each.epilog or "").strip("\b\n").splitlines()[1:]
            assert [line for line in lines if line.strip().replace("\\", "\\e") not in page] == [], name
    named = set(re.findall(r"tieline\\?-([a-z-]+)\\fR\(1\)", pages["tieline.1"].replace("\\-", "-")))
    assert named == set(shown), "the overview names each command"
    assert "'tieline read' is the same command" in pages["tieline-take.1"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("man"), reason="no man")
def test_man_shows_every_page_without_a_warning(tmp_path: Path) -> None:
    written = run_cli(tmp_path / "home", "man", str(tmp_path))
    pages = sorted(tmp_path.glob("*.1"))
    assert f"{len(pages)} pages" in written.stdout
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    done = subprocess.run(
        ["man", "--warnings=w", "--encoding=UTF-8", "--local-file", *map(str, pages)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.count("SYNOPSIS") == len(pages)
