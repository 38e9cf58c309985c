"""Tests that the documentation agrees with the code."""

import ast
import functools
import re
from inspect import getsource
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import typer

from scripts import docs_site
from tests.docs.blocks import PAGES, ROOT
from tieline import __version__
from tieline.cli.main import make_app
from tieline.contract import limits, objective
from tieline.contract.delivery import SETTLED, TRANSITIONS
from tieline.contract.limits import Limits
from tieline.contract.refusal import MEANINGS, Code
from tieline.wire.native import frames

GUIDES = [path for path in PAGES if "adr" not in path.parts]
"""Documents for users, whose commands, options, paths and `make` targets must exist. Decisions tell of their time."""
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
    pages = {*PAGES, *(ROOT / "src").rglob("*.md")}
    made = {ROOT / "docs" / place for place in (*docs_site.MADE, *docs_site.MADE_FILES)}
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists() and (page.parent / link).resolve() not in made
    ]
    assert not broken


def test_no_page_and_no_hint_installs_tieline_from_a_package_index() -> None:
    """Tieline is not on an index. So a command names the wheel, a path or the address of the repository."""
    from_index = re.compile(r"\b(?:(?:pip|pipx|uv tool) install|uvx)(?: -\S+)* ['\"]?tieline(?![\w-])")
    files = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    assert not [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in files
        for found in from_index.finditer(file.read_text(encoding="utf-8"))
    ]


def test_every_wheel_that_a_page_names_has_the_current_version() -> None:
    named = {found for page in PAGES for found in re.findall(r"tieline-([\w.]+)-py3-none", page.read_text("utf-8"))}
    assert named == {__version__}


def name_of(page: Path) -> str:
    """Return the path of a page, as the name of a test."""
    return page.relative_to(ROOT).as_posix()


def code_of(page: Path) -> str:
    """Return the code in a document: its code blocks and code spans, one per line."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    code = "\n".join([*blocks, *(" ".join(span.split()) for span in spans)])
    return re.sub(r"(^|\s)# .*", "", code, flags=re.MULTILINE)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_make_target_that_a_guide_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"^[ $]*make (?:[A-Z_]+=\S+ )*([a-z]+)", code_of(page), re.MULTILINE))
    assert named <= targets


@functools.cache
def command_line() -> object:
    """Return the whole command line, which is slow to make."""
    return typer.main.get_command(make_app())


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_command_that_a_guide_names_exists(page: Path) -> None:
    unknown = []
    for words in re.findall(r"(?:^|[\s/;(])tieline ((?:[a-z][a-z\\|-]* ?)+)", code_of(page), re.MULTILINE):
        found = command_line()
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


def options_of(words: list[str]) -> set[str] | None:
    """Return the options of the command that these words name; `None` if they name a group, or no command."""
    found = command_line()
    for word in words:
        found = getattr(found, "commands", {}).get(word, found)
    if getattr(found, "commands", None):
        return None
    return {name for one in getattr(found, "params", ()) for name in (*one.opts, *one.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_option_of_a_command_that_a_guide_names_exists(page: Path) -> None:
    unknown = []
    # Words after two dashes belong to another program, and so do those after the name of an agent's program.
    for line in re.findall(r"(?:^|[\s/;(])tieline ([a-z][^\n|;`)]*)", code_of(page), re.MULTILINE):
        ours = re.split(r" -- | (?:claude-code|codex) (?=-)", line)[0]
        known = options_of(re.findall(r"^[a-z-]+(?: [a-z-]+)?", ours)[0].split())
        if known is not None:
            unknown += [f"tieline {line}" for option in re.findall(r" (--[a-z][a-z-]*)", ours) if option not in known]
    assert not unknown


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_path_of_this_repository_that_a_guide_names_exists(page: Path) -> None:
    tops = "src|tests|bench|scripts|docs|web|requirements|deploy"
    named = re.findall(rf"(?:^|[\s(])((?:{tops})/[\w./*-]*)", code_of(page), re.MULTILINE)
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/.")))] == []


def test_a_page_that_starts_a_hub_says_what_to_do_if_one_runs() -> None:
    """A reader comes from the quick start, whose hub runs on, and a second hub in its home is refused."""
    starts = {}
    for page in (*(ROOT / "docs" / "howto").glob("*.md"), ROOT / "docs" / "start" / "others.md"):
        before, block, _ = page.read_text(encoding="utf-8").partition("```sh\ntieline serve")
        if block:
            starts[page.name] = " ".join(before.split())
    assert {"team.md", "tls.md", "backup.md", "others.md"} <= set(starts)
    told = ("`tieline stop`", "if it does not run yet:")
    assert [name for name, before in starts.items() if not any(words in before for words in told)] == []


def test_the_quick_start_names_each_program_that_it_needs() -> None:
    text = (ROOT / "docs" / "start" / "index.md").read_text(encoding="utf-8")
    needs = text.partition("## ")[0]
    used = {name for name in ("git", "make", "pipx") if re.search(rf"^{name} ", text, re.MULTILINE)}
    assert used == {"git", "make", "pipx"}
    assert [name for name in used if name not in re.findall(r"\w+", needs)] == []


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


def path_of_one_message() -> list[tuple[str, str]]:
    """Return the functions that the path of one message names, each with the module that is named before it."""
    section = ARCHITECTURE.partition("## The path of one message")[2].partition("\n## ")[0]
    module, functions = "", []
    for named in re.findall(r"`([^`]+)`", section):
        if named.endswith(".py"):
            module = named
        else:
            functions.append((module, named))
    return functions


@functools.cache
def functions_of(module: str) -> set[str]:
    """Return the functions of a module and the methods of its classes, as `Class.method`."""
    tree = ast.parse((ROOT / "src" / "tieline" / module).read_text(encoding="utf-8"))
    owners = [("", tree.body), *((f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef))]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {owner + node.name for owner, body in owners for node in body if isinstance(node, kinds)}


def test_every_function_on_the_path_of_one_message_exists_and_they_are_few() -> None:
    path = path_of_one_message()
    assert path, "the section names its functions in backticks"
    assert [(module, name) for module, name in path if name not in functions_of(module)] == []
    assert len(set(path)) == len(path) < 30, "a reader opens every one of them"


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = [path.name for path in (ROOT / "docs" / "adr").glob("0*.md") if not path.name.startswith("0000")]
    assert decisions
    assert [name for name in decisions if name not in index] == []
