"""A run in a process of its own that kills itself at a given stage: `victim.py HOME LAKE SCRATCH STAGE`."""

import os
import signal
import sys
from pathlib import Path

from tests.pipeline.conftest import QUICK
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run
from tieline.pipeline.session import start_session


def main() -> None:
    """Run until the stage, and die there, Spark with it."""
    home, lake, scratch, stage = sys.argv[1:]

    def die(name: str) -> None:
        if name == stage:
            os.killpg(os.getpgid(0), signal.SIGKILL)

    spark = start_session("local[2]", scratch=Path(scratch), settings=QUICK)
    run(spark, Lake(Path(lake)), {"home": home}, rows_per_batch=1500, watch=Watch(stage=die))


if __name__ == "__main__":
    main()
