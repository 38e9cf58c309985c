-- Every statement of the SQLite store, by name.

-- name: append_log
INSERT INTO log (offset, at_ms, event, hash) VALUES (?, ?, ?, ?)

-- name: insert_message
INSERT INTO message
    (offset, id, sender, protocol, wire_id, target, sent_at_ms, expires_at_ms, verified, hops, cause, content, route)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_step
INSERT OR IGNORE INTO step (number, state, first, last, offset) VALUES (?, ?, ?, ?, ?)

-- name: insert_member
INSERT INTO member (number, name, kind, permissions, origin, created_at_ms, since) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: remove_member
UPDATE member SET removed_at_ms = ? WHERE number = ?

-- name: forget_wire_ids
UPDATE message SET wire_id = NULL
WHERE wire_id IS NOT NULL AND sender = (SELECT name FROM member WHERE number = ?)

-- name: delete_tokens
DELETE FROM token WHERE number = ?

-- name: insert_token
INSERT INTO token (digest, number, created_at_ms, expires_at_ms) VALUES (?, ?, ?, ?)

-- name: replace_grant
INSERT OR REPLACE INTO resumption (id, number, digest, previous, expires_at_ms) VALUES (?, ?, ?, ?, ?)

-- name: delete_grants
DELETE FROM resumption WHERE number = ?

-- name: grants
SELECT id, number, digest, previous, expires_at_ms FROM resumption

-- name: delete_subscriptions
DELETE FROM subscription WHERE number = ?

-- name: insert_subscription
INSERT OR IGNORE INTO subscription (channel, number) VALUES (?, ?)

-- name: delete_subscription
DELETE FROM subscription WHERE channel = ? AND number = ?

-- name: delete_image
DELETE FROM image WHERE number = ?

-- name: replace_image
INSERT OR REPLACE INTO image (number, base, offsets, stream_seqs, rungs, streams, last_seen_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: set_snapshot_end
UPDATE snapshot SET log_end = ?

-- name: append_activity
INSERT INTO activity (offset, at_ms, number, event) VALUES (?, ?, ?, ?)

-- name: members
SELECT number, name, kind, permissions, origin, created_at_ms, since FROM member WHERE removed_at_ms IS NULL ORDER BY number

-- name: next_number
SELECT coalesce(max(number), 0) + 1 FROM member

-- name: tokens
SELECT digest, number, created_at_ms, expires_at_ms FROM token

-- name: subscriptions
SELECT channel, number FROM subscription

-- name: images
SELECT number, base, offsets, stream_seqs, rungs, streams, last_seen_ms FROM image

-- name: snapshot_end
SELECT log_end FROM snapshot

-- name: log_tail
SELECT offset, hash FROM log ORDER BY offset DESC LIMIT 1

-- name: activity_end
SELECT coalesce(max(offset) + 1, 0) FROM activity

-- name: replay
SELECT log.offset, log.event, message.sender, message.content, message.route
FROM log LEFT JOIN message ON message.offset = log.offset
WHERE log.offset >= ? ORDER BY log.offset

-- name: expiring
SELECT expires_at_ms, route FROM message WHERE expires_at_ms IS NOT NULL

-- name: known_wire_id
SELECT message.id, message.offset, message.content, length(message.route) / 24
FROM message WHERE sender = ? AND protocol = ? AND wire_id = ?

-- name: message_at
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause FROM message WHERE offset = ?

-- name: received
SELECT offset, sender, content, route FROM message ORDER BY offset DESC

-- name: message_by_id
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, route
FROM message WHERE id = ?

-- name: step_of
SELECT log.at_ms, log.event
FROM step JOIN log ON log.offset = step.offset
WHERE step.number = ? AND step.state = ? AND step.last >= ? AND step.first <= ? ORDER BY step.last LIMIT 1

-- name: name_of
SELECT name FROM member WHERE number = ?

-- name: history_of_target
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause
FROM message WHERE target = ? AND offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_between
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause
FROM message WHERE target = ? AND sender = ? AND offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_of_all
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause
FROM message WHERE offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_of_reader
-- The set of targets is passed as a JSON array; scanning back from the newest finds recent traffic first.
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause
FROM message WHERE offset >= ? AND offset < ? AND (sender = ? OR target IN (SELECT value FROM json_each(?)))
ORDER BY offset DESC LIMIT ?

-- name: read_main
SELECT offset, at_ms, event, hash FROM log WHERE offset >= ? ORDER BY offset LIMIT ?

-- name: read_activity
SELECT offset, at_ms, event FROM activity WHERE offset >= ? ORDER BY offset LIMIT ?

-- name: by_age
SELECT offset, sent_at_ms, route FROM message ORDER BY offset

-- name: delete_message
DELETE FROM message WHERE offset = ?

-- name: delete_steps
DELETE FROM step WHERE number = ? AND last = ? AND first = ?

-- name: inspect_log
SELECT offset, at_ms, event, hash FROM log ORDER BY offset

-- name: inspect_messages
SELECT offset, id, sender, target, protocol, verified, sent_at_ms, route, content FROM message ORDER BY offset

-- name: inspect_steps
SELECT offset, number, state, first, last FROM step ORDER BY offset
