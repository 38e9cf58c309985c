"""The hub that the tests of agents use: its members are alice and bob."""

from tests.agents.conftest import home

__all__ = ["home"]
