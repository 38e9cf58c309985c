-- The catalogue of files, their bytes, and documents that the hub keeps as a whole.
CREATE TABLE entry (
    path text COLLATE "C" PRIMARY KEY,
    parent text COLLATE "C" NOT NULL,
    home text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('file', 'directory')),
    owner text NOT NULL,
    created_at_ms bigint NOT NULL,
    created_by text NOT NULL,
    updated_at_ms bigint NOT NULL,
    size bigint,
    media_type text,
    digest text COLLATE "C",
    CHECK ((kind = 'file') = (size IS NOT NULL)),
    CHECK ((kind = 'file') = (media_type IS NOT NULL)),
    CHECK ((kind = 'file') = (digest IS NOT NULL))
);
CREATE INDEX entry_by_parent ON entry (parent);
CREATE INDEX entry_by_home ON entry (home, size);
-- How often a digest is in here is its count of references: it cannot be wrong, because it is not kept apart.
CREATE INDEX entry_by_digest ON entry (digest) WHERE digest IS NOT NULL;
CREATE INDEX entry_by_time ON entry (updated_at_ms) WHERE kind = 'file';
CREATE TABLE share (
    path text COLLATE "C" NOT NULL REFERENCES entry (path) ON DELETE CASCADE ON UPDATE CASCADE,
    viewer text COLLATE "C" NOT NULL,
    via text COLLATE "C" NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (path, viewer, via)
);
CREATE INDEX share_by_viewer ON share (viewer);
CREATE INDEX share_by_via ON share (via, viewer);

-- The bytes of files, in pieces, by the hash of the whole.
CREATE TABLE blob (
    digest text COLLATE "C" NOT NULL,
    piece integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (digest, piece)
);
-- The bytes are often compressed already.
ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE document (
    name text COLLATE "C" PRIMARY KEY,
    content bytea NOT NULL
);
