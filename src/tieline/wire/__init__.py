"""What protocols share: frames, sockets, the conversation loop, and the hub's own protocol."""
