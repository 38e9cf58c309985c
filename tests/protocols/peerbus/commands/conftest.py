"""Fixtures of the command line tests: one hub for all tests that do not stop it."""

from tests.cli.conftest import alice, bob, hub

__all__ = ["alice", "bob", "hub"]
