"""Implementations of the Store port, one folder each. `tests/conformance` tests that they all behave the same."""
