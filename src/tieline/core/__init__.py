"""The hub's decision logic (the broker): one dispatcher over pure rules, between the Hub port and the Store port.

No module here does I/O, reads a clock or makes random numbers. Time, randomness and the store are parameters, so that a
simulation can run years in a second. The broker is single-threaded by design: it decides one command after the other.
"""
