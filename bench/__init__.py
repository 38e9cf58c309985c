"""Benchmarks: what the hub costs, each figure beside its reference from the same run. `python -m bench list`."""
