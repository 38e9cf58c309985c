"""Fixtures of the command line tests: one hub for all tests that do not stop it, and a place without a hub."""

from tests.cli.conftest import alice, bob, hub, place

__all__ = ["alice", "bob", "hub", "place"]
