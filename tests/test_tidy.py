"""Tests of the style rules of CONTRIBUTING.md that a linter does not know.

Each rule is a function that finds the offences in a file's text, so that the last tests can try every rule with a
planted offence. A failure lists `file:line` and the remedy. There is no list of exceptions.
"""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
GENERATED = "\n# Made from tieline.contract by `make derive`"

BANNED_NAMES = {"utils", "helpers", "common", "shared", "misc", "base", "manager", "models"}

# Time, identity and chance reach the pure layers as parameters. A trailing dot bans everything below.
IMPURE_NAMES = ("datetime.now", "datetime.utcnow", "time.time", "uuid4", "random.")

SQL = re.compile(r"\b(?:SELECT\s|INSERT\s|UPDATE\s+\S+\s+SET\b|DELETE\s+FROM\b|CREATE\s+(?:\w+\s+)?TABLE\b)")

# A limit by its name: a number with a unit. A minute in milliseconds needs no reason.
LIMIT = re.compile(r"^(?!_?(?:SECOND|MINUTE|HOUR|DAY|WEEK)_)\w*_(?:MAX|SECONDS|BYTES|MS)$")

# The broker and its memory, as modules and as classes.
WHOLE_BROKER = re.compile(r"\btieline\.core\.(?:broker|memory)\b|\b(?:Broker|Memory)\b")

# A part of a regular expression: an escape, a set, or the end of a group with a possessive repeat.
POSSESSIVE = re.compile(r"[*+?}]\+")
PATTERN_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<possessive>\)(?:[*+?]|\{[0-9]*,?[0-9]*\})\+)", re.DOTALL)

# A comment before a declaration of TypeScript, and a comment that is a whole line.
TYPESCRIPT_COMMENT = re.compile(r"/\*\*?\s+(.*)|^\s*//\s+(.*)|^\s+\*\s+(.*)")

# The first word of an indirect question, which hides the subject of a sentence.
QUESTION = re.compile(r"\s*(?:What|Who|Whose|Whom|Whether|Where|How|Which|Why)\b")
QUOTED_QUESTION = re.compile(rf'"""{QUESTION.pattern}')

# A line that may be an import. Ruff refuses a second package in the same line.
IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)

SLEEP = re.compile(r"(?:time|asyncio)\.sleep\((?!0\))")

# Written in two halves, so that this file does not name what it forbids.
REGISTRY_HOSTS = tuple(
    ".".join(halves)
    for halves in (("pypi", "org"), ("files", "pythonhosted.org"), ("registry", "npmjs.org"), ("deb", "debian.org"))
)
MACHINE_PATH = re.compile(r"(?<![\w.~$)}\]-])/(?:(?:work|root)/|(?:home|Users)/[\w.-]+/)")

# An offence: the line it is on, and what to do instead.
Offences = Iterator[tuple[int, str]]
Rule = Callable[[str], Offences]


# Rules over Python text


def parts(text: str, clue: re.Pattern[str]) -> Iterator[ast.AST]:
    """Return all nodes of a module. Return none if `clue` is not in the text, because parsing is slow."""
    return ast.walk(ast.parse(text)) if clue.search(text) else iter(())


def long_functions(text: str) -> Offences:
    for node in ast.walk(ast.parse(text)) if text.count("\n") > FUNCTION_LINES_MAX else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                advice = "keep the branching here and move each leaf to a function of its own"
                yield node.lineno, f"{node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}: {advice}"


def long_modules(text: str) -> Offences:
    """Yield an offence if a module is too long. A module that `make derive` writes may have any length."""
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX and GENERATED not in text:
        yield lines, f"{lines} lines, more than {MODULE_LINES_MAX}: give one of its nouns a module of its own"


def missing_docstring(text: str) -> Offences:
    if not text.startswith('"""') and not ast.get_docstring(ast.parse(text)):
        yield 1, "open the module with a docstring: what it is, what is above and below it, what it refuses to know"


