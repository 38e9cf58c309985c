-- The main database: the log with its audit chain, messages, and what the broker starts from.

-- Append-only. `offset` is dense and in commit order; `hash` links each row to the one before it.
CREATE TABLE log (
    offset INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    event BLOB NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- A message stands at the offset of its `send` row. Its content is beside the log so that retention can forget it
-- while the chain, which holds its digest, stays.
CREATE TABLE message (
    offset INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    sender TEXT NOT NULL,
    protocol TEXT NOT NULL,
    wire_id TEXT,
    target TEXT NOT NULL,
    sent_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
    hops INTEGER NOT NULL CHECK (hops >= 0),
    cause TEXT,
    content BLOB NOT NULL,
    -- Three columns of 64-bit integers, one after the other: member numbers, delivery keys, stream sequences.
    route BLOB NOT NULL CHECK (length(route) % 24 = 0)
) STRICT;
CREATE UNIQUE INDEX message_by_id ON message (id);
CREATE UNIQUE INDEX message_by_wire_id ON message (sender, protocol, wire_id) WHERE wire_id IS NOT NULL;
CREATE INDEX message_by_target ON message (target);
CREATE INDEX message_by_expiry ON message (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Which log row moved which deliveries. Ranges of one member and state hardly ever overlap (only where a delivery was
-- offered on a wire without acknowledgement first), so the first that ends at or after a key mostly is the one.
CREATE TABLE step (
    number INTEGER NOT NULL,
    state INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL CHECK (first <= last),
    offset INTEGER NOT NULL,
    PRIMARY KEY (number, state, last, first)
) STRICT, WITHOUT ROWID;

-- Numbers are never reused: a removed member keeps its row, so that old routes can be read.
CREATE TABLE member (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    permissions BLOB NOT NULL,
    origin TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    -- The end of the log when it was made.
    since INTEGER NOT NULL,
    removed_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX member_by_name ON member (lower(name)) WHERE removed_at_ms IS NULL;

CREATE TABLE token (
    digest BLOB PRIMARY KEY,
    number INTEGER NOT NULL REFERENCES member (number),
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE subscription (
    channel TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES member (number),
    PRIMARY KEY (channel, number)
) STRICT, WITHOUT ROWID;

-- Inboxes and streams as of the log row before `snapshot.log_end`.
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    base INTEGER NOT NULL,
    offsets BLOB NOT NULL,
    stream_seqs BLOB NOT NULL,
    rungs BLOB NOT NULL,
    streams BLOB NOT NULL,
    last_seen_ms INTEGER
) STRICT;
CREATE TABLE snapshot (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    log_end INTEGER NOT NULL
) STRICT;
INSERT INTO snapshot VALUES (1, 0);
