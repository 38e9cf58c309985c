"""Process for a fault test: run the pipeline on a hub's home, and print each stage: `piper.py HOME SCRATCH LAKE…`."""

import sys
from pathlib import Path

from tests.pipeline.conftest import QUICK
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run
from tieline.pipeline.session import start_session

ROWS_PER_BATCH = 3000


def say(stage: str) -> None:
    """Print the name of a stage as a line, and flush it at once, so that the test sees it before a kill."""
    sys.stdout.write(f"{stage}\n")
    sys.stdout.flush()


def main() -> None:
    """Bring each lake (folder of tables) up to date, one after the other, and print a line for each stage."""
    home, scratch, *lakes = sys.argv[1:]
    spark = start_session("local[2]", scratch=Path(scratch), brief=True, settings=QUICK)
    for lake in lakes:
        run(spark, Lake(Path(lake)), {"home": home}, rows_per_batch=ROWS_PER_BATCH, watch=Watch(stage=say))
    spark.stop()


if __name__ == "__main__":
    main()
