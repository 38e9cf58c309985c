"""Starts the Python workers of a Spark session on this machine. `session` names this module to Spark.

Spark's own daemon forks workers that then import their modules, each for itself. This one imports the modules before,
once for all workers. They are frozen, so that the garbage collection after each task does not look at them.
"""

import gc

import pyspark.worker  # noqa: F401 - the workers need it
from pyspark.daemon import manager

import tieline.pipeline.tasks  # noqa: F401 - the workers need it

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
