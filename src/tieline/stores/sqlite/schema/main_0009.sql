-- Texts that the events of many log rows share; see words.py. A newer row has the numbers of its words; older rows stay
-- as they are. Append-only, like the log.
CREATE TABLE word (
    number INTEGER PRIMARY KEY,
    text BLOB NOT NULL
) STRICT;
