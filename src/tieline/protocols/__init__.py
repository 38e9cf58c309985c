"""One folder per protocol, all alike: a codec without I/O, a server, a client, and PROTOCOL.md."""
