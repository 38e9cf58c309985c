"""Starts the Python workers of a Spark session on this machine. `session` names this module to Spark.

Spark's own daemon forks workers, and each worker then imports its modules. This daemon imports the modules once, before
it forks workers. It freezes the imported objects, so that the garbage collection after each task does not look at them.
"""

import gc

import pyspark.worker  # noqa: F401 - the workers need it
from pyspark.daemon import manager

import tieline.pipeline.tasks  # noqa: F401 - the workers need it

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
