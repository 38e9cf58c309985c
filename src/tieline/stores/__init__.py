"""Implementations of the Store port, one folder each; `tests/conformance` holds them all to the same behaviour."""
