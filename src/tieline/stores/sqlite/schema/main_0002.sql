-- Sessions that can be taken up again, with their tokens hashed.
CREATE TABLE resumption (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL REFERENCES member (number),
    digest BLOB NOT NULL,
    previous BLOB,
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
