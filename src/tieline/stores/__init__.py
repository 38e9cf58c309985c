"""Implementations of the Store port, each in its own folder. `tests/conformance` tests that they behave the same."""
