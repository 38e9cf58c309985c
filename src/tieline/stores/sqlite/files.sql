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

-- name: unshare
DELETE FROM share WHERE via = ? AND viewer = ?

-- name: forget
DELETE FROM share WHERE viewer = ?

-- name: is_shared
SELECT EXISTS (SELECT 1 FROM share WHERE path = ?1 AND viewer IN (?2, ?3))

-- name: shared
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path IN (SELECT path FROM share WHERE viewer IN (?1, ?2))
ORDER BY updated_at_ms DESC, path LIMIT ?3