@functools.cache
def unused_words(beginning: str) -> str:
    """Return a pattern of the words that the glossary of the architecture page lists after `beginning`."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.search(rf"{beginning}: ([a-z,\s]+)\.", page)
    assert listed, "the glossary ends with the words that are not used"
    return "|".join(re.split(r",\s+", listed[1]))


def private_words(text: str) -> Offences:
    """Yield the words that are not used at all, in any form."""
    words = unused_words("used here before and explain nothing")
    pattern = re.compile(rf"(?<![a-z])(?:{words})(?:s|ed|n|ing)?(?![a-z])", re.IGNORECASE)
    if pattern.search(text):
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.search(line):
                yield number, f"{found[0]}: use the word of the glossary in docs/ARCHITECTURE.md"


def private_names(text: str) -> Offences:
    """Yield classes, functions, parameters and variables whose whole name is a word that explains nothing as a name."""
    pattern = re.compile(rf"_*(?:{unused_words('As names, these explain nothing either')})s?", re.IGNORECASE)
    for node in parts(text, pattern):
        match node:
            case ast.ClassDef(name=str(name)) | ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)):
                pass
            case ast.arg(arg=str(name)) | ast.Name(id=str(name), ctx=ast.Store()):
                pass
            case _:
                continue
        if pattern.fullmatch(name):
            yield node.lineno, f"{name}: name it for the concept, with a word of the glossary in docs/ARCHITECTURE.md"


def typescript_questions(text: str) -> Offences:
    """Yield comments of TypeScript that begin with a question word."""
    for number, line in enumerate(text.splitlines(), 1):
        found = TYPESCRIPT_COMMENT.search(line)
        said = "".join(part or "" for part in found.groups()) if found else ""
        # A line that continues a sentence begins with a small letter.
        if question := QUESTION.match(said):
            yield number, f"begins with {question[0].strip()}: begin with the subject, such as 'Status of a member.'"


def indirect_questions(text: str) -> Offences:
    """Yield docstrings that begin with a question word, also those below a field or a constant."""
    for node in parts(text, QUOTED_QUESTION):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))) if found := QUESTION.match(said):
                yield (
                    node.lineno,
                    f"begins with {found[0].strip()}: begin with the subject, such as 'Status of a member.'",
                )
            case _:
                pass


def fixed_sleeps(text: str) -> Offences:
    """Yield sleeps outside of loops, without a random time and without a comment that explains them."""
    nodes, lines = list(parts(text, SLEEP)), text.splitlines()
    looped = {inner for node in nodes if isinstance(node, ast.While | ast.For) for inner in ast.walk(node)}
    for node in nodes:
        if not isinstance(node, ast.Call) or node in looped or not node.args:
            continue
        called, span = ast.unparse(node), lines[max(0, node.lineno - 2) : node.end_lineno]
        if SLEEP.match(called) and "chance" not in called and "# " not in "".join(span):
            yield node.lineno, f"{called}: wait for a condition, or say in a comment why a time must pass"


def sql_statements(text: str) -> Offences:
    nodes = list(parts(text, SQL))
    docstrings = set(_docstring_nodes(nodes))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            found = SQL.search(node.value)
            if found:
                yield node.lineno, f"SQL in Python ({found[0].strip()}): give the query a name in a .sql file"


def impure_names(text: str) -> Offences:
    for node in ast.walk(ast.parse(text)):
        for line, name in _names_used(node):
            if any(_is_impure(name, banned) for banned in IMPURE_NAMES):
                yield line, f"{name}: take the time, the id or the chance as a parameter"


def unexplained_limits(text: str) -> Offences:
    """Yield numbers with a unit, at the top of a module, that no comment and no docstring explains.

    Constants that stand together, without a blank line between them, may share an explanation.
    """
    lines = text.splitlines()
    block: list[ast.Assign | ast.AnnAssign] = []
    explained = False
    found: list[tuple[int, str]] = []
    for node in [*ast.parse(text).body, ast.Pass(lineno=len(lines) + 2)]:
        if block and (
            node.lineno > (block[-1].end_lineno or 0) + 1 or not isinstance(node, ast.Assign | ast.AnnAssign)
        ):
            explained = explained or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            yield from () if explained else found
            block, explained, found = [], False, []
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        block.append(node)
        explained = explained or lines[max(node.lineno - 2, 0)].startswith("#")
        name = next((target.id for target in _limits_named(node) if LIMIT.search(target.id)), None)
        if name is not None and "#" not in lines[(node.end_lineno or 1) - 1]:
            found.append((node.lineno, f"{name}: say in a comment or a docstring why it is so much"))


def _limits_named(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.Name]:
    """Yield the names of an assignment whose value is a number."""
    parts = [] if node.value is None else list(ast.walk(node.value))
    numbers = any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in parts)
    if numbers and not any(isinstance(part, ast.Call | ast.Dict | ast.List | ast.JoinedStr) for part in parts):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part for part in ast.walk(target) if isinstance(part, ast.Name))


def possessive_groups(text: str) -> Offences:
    """Yield possessive repeats of groups in any string that could be a regular expression or a part of one."""
    nodes = list(parts(text, POSSESSIVE))
    docstrings = set(_docstring_nodes(nodes))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and node not in docstrings:
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            for found in PATTERN_PART.finditer(value):
                if found.lastgroup == "possessive":
                    advice = (
                        "Python 3.11.2 matches it wrongly: repeat it greedily, with only one way to match, or in a loop"
                    )
                    yield node.lineno, f"possessive repeat of a group ({found[0]}): {advice}"


def whole_brokers(text: str) -> Offences:
    """Yield imports of the broker or its memory, and parameters that take one of them whole."""
    advice = "give the rule the batch and the parts of memory that it works with"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if any(WHOLE_BROKER.search(name) for _, name in _names_used(node)):
                yield node.lineno, f"imports the whole broker: {advice}"
        elif isinstance(node, ast.arg):
            kind = "" if node.annotation is None else ast.unparse(node.annotation)
            if node.arg == "broker" or WHOLE_BROKER.search(kind):
                yield node.lineno, f"{node.arg} is the whole broker: {advice}"


@functools.cache
def installed_packages() -> frozenset[str]:
    """Return the packages that every installation has, by the names of their imports, with Python's own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = (re.match(r"[\w.-]+", line) for line in project["dependencies"])
    names = {found[0].replace("-", "_") for found in required if found}
    return frozenset({"tieline", *names, *sys.stdlib_module_names})


