"""agent-relay: envelopes over a Unix socket, and instructions in what a terminal program prints.

Above: the hub's server and the wrapper for terminal programs. Below: `wire`.

`extractor` reads a program's output, by the grammar of `instruction` and with `escapes` for what only the screen obeys.
"""
