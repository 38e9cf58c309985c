"""The data pipeline: a reader of a hub's logs that turns them into tables, on Spark through PySpark.

Used by: the command line, which imports the pipeline only when one of its commands runs. Uses: the logs, in a hub's
home or behind its URL. The hub never imports the pipeline, and runs without the `pipeline` extra.
"""
