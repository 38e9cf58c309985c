-- How the logs are read from outside the hub, a page at a time.

-- name: main_end
SELECT coalesce(max(offset) + 1, 0) FROM log

-- name: activity_end
SELECT coalesce(max(offset) + 1, 0) FROM activity

-- A database that an older program made has no such table before a hub opens it.
-- name: has_epoch
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'log_state'

-- name: epoch
SELECT epoch FROM log_state

-- name: names
SELECT number, name FROM member

-- name: rows
SELECT offset, at_ms, event, hash FROM log WHERE offset >= ? AND offset < ? ORDER BY offset

-- name: messages
SELECT
    offset, id, sender, protocol, wire_id, target, sent_at_ms, expires_at_ms, verified, hops, cause, signature, content,
    route
FROM message WHERE offset >= ? AND offset < ? ORDER BY offset

-- name: happenings
SELECT objective_event.offset, objective.id, actor, event
FROM objective_event JOIN objective USING (serial)
WHERE objective_event.offset >= ? AND objective_event.offset < ? ORDER BY objective_event.offset

-- name: activity
SELECT offset, at_ms, number, kind, ts_ms, event FROM activity
WHERE offset >= ? AND offset < ? ORDER BY offset
