"""The hub's decision logic. The broker passes each command to the rule (a method) that decides this kind of command.

No module here does I/O, reads a clock or makes random numbers. Time, randomness and the store are parameters, so that a
simulation can run years in a second. The broker is single-threaded by design: it handles one command after the other.
It uses the interface `Store` for durable storage.
"""
