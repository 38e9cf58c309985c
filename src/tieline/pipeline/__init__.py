"""The data pipeline: a reader of a hub's logs that turns them into tables, on Spark through PySpark.

Above: the command line, which imports it when a command of it runs. Below: the logs, in a hub's home or behind its URL.
The hub never imports it, and runs without the extra that it needs.
"""
