"""Tests of Tieline's entries in the settings of each agent program: added once, found again, and removed."""

import json
import tomllib
from pathlib import Path

import pytest

from tieline.agents.connection import WAIT_MS, WAIT_VARIABLE, Connection, is_connected, member_of, parts_of, server_of
from tieline.agents.hooks import Program, command_in, command_line, with_hooks
from tieline.agents.settings import BadSettings, parse

FOLDER = Path("/home-of-bob/.claude")
RECORD = Path("/home-of-bob/record")
THEIRS = '{\n  // Mine.\n  "model": "opus",\n  "mcpServers": { "docs": { "command": "docs" } }\n}\n'
PROGRAMS = list(Program)


def connection(program: Program, member: str = "bob", *, ask: bool = False, wake: bool = False) -> Connection:
    return Connection(program, "/opt/tieline", member, ("--home", "/a home"), RECORD, ask=ask, wake=wake)


def texts(program: Program, text: str = "") -> list[str]:
    """Return the texts of a program's settings files after Tieline's entries were added. `text` is the text before."""
    toml = 'model = "o4"\n' if text else ""
    parts = parts_of(program, FOLDER, is_usual=True)
    return [part.add(toml if part.path.suffix == ".toml" else text, connection(program)) for part in parts]


def test_each_program_has_its_own_files() -> None:
    usual = {each: [str(part.path) for part in parts_of(each, FOLDER, is_usual=True)] for each in PROGRAMS}
    assert usual[Program.CLAUDE_CODE] == ["/home-of-bob/.claude.json", "/home-of-bob/.claude/settings.json"]
    assert usual[Program.CODEX] == ["/home-of-bob/.claude/config.toml", "/home-of-bob/.claude/hooks.json"]
    assert usual[Program.GEMINI] == ["/home-of-bob/.claude/settings.json"]
    named = parts_of(Program.CLAUDE_CODE, FOLDER, is_usual=False)
    assert named[0].path == FOLDER / ".claude.json"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("text", ["", "{}", "{}\n", THEIRS, '{"a": [1], "mcpServers": {}}'])
def test_entries_are_added_once_and_removed_and_the_rest_stays(program: Program, text: str) -> None:
    for part in parts_of(program, FOLDER, is_usual=True):
        before = 'model = "o4"\n' if part.path.suffix == ".toml" else text
        made = part.add(before, connection(program))
        assert made != before
        assert part.add(made, connection(program)) == made
        other = part.add(made, connection(program, "cy"))
        assert ("--as bob" in other, '"bob"' in other) == (False, False)
        for with_ours in (made, other):
            gone = part.remove(with_ours, before)
            if part.path.suffix == ".toml":
                assert tomllib.loads(gone) == tomllib.loads(before)
            else:
                assert parse(gone).value == (parse(before).value if before else {})
        assert part.remove(before, before) == before


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_entries_name_the_member_and_the_hub_and_are_found_again(program: Program) -> None:
    path = parts_of(program, FOLDER, is_usual=True)[0].path
    for text in ("", THEIRS):
        made = texts(program, text)
        entry = server_of(path, made[0])
        assert entry is not None
        assert entry["command"] == "/opt/tieline"
        assert entry["args"] == ["mcp", "--as", "bob", "--home", "/a home", "--no-push", "--while", str(RECORD)]
        assert member_of(entry) == "bob"
        command = command_in(made[-1], program)
        assert command == f"/opt/tieline drain --hook {program} --as bob --home '/a home' --tools"
        assert is_connected(program, made[-1])
    assert server_of(path, "") is None
    assert command_in("", program) is None
    assert not is_connected(program, with_hooks("", program, command_line(program, "tieline", member="bob")))


def test_our_tools_are_allowed_unless_the_user_wants_to_be_asked() -> None:
    def all_texts(program: Program, *, ask: bool) -> str:
        parts = parts_of(program, FOLDER, is_usual=True)
        return "".join(part.add("", connection(program, ask=ask)) for part in parts)

    words = {Program.CLAUDE_CODE: "mcp__tieline", Program.CODEX: "default_tools_approval_mode", Program.GEMINI: "trust"}
    for program, word in words.items():
        assert word in all_texts(program, ask=False)
        assert word not in all_texts(program, ask=True)


