"""Implementations of `core.store`, each in its own folder. `tests/conformance` tests that they behave the same."""
