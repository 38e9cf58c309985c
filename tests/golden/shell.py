"""Process that runs commands of `tieline`, each in a forked child, so that the modules are imported only once.

It reads one JSON document per line, `{"argv": […], "stdin": "…", "env": {…}}`, and answers each with `{"exit", "out",
"err"}`. Its clock stands still.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NOW_MS = 1_798_765_200_000
"""The constant time of the commands: one hour after the start of a golden test's conversation."""


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run one command in a child process. Return its exit code, output and error output."""
    with tempfile.TemporaryDirectory() as folder:
        given, out, err = (Path(folder, name) for name in ("in", "out", "err"))
        given.write_text(asked["stdin"])
        child = os.fork()
        if child == 0:
            _become(asked, given, out, err)
        _, status = os.waitpid(child, 0)
        return {"exit": os.waitstatus_to_exitcode(status), "out": out.read_text(), "err": err.read_text()}


def _become(asked: dict[str, Any], given: Path, out: Path, err: Path) -> None:
    """Run the command in this forked child, with files as standard streams, and end the process."""
    code = 1
    try:
        for number, path, flags in ((0, given, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
            os.dup2(os.open(path, flags | os.O_CREAT, 0o600), number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8") for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.environ.update(asked["env"])
        sys.argv = ["tieline", *asked["argv"]]
        main.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    time.time_ns = lambda: NOW_MS * 1_000_000
    time.time = lambda: NOW_MS / 1000
    from tieline.cli import main

    # Modules that most commands import when they run.
    for name in ("tieline.client", "tieline.protocols.backchannel.client", "tieline.core.store", "asyncio", "uuid"):
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()
