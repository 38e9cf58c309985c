"""The link: the interface `Hub` over a connection between two processes, a worker and the hub.

A *worker* is a process that serves clients and has no broker. It uses a `RemoteHub`, an implementation of `Hub`.
The hub's process has a `LinkServer` before its local hub. `codec` encodes and decodes what passes the link, `greeting`
has the first frames, `connection` is one connection, and `end` is the part that both ends share, which outlives
connections. No module of this package knows how the broker decides, or what a client said.
"""
