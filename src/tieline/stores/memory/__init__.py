"""A store that forgets everything when the process ends: for simulations, and to measure what durability costs."""

from tieline.stores.memory.activity import MemoryActivity
from tieline.stores.memory.search import MemorySearch
from tieline.stores.memory.store import MemoryStore

__all__ = ["MemoryActivity", "MemorySearch", "MemoryStore"]
