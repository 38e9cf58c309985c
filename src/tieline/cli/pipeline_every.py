"""`tieline pipeline run --every 5m`: runs the pipeline at intervals, each time in a process of its own.

Used by: `tieline pipeline run`, as a service or as the hub's child. Uses: the same command with `--once`. Between two
runs there is no Spark, no Java and none of their memory. A run without new rows starts no Spark either; it stores the
report and sends alerts, because some alerts depend only on the clock. A run that fails does not end the service.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tieline.cli.failure import Exit
from tieline.cli.output import warn
from tieline.cli.pipeline_run import interrupts

_NICENESS = 5
"""Lower priority than usual: the hub and the agents on the same machine go first."""
_POLL_SECONDS = 0.2  # how late a signal is noticed


def run_every(seconds: int, arguments: Sequence[str]) -> None:
    """Run `tieline` with these arguments and `--once`, every so many seconds, until a signal comes.

    Two runs never overlap: if a run takes longer than the interval, the next one begins at the end of the interval in
    which it ended.
    """
    os.nice(_NICENESS)
    command = [sys.executable, "-P", "-m", "tieline.cli.main", *arguments, "--once"]
    with interrupts() as noted:
        while not noted:
            begun = time.monotonic()
            code = _run(command, noted)
            ticks = max(1, math.ceil((time.monotonic() - begun) / seconds))
            if code not in (Exit.DONE, Exit.MISSED) and not noted:
                warn(f"this run failed; the next one begins within {seconds} s")
            while not noted and time.monotonic() < begun + ticks * seconds:
                time.sleep(min(_POLL_SECONDS, seconds))


def _run(command: Sequence[str], noted: list[int]) -> int:
    """Run a command until it ends, and return its exit code.

    `noted` is the list of signals that this process has received. At the first signal, send SIGTERM to the command.
    Later signals change nothing.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:  # noqa: S603 - this same program
        passed_on = False
        while True:
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if noted and not passed_on:
                    process.terminate()
                    passed_on = True
