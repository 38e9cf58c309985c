"""Fixtures of the hub's own protocol: the hub that the tests of agents use, with the members alice and bob."""

from tests.agents.conftest import home

__all__ = ["home"]
