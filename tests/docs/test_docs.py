"""Tests that the documentation agrees with the code."""

import ast
import re
from inspect import getsource
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import typer

from tieline.cli.main import make_app
from tieline.contract import limits, objective
from tieline.contract.delivery import SETTLED, TRANSITIONS
from tieline.contract.limits import Limits
from tieline.contract.refusal import MEANINGS, Code
from tieline.wire.native import frames

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
"""Documents for users, whose commands and `make` targets must exist."""
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
NATIVE = (ROOT / "src" / "tieline" / "wire" / "native" / "PROTOCOL.md").read_text(encoding="utf-8")


def test_the_drawing_of_the_ladder_is_the_table_in_the_code() -> None:
    drawn = ARCHITECTURE.partition("<!-- ladder -->")[2].partition("<!-- /ladder -->")[0]
    arrows = set(re.findall(r"^ +(\S+) --> (\S+)$", drawn, re.MULTILINE))
    table = {
        (state.word, following.word) for state, all_following in TRANSITIONS.items() for following in all_following
    }
    ends = {(state.word, "[*]") for state in SETTLED}
    assert arrows == table | ends | {("[*]", "pending")}


def test_the_drawing_of_objectives_is_the_table_in_the_code() -> None:
    drawn = ARCHITECTURE.partition("<!-- objectives -->")[2].partition("<!-- /objectives -->")[0]
    arrows = set(re.findall(r"^ +(\S+) --> (\S+)$", drawn, re.MULTILINE))
    table = {(before.value, after.value) for row in objective.TRANSITIONS.values() for before, after in row.items()}
    ends = {(status.value, "[*]") for status in objective.TERMINAL}
    assert arrows == table | ends | {("[*]", "active")}


@pytest.mark.parametrize("code", list(Code))
def test_the_reference_has_every_refusal_with_its_meaning(code: Code) -> None:
    assert f"| `{code.value}` | {MEANINGS[code]} |" in REFERENCE


def reasons() -> dict[str, str]:
    """Return the docstring of every field of `Limits`, by name."""
    (table,) = (node for node in ast.parse(getsource(limits)).body if isinstance(node, ast.ClassDef))
    found = {}
    for field, below in pairwise(table.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(reason))):
                found[name] = " ".join(reason.split())
            case _:
                pass
    return found


REASONS = reasons()


@pytest.mark.parametrize("field", msgspec.structs.fields(Limits), ids=lambda field: str(field.name))
def test_the_reference_has_every_limit_with_its_default_and_its_reason(field: msgspec.structs.FieldInfo) -> None:
    assert f"| `{field.name}` | {field.default:,} | {REASONS[field.name]} |" in REFERENCE


@pytest.mark.parametrize("frame", frames.ClientFrame.__args__, ids=lambda frame: str(frame.__name__))
def test_the_protocol_page_names_every_request(frame: type[frames.Frame]) -> None:
    assert f"`{frame.__struct_config__.tag}`" in NATIVE


@pytest.mark.parametrize(
    "package", sorted(path.parent.name for path in (ROOT / "src" / "tieline").glob("*/__init__.py"))
)
def test_the_code_map_has_every_package(package: str) -> None:
    assert f"### `{package}/`" in ARCHITECTURE


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.md"),
    ]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not broken


def code_of(page: Path) -> str:
    """Return the code in a document: its code blocks and code spans, one per line."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    code = "\n".join([*blocks, *(" ".join(span.split()) for span in spans)])
    return re.sub(r"(^|\s)# .*", "", code, flags=re.MULTILINE)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.name))
def test_every_make_target_that_a_guide_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"^[ $]*make (?:[A-Z_]+=\S+ )*([a-z]+)", code_of(page), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.name))
def test_every_command_that_a_guide_names_exists(page: Path) -> None:
    unknown = []
    for words in re.findall(r"(?:^|[\s/;(])tieline ((?:[a-z][a-z\\|-]* ?)+)", code_of(page), re.MULTILINE):
        found: object = typer.main.get_command(make_app())
        for word in words.split():
            commands = getattr(found, "commands", None)  # a group has some, a command takes arguments
            if commands is None:
                break
            # Tables say `add\|list` for one or the other.
            choices = [commands.get(choice) for choice in re.findall(r"[a-z-]+", word)]
            if None in choices:
                unknown.append(f"tieline {words.strip()}")
                break
            found = choices[0] if len(choices) == 1 else None
    assert not unknown


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.name))
def test_every_path_of_this_repository_that_a_guide_names_exists(page: Path) -> None:
    tops = "src|tests|bench|scripts|docs|web|requirements"
    named = re.findall(rf"(?:^|[\s(])((?:{tops})/[\w./*-]*)", code_of(page), re.MULTILINE)
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/.")))] == []


def test_the_first_tests_that_a_newcomer_runs_are_there() -> None:
    chosen = re.findall(r"pytest (tests/\S+\.py) -k (\w+)", code_of(ROOT / "CONTRIBUTING.md"))
    assert chosen
    for path, word in chosen:
        assert re.search(rf"def test_\w*{word}", (ROOT / path).read_text(encoding="utf-8"))


def test_every_module_that_the_code_map_names_exists() -> None:
    names = {path.name for top in ("src", "scripts", "bench") for path in (ROOT / top).rglob("*.*")}
    named = re.findall(r"`(?:[\w/]+/)?(\w+\.(?:py|sql))`", ARCHITECTURE)
    assert named
    assert [name for name in named if name not in names] == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = [path.name for path in (ROOT / "docs" / "adr").glob("0*.md") if not path.name.startswith("0000")]
    assert decisions
    assert [name for name in decisions if name not in index] == []