def undeclared_imports(text: str) -> Offences:
    """Yield imports of packages that are not among the dependencies of the base installation, anywhere in a module."""
    if installed_packages().issuperset(IMPORT.findall(text)):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                names = [module]
            case _:
                continue
        for name in names:
            package = name.partition(".")[0]
            if package not in installed_packages():
                advice = "pyproject.toml installs it for developers or for an extra only: do without it"
                yield node.lineno, f"imports {package}: {advice}, or make it a dependency of the project"


def _docstring_nodes(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant() as docstring), *_]:
                    yield docstring
                case _:
                    pass


def _names_used(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names=names):
            yield from ((node.lineno, f"{alias.name}.") for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
        case ast.Attribute() | ast.Name():
            yield node.lineno, ast.unparse(node)
        case _:
            pass


def _is_impure(name: str, banned: str) -> bool:
    if banned.endswith("."):
        return name.startswith(banned)
    return name == banned or name.endswith(f".{banned}")


# Rules over any tracked text


def registry_hosts(text: str) -> Offences:
    for number, line in enumerate(text.splitlines(), start=1):
        for host in REGISTRY_HOSTS:
            if host in line:
                yield number, f"names the package registry {host}: a lock has hashes, the address is the reader's own"


def machine_paths(text: str) -> Offences:
    for number, line in enumerate(text.splitlines(), start=1):
        found = MACHINE_PATH.search(line)
        if found:
            yield number, f"names a path of one machine ({found[0]}): write it relative to the repository or to ~"


# Files that the rules check


def modules(*packages: str) -> list[Path]:
    folders = [SRC / "tieline" / package for package in packages] or [SRC]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def python_files() -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "bench", "scripts")]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def console_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in (".ts", ".tsx") and path.is_relative_to(ROOT / "web")]


