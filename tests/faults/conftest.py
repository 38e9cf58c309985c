"""Fixtures of the fault tests: the Spark session of the pipeline's tests."""

from tests.pipeline.conftest import scratch, spark

__all__ = ["scratch", "spark"]
