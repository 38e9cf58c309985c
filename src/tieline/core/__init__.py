"""The hub's decision logic. The broker passes each command to its rule, and uses the Store port for durable storage.

No module here does I/O, reads a clock or makes random numbers. Time, randomness and the store are parameters, so that a
simulation can run years in a second. The broker is single-threaded by design: it decides one command after the other.
"""
