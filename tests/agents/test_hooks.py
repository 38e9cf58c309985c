"""Tests that Tieline's hooks are added to a program's settings and removed again, and that other settings stay."""

import json

import pytest

from tieline.agents.hooks import FORMS, Program, command_line, with_hooks, without_hooks
from tieline.agents.settings import BadSettings, parse

COMMAND = command_line(Program.CLAUDE_CODE, "/opt/it's here/tieline", member="bob", where=("--home", "/a home"))
OTHERS = """\
{
  // Mine.
  "model": "opus",
  "hooks": {
    "Stop": [
      { "hooks": [{ "type": "command", "command": "say done" }] }
    ],
    "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "check" }] }]
  }
}
"""


@pytest.mark.parametrize("program", list(Program))
@pytest.mark.parametrize("text", ["", "{}", "{}\n", OTHERS, '{"hooks": {}}', '{"a": [1]}'])
def test_every_event_gets_our_hook_and_the_rest_stays(program: Program, text: str) -> None:
    command = command_line(program, "tieline", member="bob")
    made = with_hooks(text, program, command)
    before = parse(text).value if text else {}
    after = parse(made).value
    for event in FORMS[program].events:
        *others, ours = after["hooks"].pop(event)
        assert others == before.get("hooks", {}).get(event, [])
        assert ours["hooks"][0]["command"] == command
    before_others = {
        event: kept for event, kept in before.pop("hooks", {}).items() if event not in FORMS[program].events
    }
    assert after.pop("hooks") == before_others
    assert after == before
    assert with_hooks(made, program, command) == made


def test_the_command_survives_the_shell() -> None:
    assert COMMAND == "'/opt/it'\"'\"'s here/tieline' drain --hook claude-code --as bob --home '/a home'"
    assert without_hooks(with_hooks("{}", Program.CLAUDE_CODE, COMMAND)) == "{}"


def test_another_command_takes_the_place_of_ours() -> None:
    first = with_hooks(OTHERS, Program.CLAUDE_CODE, command_line(Program.CLAUDE_CODE, "tieline", member="bob"))
    second = with_hooks(first, Program.CLAUDE_CODE, command_line(Program.CLAUDE_CODE, "tieline", member="cy"))
    assert "--as bob" not in second
    assert second.count("--as cy") == 4


def test_removing_ours_leaves_what_others_wrote() -> None:
    made = with_hooks(OTHERS, Program.CLAUDE_CODE, COMMAND)
    # Somebody moved a hook of theirs into our group, and gave it a matcher.
    mixed = made.replace('{\n        "hooks": [\n', '{\n        "matcher": "startup",\n        "hooks": [\n', 1)
    mixed = mixed.replace(
        '"timeout": 10\n          }', '"timeout": 10\n          }, {"type": "command", "command": "theirs"}', 1
    )
    left = without_hooks(mixed)
    assert "tieline" not in left
    assert "// Mine." in left
    stop = json.loads(left.replace("  // Mine.\n", ""))["hooks"]["Stop"]
    assert stop == [
        {"hooks": [{"type": "command", "command": "say done"}]},
        {"matcher": "startup", "hooks": [{"type": "command", "command": "theirs"}]},
    ]
    assert without_hooks(made) == OTHERS


@pytest.mark.parametrize("text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{", "null"])
def test_settings_of_another_shape_are_left_alone(text: str) -> None:
    with pytest.raises(BadSettings):
        with_hooks(text, Program.CLAUDE_CODE, COMMAND)
    if text != "{":
        with pytest.raises(BadSettings):
            without_hooks(text)


def test_gemini_may_have_switches_among_its_hooks() -> None:
    text = '{\n  "hooks": {\n    "enabled": true\n  }\n}\n'
    made = with_hooks(text, Program.GEMINI, command_line(Program.GEMINI, "tieline"))
    assert parse(made).value["hooks"]["enabled"] is True
    assert parse(made).value["hooks"]["AfterTool"][0]["hooks"][0]["timeout"] == 10_000
    assert without_hooks(made) == text


@pytest.mark.parametrize(
    "hook",
    [
        '"text"',
        "{}",
        '{"command": 5}',
        '{"command": "tieline drain --hook"}',
        '{"command": "tieline drain --hook claude-code2"}',
    ],
)
def test_only_our_own_command_is_ours(hook: str) -> None:
    text = f'{{"hooks": {{"Stop": [{{"hooks": [{hook}]}}, 7, {{"hooks": 5}}]}}}}'
    assert without_hooks(text) == text
