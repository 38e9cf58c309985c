"""Tests of `tieline skill`, which prints a text that teaches an agent to use Tieline."""

from pathlib import Path

import pytest

from tests.cli.hub_process import run_cli
from tieline.protocols.mcp.tools import DEFAULT, tools_of

CHARS_MAX = 4_000
"""Maximum length of the text in characters, about a thousand tokens, because it is loaded into a model's context."""


@pytest.mark.slow
def test_the_skill_file_is_short_and_names_tools_that_exist(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "skill")
    assert done.returncode == 0
    assert done.stdout.startswith("---\nname: tieline\ndescription: ")
    assert len(done.stdout) < CHARS_MAX
    names = {tool.name for tool in tools_of(DEFAULT)}
    for word in ("drain", "objectives", "send", "receipts"):
        assert word in names
        assert f"`{word}`" in done.stdout
