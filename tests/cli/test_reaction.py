"""Commands that a message is handed to; no process of ours is needed to see what the shell gets."""

import os
import subprocess
from pathlib import Path

import pytest

from tieline.cli.failure import Exit, Failure
from tieline.cli.reaction import script_of, variables
from tieline.client import Message as Shown

HOSTILE = "$(touch owned) `touch owned` ; touch owned # \" ' \\ \n touch owned"


def a_message(body: str) -> Shown:
    return Shown("id", 0, "eve", "@bob", body, 0, "backchannel")


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {{body}}",
        'printf %s "{{body}}"',
        "printf %s '{{body}}'",
        'x=$(printf %s {{body}}); printf %s "$x"',
        "if true; then printf %s {{body}}; fi # {{body}}",
        "printf %s \\{\\{ >/dev/null; printf %s {{body}}",
    ],
)
def test_a_template_is_quoted_so_that_no_body_becomes_a_command(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        script_of(command),
        shell=True,
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **variables(a_message(HOSTILE))},
        timeout=20,
    )
    assert done.stdout == HOSTILE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", ['sh -c "echo {{body}}"', "sh -c 'echo {{body}}'", '"a {{body}}"', '" {{from}} {{body}}"']
)
def test_a_template_among_other_text_in_quotes_is_refused(command: str) -> None:
    with pytest.raises(Failure) as error:
        script_of(command)
    assert error.value.code is Exit.USAGE


def test_a_command_has_each_part_of_a_message_under_both_names() -> None:
    message = Shown("id", 0, "eve", "@bob", "x\0y", 0, "backchannel", scope="s", thread="t")
    for prefix in ("TIELINE_", "BCH_"):
        found = {name.removeprefix(prefix): value for name, value in variables(message).items() if prefix in name}
        assert found == {
            "ID": "id",
            "FROM": "eve",
            "TO": "@bob",
            "BODY": "xy",
            "PRIORITY": "normal",
            "SCOPE": "s",
            "THREAD": "t",
        }
