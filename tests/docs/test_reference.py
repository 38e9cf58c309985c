"""Tests that the pages made from the code are complete, and that error texts in the documentation are in the code."""

import ast
import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import typer

from scripts import docs_reference
from tests.docs.blocks import ROOT, SECONDS_MAX
from tests.server.hubs import ALONE, running_hub
from tieline import client
from tieline.cli.failure import Exit
from tieline.cli.main import make_app
from tieline.cli.shapes import shapes
from tieline.protocols import protocols
from tieline.server.config import load_config

SOURCES = sorted((ROOT / "src" / "tieline").rglob("*.py"))
INTERNAL = {"TIELINE_RUN_FOLDER", "TIELINE_RUN_PUSHES"}
"""Variables by which `tieline run` tells its own hooks where they are."""
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
TROUBLES = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def texts() -> str:
    """Return every text in the code, one in a line. A value in a text is a tab."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.JoinedStr(values):
                    parts = [one.value if isinstance(one, ast.Constant) else "\t" for one in values]
                    found.append("".join(map(str, parts)))
                case ast.Constant(value=str(text)):
                    found.append(text)
                case ast.Constant(value=bytes(text)):
                    found.append(text.decode(errors="replace"))
                case _:
                    pass
    return "\n".join(" ".join(re.split(r"[ \n]+", text)) for text in found)


def shown() -> list[str]:
    """Return the error texts of the page about problems: the code in the first cells of its tables."""
    rows = re.findall(r"^\| (`[^|]*`) \| (?!---)", TROUBLES, re.MULTILINE)
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row) if " " in text]


@pytest.mark.slow
def test_the_error_texts_in_the_documentation_are_in_the_code() -> None:
    """Capitals and `…` stand for values, so the parts between them must be in the code. A word alone proves nothing."""
    code = texts()
    assert len(shown()) >= 20
    for text in shown():
        parts = [part.strip(" '\":") for part in re.split(r"\b[A-Z]{2,}\b|…", text)]
        telling = [part for part in parts if " " in part]
        assert telling, text
        assert [part for part in telling if part not in code] == []


def test_the_page_of_commands_has_every_command() -> None:
    page = docs_reference.cli_page()

    def paths(command: object, path: str) -> list[str]:
        inner = getattr(command, "commands", {})
        return [path, *(one for name in inner for one in paths(inner[name], f"{path} {name}"))]

    whole = typer.main.get_command(make_app())
    inner = getattr(whole, "commands", {})
    named = [path for name, one in inner.items() if not one.hidden for path in paths(one, f"tieline {name}")]
    assert named
    assert [path for path in named if f"`{path}`" not in page] == []


def test_the_usage_of_a_command_has_the_brackets_and_dots_of_an_argument_once() -> None:
    usages = re.findall(r"```text\n(tieline .*)\n```", docs_reference.cli_page())
    assert {"tieline discard [ID…]", "tieline doctor [NAME]…", "tieline send TARGET BODY…"} <= set(usages)
    assert [usage for usage in usages if re.search(r"\[\[|…\]?…|\.\.\.", usage)] == []


def test_the_page_of_json_has_every_command_and_its_links_lead_to_types() -> None:
    page = docs_reference.json_page()
    assert [path for path in shapes() if f"[`tieline {path}`]" not in page] == []
    places = re.findall(r"\]\(#([\w-]+)\)", page)
    assert places
    assert [place for place in places if f"{{ #{place} }}" not in page] == []


def test_the_page_of_the_sdk_has_every_public_name_with_its_meaning() -> None:
    page = docs_reference.sdk_page()
    names = [name for name in client.__all__ if isinstance(getattr(client, name), type) or name == "connect"]
    assert names
    assert [name for name in names if f"`{name}`\n" not in page] == []
    assert not re.search(r"```\n\n\n+##", page), "a method without a meaning"


def test_the_page_of_the_sdk_explains_every_type_of_a_signature_under_the_name_that_a_program_imports() -> None:
    page = docs_reference.sdk_page()
    signatures = "".join(re.findall(r"```python\n((?:await )?\w+\(.*?)```", page, re.DOTALL))
    named = set(re.findall(r"(?<![\w.])[A-Z]\w+", re.sub(r"'[^']*'", "", signatures)))
    assert {"Delivery", "Level", "Message"} <= named
    assert named - set(client.__all__) == {"Any", "AsyncIterator", "False", "None", "Path", "True"}
    assert not re.search(r"<|\b(?:contract|derived|frames)\.", signatures)


@pytest.mark.slow
def test_the_page_of_http_has_every_route_with_the_parameters_of_its_query() -> None:
    page = docs_reference.http_page()
    for method, path, query in routes():
        (row,) = re.findall(rf"^\| `{method} {re.escape(path)}` \|.*", page, re.MULTILINE)
        assert [name for name in query if f"`{name}`: " not in row] == [], path
    assert re.search(r"`collide`: `error`, `overwrite`, `suffix`", page), "a parameter has its values"


def routes() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the hub's own routes: method, path, and the names of the parameters in the query."""
    for path, methods in msgspec.json.decode(docs_reference.openapi())["paths"].items():
        for method, about in methods.items():
            query = [one["name"] for one in about.get("parameters", ()) if one["in"] == "query"]
            yield method.upper(), path, query