def test_a_rule_and_an_empty_object_of_the_user_stay() -> None:
    servers, main = parts_of(Program.CLAUDE_CODE, FOLDER, is_usual=True)
    theirs = '{"permissions": {"allow": ["mcp__tieline", "Bash"]}, "z": 1}'
    assert main.remove(main.add(theirs, connection(Program.CLAUDE_CODE)), theirs) == theirs
    alone = main.add('{"permissions": {"allow": ["Bash"]}}', connection(Program.CLAUDE_CODE))
    assert parse(main.remove(alone, "")).value == {"permissions": {"allow": ["Bash"]}}
    # As Claude Code writes it.
    empty = json.dumps({"a": 1, "mcpServers": {}}, indent=2)
    assert servers.remove(servers.add(empty, connection(Program.CLAUDE_CODE)), empty) == empty


@pytest.mark.parametrize("theirs", ['{"env": {"A": "1"}, "z": 1}', '{"env": {}}', "{}"])
def test_claude_code_waits_for_our_tools_until_we_are_removed(theirs: str) -> None:
    main = parts_of(Program.CLAUDE_CODE, FOLDER, is_usual=True)[1]
    made = main.add(theirs, connection(Program.CLAUDE_CODE))
    assert parse(made).value["env"] == {**parse(theirs).value.get("env", {}), WAIT_VARIABLE: WAIT_MS}
    assert parse(main.remove(made, theirs)).value == parse(theirs).value
    # Entries that the user has added in between stay.
    more = made.replace(f'"{WAIT_VARIABLE}"', f'"B": "2", "{WAIT_VARIABLE}"')
    assert parse(main.remove(more, theirs)).value["env"] == {**parse(theirs).value.get("env", {}), "B": "2"}


@pytest.mark.parametrize("value", ["60000", WAIT_MS])
def test_a_time_that_the_user_has_set_stays(value: str) -> None:
    main = parts_of(Program.CLAUDE_CODE, FOLDER, is_usual=True)[1]
    theirs = json.dumps({"env": {WAIT_VARIABLE: value}})
    made = main.add(theirs, connection(Program.CLAUDE_CODE))
    assert parse(made).value["env"] == {WAIT_VARIABLE: value}
    assert parse(main.remove(made, theirs)).value == parse(theirs).value
    with pytest.raises(BadSettings, match="'env' is no object"):
        main.add('{"env": []}', connection(Program.CLAUDE_CODE))


def test_a_server_of_somebody_else_is_left_alone() -> None:
    other = '{"mcpServers": {"tieline": {"command": "other"}}}'
    for program in (Program.CLAUDE_CODE, Program.GEMINI):
        part = parts_of(program, FOLDER, is_usual=True)[0]
        with pytest.raises(BadSettings, match="another MCP server"):
            part.add(other, connection(program))
        assert part.remove(other, "") == other
        assert server_of(part.path, other) is None
    part = parts_of(Program.CODEX, FOLDER, is_usual=True)[0]
    other = '[mcp_servers.tieline]\nurl = "http://x"\n'
    with pytest.raises(BadSettings, match="another MCP server"):
        part.add(other, connection(Program.CODEX))
    assert part.remove(other, "") == other


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 5}', '{"hooks": 5, "mcpServers": []}'])
def test_settings_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadSettings):
        parts_of(Program.GEMINI, FOLDER, is_usual=True)[0].add(text, connection(Program.GEMINI))


def test_a_program_that_can_be_woken_gets_the_hook_that_waits() -> None:
    main = parts_of(Program.CLAUDE_CODE, FOLDER, is_usual=True)[1]
    assert main.add("", connection(Program.CLAUDE_CODE, wake=True)).count("--tools --wait") == 2
