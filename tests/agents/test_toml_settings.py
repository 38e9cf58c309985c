"""Tests that Tieline's table is added to settings in TOML and removed again, and that all other text stays."""

import tomllib

import pytest

from tieline.agents.settings import BadSettings
from tieline.agents.toml_settings import parse, table, with_table, without_table

OURS: dict[str, str | list[str]] = {"command": '/opt/it\'s "here"/tieline', "args": ["mcp", "--as", "bób 🦊"]}
OTHERS = """\
model = "o4" # mine

# About servers.
[mcp_servers.docs]
command = "docs"

[mcp_servers.docs.env]
KEY = '''
[mcp_servers.servers]
'''

[[rules]]
name = "[mcp_servers.s]"
"""


@pytest.mark.parametrize("text", ["", "\n", "a = 1", "a = 1\n", "a = 1\r\n", OTHERS, "# only a comment\n"])
def test_a_table_is_added_and_removed_and_the_rest_stays(text: str) -> None:
    made = with_table(text, "mcp_servers", "s", OURS)
    assert made.startswith(text)
    before = tomllib.loads(text)
    assert tomllib.loads(made) == {**before, "mcp_servers": {**before.get("mcp_servers", {}), "s": OURS}}
    assert with_table(made, "mcp_servers", "s", OURS) == made
    gone = without_table(made, "mcp_servers", "s")
    assert tomllib.loads(gone) == before
    assert gone.startswith(text)
    assert gone.rstrip() == text.rstrip()


def test_another_table_takes_the_place_of_ours() -> None:
    made = with_table(with_table(OTHERS, "mcp_servers", "s", OURS), "mcp_servers", "s", {"command": "x"})
    assert table(made, "mcp_servers", "s") == {"command": "x"}
    assert made.count("[mcp_servers.s]") == 2, "one of them stands in a string"


def test_tables_of_ours_that_the_program_added_go_too_and_others_stay() -> None:
    made = with_table(OTHERS, "mcp_servers", "s", OURS)
    added = (
        '\n[mcp_servers."s".tools.send]\napproval_mode = "approve"\n\n# About projects.\n[projects."/x"]\ntrust = 1\n'
    )
    gone = without_table(made + added, "mcp_servers", "s")
    assert tomllib.loads(gone) == {**tomllib.loads(OTHERS), "projects": {"/x": {"trust": 1}}}
    assert "# About projects." in gone
    assert "# mine" in gone


@pytest.mark.parametrize(
    "text",
    ['mcp_servers = { s = { command = "x" } }', 'mcp_servers.s.command = "x"', 'mcp_servers = {}\n[a]\nb = "c"'],
)
def test_what_cannot_be_changed_in_place_is_left_alone(text: str) -> None:
    with pytest.raises(BadSettings, match="in place"):
        with_table(text, "mcp_servers", "s", OURS)


@pytest.mark.parametrize("text", ["a =", "[a", "a = 1\na = 2", "\x00"])
def test_text_that_is_no_toml_is_refused(text: str) -> None:
    for work in (parse, lambda text: without_table(text, "a", "b"), lambda text: with_table(text, "a", "b", {})):
        with pytest.raises(BadSettings):
            work(text)


@pytest.mark.parametrize("text", ["mcp_servers = 5\n", '[[mcp_servers]]\nname = "x"\n'])
def test_a_name_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="is no table"):
        with_table(text, "mcp_servers", "s", OURS)
