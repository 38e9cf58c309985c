"""A run of the pipeline in its own process, which prints its stages: `piper.py HOME SCRATCH LAKE…`."""

import sys
from pathlib import Path

from tests.pipeline.conftest import QUICK
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run
from tieline.pipeline.session import start_session

ROWS_PER_BATCH = 3000


def say(stage: str) -> None:
    """Print a line and flush it at once."""
    sys.stdout.write(f"{stage}\n")
    sys.stdout.flush()


def main() -> None:
    """Bring every lake up to date, with a line for each stage."""
    home, scratch, *lakes = sys.argv[1:]
    spark = start_session("local[2]", scratch=Path(scratch), brief=True, settings=QUICK)
    for lake in lakes:
        run(spark, Lake(Path(lake)), {"home": home}, rows_per_batch=ROWS_PER_BATCH, watch=Watch(stage=say))
    spark.stop()


if __name__ == "__main__":
    main()
