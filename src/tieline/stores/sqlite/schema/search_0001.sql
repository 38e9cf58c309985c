-- The search database: an index over the messages of the main one, which it follows. It can be made anew at any time.
CREATE VIRTUAL TABLE said USING fts5 (
    body,
    title,
    content = '',
    contentless_delete = 1,
    tokenize = 'unicode61 remove_diacritics 2'
);
-- How far in the log it got, and the hash of the row before that: another log of the same length has another.
CREATE TABLE progress (log_end INTEGER NOT NULL, hash BLOB) STRICT;
INSERT INTO progress (log_end, hash) VALUES (0, NULL);
