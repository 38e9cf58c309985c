-- The activity log: what agents did. It has tables and a connection of its own, so that heavy traces never stall
-- messages.
CREATE TABLE activity (
    log_offset bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    number bigint NOT NULL,
    -- The kind and the time that the event itself gives, by which activity is found.
    kind bytea NOT NULL,
    ts_ms bigint NOT NULL,
    event bytea NOT NULL
);
CREATE INDEX activity_by_member ON activity (number, ts_ms, log_offset);
CREATE INDEX activity_by_kind ON activity (number, kind, ts_ms, log_offset);

-- The identity of the log. Retention deletes its oldest rows, so its first row says what is kept.
CREATE TABLE activity_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    epoch text NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', '')
);
INSERT INTO activity_state DEFAULT VALUES;

-- Readers of the log. Retention waits for the lowest position.
CREATE TABLE activity_reader (
    name text COLLATE "C" PRIMARY KEY,
    position bigint NOT NULL CHECK (position >= 0),
    set_by text NOT NULL,
    at_ms bigint NOT NULL,
    missed bigint NOT NULL,
    missed_first bigint,
    missed_last bigint,
    warned boolean NOT NULL
);
