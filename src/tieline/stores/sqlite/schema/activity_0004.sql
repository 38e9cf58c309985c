-- The identity of the log. Retention deletes its oldest rows, so its first row says what is kept.
CREATE TABLE log_state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    epoch TEXT NOT NULL
) STRICT;
INSERT INTO log_state VALUES (1, lower(hex(randomblob(16))));

-- Readers of the log. Retention waits for the lowest position.
CREATE TABLE reader (
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL CHECK (position >= 0),
    set_by TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    missed_first INTEGER,
    missed_last INTEGER,
    warned INTEGER NOT NULL CHECK (warned IN (0, 1))
) STRICT, WITHOUT ROWID;
