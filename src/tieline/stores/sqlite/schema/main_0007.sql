-- The identity of the log, and the offset from which on retention has deleted no message.
CREATE TABLE log_state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    epoch TEXT NOT NULL,
    kept_from INTEGER NOT NULL
) STRICT;
INSERT INTO log_state
SELECT 1, lower(hex(randomblob(16))), coalesce(max(log.offset) + 1, 0)
FROM log LEFT JOIN message ON message.offset = log.offset
WHERE message.offset IS NULL AND CAST(substr(log.event, 1, 15) AS TEXT) = '{"event":"send"';

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