def tracked_files() -> list[Path]:
    """Return all files that git tracks or would track. Skip the test without git."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def assert_clean(rule: Rule, paths: list[Path]) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line}: {advice}"
        for path in paths
        for line, advice in rule(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not offences, "\n" + "\n".join(offences)


def test_every_module_is_named_for_the_noun_it_defines() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:1: '{part}' says nothing: name the module for the noun it defines"
        for path in modules()
        for part in path.relative_to(SRC).with_suffix("").parts
        if part.strip("_") in BANNED_NAMES
    ]
    assert not offences, "\n" + "\n".join(offences)


def test_no_module_is_longer_than_its_limit() -> None:
    assert_clean(long_modules, python_files())


def test_no_function_is_longer_than_its_limit() -> None:
    assert_clean(long_functions, modules())


def test_every_module_opens_with_a_docstring() -> None:
    assert_clean(missing_docstring, modules())


def test_contract_and_core_take_time_identity_and_chance_as_parameters() -> None:
    assert_clean(impure_names, modules("contract", "core"))


def test_no_rule_of_the_core_is_given_the_whole_broker() -> None:
    rules = [path for path in modules("core") if path.name not in ("broker.py", "memory.py")]
    assert_clean(whole_brokers, rules)


def test_sql_lives_in_sql_files_only() -> None:
    assert_clean(sql_statements, modules())


def test_every_limit_says_why_it_is_so_much() -> None:
    assert_clean(unexplained_limits, modules())


def test_the_base_installation_has_every_package_that_is_imported() -> None:
    """The pipeline and the PostgreSQL store have extras of their own, and their tests run with them."""
    extras = [SRC / "tieline" / "pipeline", SRC / "tieline" / "stores" / "postgres"]
    checked = [path for path in modules() if not any(path.is_relative_to(folder) for folder in extras)]
    assert_clean(undeclared_imports, checked)


def test_tests_wait_for_conditions() -> None:
    assert_clean(
        fixed_sleeps, [path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")]
    )


def test_code_and_tests_use_the_words_of_the_glossary() -> None:
    tracked = [path for path in tracked_files() if path.suffix == ".py"]
    assert_clean(private_words, [*tracked, *console_files()])
    assert_clean(private_names, tracked)


def test_docstrings_begin_with_their_subject() -> None:
    assert_clean(indirect_questions, python_files())


def test_comments_of_the_console_begin_with_their_subject() -> None:
    assert_clean(typescript_questions, console_files())


def test_no_regular_expression_repeats_a_group_possessively() -> None:
    assert_clean(possessive_groups, modules())


def test_no_tracked_file_names_a_package_registry() -> None:
    assert_clean(registry_hosts, tracked_files())


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    assert_clean(machine_paths, tracked_files())


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (long_functions, "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX),
        (long_modules, "\n" * (MODULE_LINES_MAX + 1)),
        (missing_docstring, ""),
        (private_words, "class She" + "lf: ..."),
        (private_words, "# The cle" + "rks' work."),
        (private_names, "class _Voice: ..."),
        (private_names, "def f(cards): ..."),
        (private_names, "roll = 1"),
        (typescript_questions, "/** Whether it is so. */"),
        (typescript_questions, "export const a = 1;\n  // What is there."),
        (missing_docstring, "x = 1\n"),
        (indirect_questions, '"""What a member did."""'),
        (indirect_questions, 'class Member:\n    """Who is there."""'),
        (indirect_questions, 'async def f():\n    """\n    Whether it is so.\n    """'),
        (indirect_questions, 'x: int = 1\n"""How many there are."""'),
        (unexplained_limits, "_WAIT_SECONDS = 5.0\n"),
        (unexplained_limits, "# Of the other one.\nA_MAX = 1\n\nB_MAX = 2\nx = 1\n"),
        (unexplained_limits, "A_MIN, A_MAX = 1, 2\n\n\ndef f(): ...\n"),
        (sql_statements, 'q = f"SELECT {x} FROM t"'),
        (sql_statements, 'q = "UPDATE t SET x = 1"'),
        (sql_statements, 'q = "CREATE VIRTUAL TABLE t"'),
        (fixed_sleeps, "async def f():\n    await asyncio.sleep(0.1)"),
        (fixed_sleeps, "time.sleep(PAUSE)"),
        (impure_names, "import random"),
        (impure_names, "from uuid import uuid4"),
        (impure_names, "x = datetime.datetime.now()"),
        (impure_names, "x = time.time()"),
        (whole_brokers, "from tieline.core.broker import Broker"),
        (whole_brokers, "from tieline.core.memory import Memory"),
        (whole_brokers, "def attach(broker, command): ..."),
        (whole_brokers, "def attach(hub: 'Broker', command): ..."),
        (whole_brokers, "def attach(known: Memory): ..."),
        (possessive_groups, 'x = re.compile(r"(?:ab)*+")'),
        (possessive_groups, 'x = re.compile(rb"(ab)++")'),
        (possessive_groups, 'x = re.compile(r"(?:[)]a)?+")'),
        (possessive_groups, 'x = re.compile(r"(?:ab){2,3}+")'),
        (possessive_groups, 'x = re.compile(rf"(?:{a}){{2}}+")'),
        (possessive_groups, 'x = re.compile(b"(?:" + b"|".join(y) + b")*+")'),
        (undeclared_imports, "def f():\n    from mcp.client.stdio import stdio_client"),
        (undeclared_imports, "import pytest.fixtures"),
        (undeclared_imports, "if TYPE_CHECKING:\n    import pyspark"),
        (registry_hosts, f"see https://{REGISTRY_HOSTS[0]}/simple"),
        (machine_paths, "cd " + "/ro" + "ot/x"),
        (machine_paths, '"' + "/ho" + 'me/ada/x"'),
    ],
)
def test_each_rule_finds_an_offence_planted_for_it(rule: Rule, text: str) -> None:
    assert list(rule(text))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (unexplained_limits, '_WAIT_SECONDS = 5.0\n"""As long as programs wait."""\n'),
        (unexplained_limits, '_WAIT_SECONDS = 5.0\n_OTHER_SECONDS = 1.0\n"""As long as programs wait."""\n'),
        (unexplained_limits, "_WAIT_SECONDS = 5.0  # as long as programs wait\n"),
        (unexplained_limits, "# As long as programs wait.\n_WAIT_SECONDS = 5.0\n"),
        (unexplained_limits, "DAY_MS = 86_400_000\n"),
        (long_modules, f'"""Frames."""\n{GENERATED} (scripts/derive.py). Do not edit.\n' + "\n" * MODULE_LINES_MAX),
        (private_words, "signature = discard(desktop)"),
        (private_names, "def roll_back(): pass\n\nx = row.voice  # a filter passes it"),
        (typescript_questions, "// Words\nconst asked = 'What'; /* Whatever it is. */"),
        (indirect_questions, '"""Whatever a member sends, in order. Who may read it is decided elsewhere."""'),
        (indirect_questions, 'x = "What a member did."  # a text of the program'),
        (sql_statements, '"""Names a SELECT in prose."""'),
        (sql_statements, 'x = "Select a member from the list"'),
        (fixed_sleeps, "while not ready():\n    time.sleep(0.01)"),
        (fixed_sleeps, "asyncio.sleep(0)"),
        (fixed_sleeps, "# A token expires by time.\ntime.sleep(1)"),
        (impure_names, "x = clock.now() + randomness.draw()"),
        (whole_brokers, "from tieline.core.batch import Batch"),
        (whole_brokers, "def note(memory: _Memory[str, int]): ..."),
        (possessive_groups, '"""Forbids (?:ab)*+ in prose."""'),
        (possessive_groups, "x = 1  # (?:ab)*+"),
        (possessive_groups, 'x = re.compile(r"(?:[a-z]*+,)*[)*+]\\)++[^])*+]")'),
        (
            undeclared_imports,
            "import os.path\nimport tieline.wire\nfrom prometheus_client import Counter\nfrom . import mcp",
        ),
        (undeclared_imports, '"""Comes\nfrom mcp import nothing."""'),
        (machine_paths, "~/work/x  src/root/x  $HOME/x  https://example.org/work/x"),
    ],
)
def test_each_rule_leaves_its_neighbours_alone(rule: Rule, text: str) -> None:
    assert not list(rule(text))
