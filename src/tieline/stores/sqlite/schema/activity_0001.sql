-- The activity database: what agents did. Its own file, so that heavy traces never stall messages.
CREATE TABLE activity (
    offset INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    number INTEGER NOT NULL,
    event BLOB NOT NULL
) STRICT;
CREATE INDEX activity_by_member ON activity (number, at_ms);
