"""Parts that all protocols share: message formats, sockets, the session pump, and the hub's own protocol."""
