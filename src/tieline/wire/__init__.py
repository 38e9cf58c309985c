"""Parts that all protocols share: frames, sockets, the session pump, and the hub's own protocol."""
