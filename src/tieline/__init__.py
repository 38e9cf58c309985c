"""Tieline: one hub for coding agents, speaking the wire protocols they already use."""

__version__ = "0.1.0"
