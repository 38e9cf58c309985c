-- Every statement of the catalogue of files, by name.

-- name: find
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path = ?

-- name: children
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE parent = ? ORDER BY kind = 'file', path LIMIT ?

-- name: beneath
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path > ? AND path < ? ORDER BY path

-- name: files
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE kind = 'file' ORDER BY updated_at_ms DESC, path LIMIT ?

-- name: usage
SELECT count(*), coalesce(sum(size), 0) FROM entry WHERE home = ?

-- name: digest
SELECT digest FROM entry WHERE path = ?

-- name: remove
DELETE FROM entry WHERE path = ?

-- name: move
UPDATE entry SET path = ?, parent = ?, home = ?, updated_at_ms = ? WHERE path = ?

-- name: put
INSERT INTO entry
    (path, parent, home, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (path) DO UPDATE SET
    updated_at_ms = excluded.updated_at_ms,
    size = excluded.size,
    media_type = excluded.media_type,
    digest = excluded.digest

-- name: refers
SELECT EXISTS (SELECT 1 FROM entry WHERE digest = ?)

-- name: share
INSERT OR IGNORE INTO share (path, viewer, via, at_ms)
SELECT path, ?2, ?3, ?4 FROM entry WHERE path = ?1

-- name: make_permanent
-- An empty reason is the one that all permanent shares have, so there is at most one of them for a path and a viewer.
UPDATE OR REPLACE share SET via = '' WHERE via = ? AND viewer = ?

-- name: unshare
DELETE FROM share WHERE via = ? AND viewer = ?

-- name: forget
DELETE FROM share WHERE viewer = ? AND at_ms < ?

-- name: viewers
SELECT DISTINCT viewer FROM share ORDER BY viewer

-- Lists are passed as JSON arrays.

-- name: viewers_of
SELECT DISTINCT viewer FROM share WHERE path IN (SELECT value FROM json_each(?)) ORDER BY viewer

-- name: is_shared
SELECT EXISTS (SELECT 1 FROM share WHERE path = ? AND viewer IN (SELECT value FROM json_each(?)))

-- name: shared
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path IN (SELECT path FROM share WHERE viewer IN (SELECT value FROM json_each(?)))
ORDER BY updated_at_ms DESC, path LIMIT ?
