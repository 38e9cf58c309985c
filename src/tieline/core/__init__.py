"""The broker: one dispatcher over pure rules, behind the Hub port and in front of the Store port.

Nothing here does I/O, reads a clock or rolls dice: time, chance and the store are parameters, so that a simulation
can run years of it in a second. It is single-threaded by design: one command is decided after the other.
"""
