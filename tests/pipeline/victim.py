"""A run of its own that kills itself so long after a stage begins: `victim.py HOME LAKE SCRATCH ROWS STAGE SECONDS`.

ROWS are those of a batch.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from tests.pipeline.conftest import QUICK
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run
from tieline.pipeline.session import start_session


def main() -> None:
    """Run until the stage, and die there, Spark with it."""
    home, lake, scratch, rows, stage, seconds = sys.argv[1:]

    def kill() -> None:
        os.killpg(os.getpgid(0), signal.SIGKILL)

    def die(name: str) -> None:
        if name != stage:
            return
        if float(seconds):
            # The stage continues meanwhile.
            threading.Timer(float(seconds), kill).start()
        else:
            kill()

    spark = start_session("local[2]", scratch=Path(scratch), brief=True, settings=QUICK)
    run(spark, Lake(Path(lake)), {"home": home}, rows_per_batch=int(rows), watch=Watch(stage=die))


if __name__ == "__main__":
    main()
