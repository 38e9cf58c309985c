"""The fixtures of the command line: one hub for all tests that do not stop it, and a place without one."""

from tests.cli.conftest import alice, bob, hub, place

__all__ = ["alice", "bob", "hub", "place"]