def cells(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading of the reference, without its head."""
    section = REFERENCE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in section.splitlines() if line.startswith("| ")]
    return rows[2:]


@pytest.mark.slow
def test_the_reference_has_every_route_of_the_hub_with_its_parameters_and_no_other() -> None:
    """A cell has routes that belong together: `POST /api/session`, `/api/session/code`. Its text says the rest."""
    said: dict[str, str] = {}
    for named, about in cells("HTTP"):
        for path in re.findall(r"`(?:[A-Z]+ )?(/[^`?]+)[^`]*`", named):
            said[path] = said.get(path, "") + named + about
    known = list(routes())
    assert set(said) - {"/api/openapi.json"} == {path for _, path, _ in known}
    for method, path, query in known:
        assert method in said[path], path
        assert [name for name in query if not re.search(rf"\b{name}\b", said[path])] == [], path


def test_the_reference_has_every_exit_code() -> None:
    assert [int(code) for code, _ in cells("Exit codes")] == list(Exit)


@pytest.mark.slow
async def test_the_reference_has_every_file_that_a_hub_makes_in_its_home(folder: Path) -> None:
    named = {name.split("/")[0] for row in cells("The home") for name in re.findall(r"`([^`]+)`", row[0])}
    async with running_hub(folder) as there:
        await there.add("alice")
        made = {path.name for path in folder.iterdir()} - {"spool-home"}
    made = {re.sub(r"-(?:wal|shm)$", "", name) for name in made}
    assert {"tieline.toml", "run.json", "tieline.db", "hub.sock"} <= made
    assert made <= named


@pytest.mark.slow
async def test_the_example_of_the_sdk_runs(folder: Path) -> None:
    async with running_hub(folder, store="memory", **ALONE) as there:
        await there.add("alice", "bob")
        example = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            docs_reference.EXAMPLE,
            env={**os.environ, "TIELINE_HOME": str(folder)},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(example.communicate(), SECONDS_MAX)
    assert example.returncode == 0
    assert re.fullmatch(r"[0-9a-f-]{36}\nalice hello\n", printed.decode())


def test_the_page_of_security_has_every_door() -> None:
    doors = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## Doors")[2].partition("\n## ")[0]
    names = [one.name.replace("-", " ") for one in protocols()]
    assert names
    assert [name for name in names if name not in doors.lower().replace("-", " ")] == []
    assert [route for route in ("api", "v1", "otlp", "mcp", "docs", "healthz") if f"`/{route}" not in doors] == []


def test_the_page_of_the_configuration_has_every_section_that_a_hub_writes(tmp_path: Path) -> None:
    page = docs_reference.configuration_page()
    load_config(tmp_path, {})
    sections = re.findall(r"^\[([\w-]+)\]", (tmp_path / "tieline.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections
    assert [name for name in sections if f"## `[{name}]`" not in page] == []
    assert not re.search(r'"[A-Za-z0-9_-]{24,}"', page), "no secret"


def test_the_page_of_the_configuration_has_every_variable_of_the_environment() -> None:
    """Variables that the hub sets for programs that it starts are on the pages of those programs, or are internal."""
    documented = set(docs_reference.VARIABLES)
    code = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    used = set(re.findall(r"\"((?:TIELINE|BACKCHANNEL|PEERBUS)_[A-Z_]+)\"", code))
    assert documented <= used
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    pages += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("PROTOCOL.md"))
    assert [name for name in sorted(used - documented - INTERNAL) if name not in pages] == []


def test_the_page_of_tables_is_the_one_that_the_code_makes() -> None:
    assert docs_reference.TABLES.read_text(encoding="utf-8") == docs_reference.tables_page(), (
        "python -m scripts.docs_reference writes it"
    )
