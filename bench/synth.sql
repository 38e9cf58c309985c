-- How the generator writes a home: only inserts, into the tables that a hub makes.

-- name: member
INSERT INTO member (number, name, kind, permissions, origin, created_at_ms, since) VALUES (?, ?, ?, x'5b5d', 'token', ?, 0)

-- name: log
INSERT INTO log (offset, at_ms, event, hash) VALUES (?, ?, ?, ?)

-- name: message
INSERT INTO message
    (offset, id, sender, protocol, target, sent_at_ms, expires_at_ms, verified, hops, cause, content, route, signature)
VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)

-- name: step
INSERT INTO step (number, state, first, last, offset) VALUES (?, ?, ?, ?, ?)

-- name: objective
INSERT INTO objective (serial, id, offset, status, assignee, parties, content) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: objective_event
INSERT INTO objective_event (offset, serial, at_ms, actor, event) VALUES (?, ?, ?, ?, ?)

-- name: activity
INSERT INTO activity (offset, at_ms, number, kind, ts_ms, event) VALUES (?, ?, ?, ?, ?, ?)
