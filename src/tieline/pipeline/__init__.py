"""The data pipeline: a reader of a hub's logs that turns them into tables, on Spark through PySpark.

Above: the command line, which imports the pipeline only when one of its commands runs. Below: the logs, in a hub's home
or behind its URL. The hub never imports the pipeline, and runs without the `pipeline` extra.
"""
