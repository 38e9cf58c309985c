"""Tests of the code blocks of the documentation: shell blocks are run, and other blocks are well-formed."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests.docs.blocks import PAGES, ROOT, Block, Terminal, blocks, is_shell

ALL = [block for page in PAGES for block in blocks(page)]
LANGUAGES = {"sh", "text", "python", "json", "toml", "sql", "mermaid", "nginx", "markdown"}
MARKS = ("not run: ", "fresh: ", "background", "elsewhere", "output", "nginx", "ladder", "objectives")


def is_run(block: Block) -> bool:
    """Return true if a test runs the block."""
    return is_shell(block) and not block.mark.startswith(("not run: ", "fresh: "))


RUN = [page for page in PAGES if any(is_run(block) for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_who_types_the_commands_of_a_page_in_order_succeeds(page: Path, folder: Path) -> None:
    terminal = Terminal(folder)
    try:
        for block in blocks(page):
            if is_run(block) or block.mark == "output":
                terminal.run(block)
    finally:
        complaints = list(terminal.close())
    assert complaints == []


def test_every_block_has_a_language_and_a_known_mark() -> None:
    assert {block.place: block.language for block in ALL if block.language not in LANGUAGES} == {}
    assert {block.place: block.mark for block in ALL if block.mark and not block.mark.startswith(MARKS)} == {}


def test_commands_are_in_shell_blocks() -> None:
    """A command in a block of output would never be run."""
    typed = re.compile(r"^ *(?:\$ |tieline |\.venv/bin/|make |pipx? )", re.MULTILINE)
    assert [one.place for one in ALL if one.language == "text" and typed.search(one.text)] == []


def test_a_block_that_is_not_run_says_why_and_names_only_things_that_exist() -> None:
    reasons = {one.place: one.mark.removeprefix("not run: ") for one in ALL if one.mark.startswith("not run: ")}
    assert reasons
    assert [place for place, reason in reasons.items() if len(reason.split()) < 3] == []
    named = [
        (place, path)
        for place, reason in reasons.items()
        for path in re.findall(r"(?:tests|scripts|howto|start)/[\w./]*\w", reason)
    ]
    assert [
        (place, path) for place, path in named if not ((ROOT / path).exists() or (ROOT / "docs" / path).exists())
    ] == []
    fresh = (ROOT / "scripts" / "fresh.py").read_text(encoding="utf-8")
    parts = [one.mark.removeprefix("fresh: ") for one in ALL if one.mark.startswith("fresh: ")]
    assert [part for part in parts if f'documented("{part}")' not in fresh] == []


@pytest.mark.parametrize("block", [one for one in ALL if one.language == "python"], ids=lambda block: str(block.place))
def test_an_example_in_python_is_valid_and_imports_what_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tieline"):
            module = importlib.import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


def test_an_example_of_data_is_well_formed() -> None:
    for block in ALL:
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json" and "…" not in block.text:
            for line in [block.text] if block.text.startswith(("{\n", "[\n")) else block.text.splitlines():
                msgspec.json.decode(line)
