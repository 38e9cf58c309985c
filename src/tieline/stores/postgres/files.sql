-- Every statement of the catalogue of files, its bytes and documents in PostgreSQL, by name.

-- name: find
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path = $1

-- name: children
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE parent = $1 ORDER BY kind = 'file', path LIMIT $2

-- name: beneath
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path > $1 AND path < $2 ORDER BY path

-- name: files
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE kind = 'file' ORDER BY updated_at_ms DESC, path LIMIT $1

-- name: usage
SELECT count(*), coalesce(sum(size), 0)::bigint FROM entry WHERE home = $1

-- name: digests_of
SELECT DISTINCT digest FROM entry WHERE path = ANY($1::text[]) AND digest IS NOT NULL

-- name: remove
DELETE FROM entry WHERE path = $1

-- name: move
UPDATE entry SET path = $1, parent = $2, home = $3, updated_at_ms = $4 WHERE path = $5

-- name: put
INSERT INTO entry
    (path, parent, home, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (path) DO UPDATE SET
    updated_at_ms = excluded.updated_at_ms,
    size = excluded.size,
    media_type = excluded.media_type,
    digest = excluded.digest

-- name: refers
SELECT EXISTS (SELECT 1 FROM entry WHERE digest = $1)

-- name: unused
SELECT digest FROM unnest($1::text[]) AS asked (digest)
WHERE NOT EXISTS (SELECT 1 FROM entry WHERE entry.digest = asked.digest) ORDER BY digest

-- name: share
INSERT INTO share (path, viewer, via, at_ms)
SELECT entry.path, viewer.name, $3, $4 FROM entry CROSS JOIN unnest($2::text[]) AS viewer (name)
WHERE entry.path = ANY($1::text[])
ON CONFLICT DO NOTHING

-- name: end_permanent
-- An empty reason is the one that all permanent shares have, so there is at most one of them for a path and a viewer.
DELETE FROM share WHERE via = '' AND viewer = $2
    AND path IN (SELECT path FROM share AS other WHERE other.via = $1 AND other.viewer = $2)

-- name: make_permanent
UPDATE share SET via = '' WHERE via = $1 AND viewer = $2

-- name: unshare
DELETE FROM share WHERE via = $1 AND viewer = $2

-- name: forget
DELETE FROM share WHERE viewer = $1 AND at_ms < $2

-- name: viewers
SELECT DISTINCT viewer FROM share ORDER BY viewer

-- name: viewers_of
SELECT DISTINCT viewer FROM share WHERE path = ANY($1::text[]) ORDER BY viewer

-- name: is_shared
SELECT EXISTS (SELECT 1 FROM share WHERE path = $1 AND viewer = ANY($2::text[]))

-- name: shared
SELECT path, kind, owner, created_at_ms, created_by, updated_at_ms, size, media_type, digest
FROM entry WHERE path IN (SELECT path FROM share WHERE viewer = ANY($1::text[]))
ORDER BY updated_at_ms DESC, path LIMIT $2

-- name: put_piece
INSERT INTO blob (digest, piece, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: blob_size
SELECT coalesce(sum(length(data)), -1)::bigint FROM blob WHERE digest = $1

-- name: piece
SELECT data FROM blob WHERE digest = $1 AND piece = $2

-- name: discard
DELETE FROM blob WHERE digest = $1

-- name: blobs
SELECT DISTINCT digest FROM blob

-- name: document
SELECT content FROM document WHERE name = $1

-- name: put_document
INSERT INTO document (name, content) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET content = excluded.content
