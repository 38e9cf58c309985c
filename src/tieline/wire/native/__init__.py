"""The hub's own protocol: JSON arrays of typed objects (frames), on `<home>/hub.sock` and at `/api/stream`."""
