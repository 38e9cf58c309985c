-- The catalogue of files: a database of its own, because uploads must not make messages wait.
CREATE TABLE entry (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    home TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('file', 'directory')),
    owner TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    size INTEGER,
    media_type TEXT,
    digest TEXT,
    CHECK ((kind = 'file') = (size IS NOT NULL)),
    CHECK ((kind = 'file') = (media_type IS NOT NULL)),
    CHECK ((kind = 'file') = (digest IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX entry_by_parent ON entry (parent);
CREATE INDEX entry_by_home ON entry (home, size);
-- How often a digest is in here is its count of references: it cannot be wrong, because it is not kept apart.
CREATE INDEX entry_by_digest ON entry (digest) WHERE digest IS NOT NULL;
CREATE INDEX entry_by_time ON entry (updated_at_ms) WHERE kind = 'file';
CREATE TABLE share (
    path TEXT NOT NULL REFERENCES entry (path) ON DELETE CASCADE ON UPDATE CASCADE,
    viewer TEXT NOT NULL,
    via TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (path, viewer, via)
) STRICT, WITHOUT ROWID;
CREATE INDEX share_by_viewer ON share (viewer);
CREATE INDEX share_by_via ON share (via, viewer);
