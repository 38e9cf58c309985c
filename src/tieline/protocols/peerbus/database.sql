-- The database of the first broker, as far as Tieline writes and reads it. Every statement by name.

-- name: schema
CREATE TABLE peers (
    name TEXT PRIMARY KEY,
    registered INTEGER NOT NULL DEFAULT 0,
    ts INTEGER NOT NULL
);
CREATE TABLE messages (
    id TEXT NOT NULL UNIQUE,
    sender TEXT NOT NULL,
    recipient TEXT NOT NULL,
    envelope BLOB NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0,
    acked INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL,
    ts INTEGER NOT NULL
);
CREATE INDEX idx_messages_pending ON messages (recipient, delivered, sender, seq);
CREATE TABLE sender_seq (
    sender TEXT PRIMARY KEY,
    next INTEGER NOT NULL
);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL UNIQUE,
    prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL,
    event BLOB NOT NULL,
    ts INTEGER NOT NULL
);

-- name: deliveries
-- Which delivery of which member has which key, while a chain is written; gone with the connection.
CREATE TEMP TABLE delivery (
    number INTEGER NOT NULL,
    place INTEGER NOT NULL,
    key TEXT NOT NULL,
    sender TEXT NOT NULL,
    recipient TEXT NOT NULL,
    PRIMARY KEY (number, place)
) WITHOUT ROWID

-- name: insert_delivery
INSERT OR REPLACE INTO delivery (number, place, key, sender, recipient) VALUES (?, ?, ?, ?, ?)

-- name: find_deliveries
SELECT key, sender, recipient FROM delivery WHERE number = ? AND place BETWEEN ? AND ? ORDER BY place

-- name: insert_peer
INSERT INTO peers (name, registered, ts) VALUES (?, ?, ?)

-- name: insert_audit
INSERT INTO audit (seq, prev_hash, hash, event, ts) VALUES (?, ?, ?, ?, ?)

-- name: peers
SELECT name FROM peers ORDER BY ts, name

-- name: unacknowledged
SELECT id, sender, recipient, envelope FROM messages WHERE acked = 0 ORDER BY rowid

-- name: audit
SELECT seq, prev_hash, hash, event FROM audit ORDER BY seq
