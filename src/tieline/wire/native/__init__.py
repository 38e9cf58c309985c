"""The hub's own protocol: batches of typed JSON frames, on `<home>/hub.sock` and `/api/stream`."""
