-- Every statement of the SQLite store, by name.

-- name: append_log
INSERT INTO log (offset, at_ms, event, hash) VALUES (?, ?, ?, ?)

-- name: insert_message
INSERT INTO message
    (offset, id, sender, protocol, wire_id, target, sent_at_ms, expires_at_ms, verified, hops, cause, content, route,
    signature, shared_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_step
INSERT OR IGNORE INTO step (number, state, first, last, offset) VALUES (?, ?, ?, ?, ?)

-- name: insert_fall
INSERT OR IGNORE INTO fall (number, last, first, offset) VALUES (?, ?, ?, ?)

-- name: falls_of
SELECT fall.first, fall.last, log.at_ms, log.event
FROM fall JOIN log ON log.offset = fall.offset
WHERE fall.number = ? AND fall.last >= ? AND fall.first <= ? ORDER BY fall.offset

-- name: has_falls
SELECT EXISTS (SELECT 1 FROM fall)

-- name: delete_falls
DELETE FROM fall WHERE number = ? AND last = ? AND first = ?

-- name: insert_member
INSERT INTO member (number, name, kind, permissions, origin, created_at_ms, since, title, description, instructions)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    permissions = excluded.permissions,
    origin = excluded.origin,
    title = excluded.title,
    description = excluded.description,
    instructions = excluded.instructions

-- name: remove_member
UPDATE member SET removed_at_ms = ? WHERE number = ?

-- name: forget_wire_ids
UPDATE message SET wire_id = NULL
WHERE wire_id IS NOT NULL AND shared_id = 0 AND sender = (SELECT name FROM member WHERE number = ?)

-- name: delete_tokens
DELETE FROM token WHERE number = ?

-- name: insert_token
INSERT INTO token (digest, number, created_at_ms, expires_at_ms, id, label, created_by) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: delete_token
DELETE FROM token WHERE digest = ?

-- name: replace_setting
INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)

-- name: settings
SELECT key, value FROM setting

-- name: replace_grant
INSERT OR REPLACE INTO resumption (id, number, digest, previous, expires_at_ms) VALUES (?, ?, ?, ?, ?)

-- name: delete_grants
DELETE FROM resumption WHERE number = ?

-- name: grants
SELECT id, number, digest, previous, expires_at_ms FROM resumption

-- name: insert_owner
INSERT INTO owner (number, digest) VALUES (?, ?)

-- name: delete_owner
DELETE FROM owner WHERE number = ?

-- name: owners
SELECT number, digest FROM owner

-- name: delete_subscriptions
DELETE FROM channel_member WHERE number = ?

-- name: replace_channel
INSERT INTO channel (id, name, created_by, created_at_ms, archived_at_ms, spans) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, archived_at_ms = excluded.archived_at_ms, spans = excluded.spans

-- name: delete_channel
DELETE FROM channel WHERE id = ?

-- name: delete_channel_members
DELETE FROM channel_member WHERE channel = ?

-- name: replace_channel_member
INSERT OR REPLACE INTO channel_member (channel, number, role, joined_at_ms) VALUES (?, ?, ?, ?)

-- name: delete_channel_member
DELETE FROM channel_member WHERE channel = ? AND number = ?

-- name: channels
SELECT id, name, created_by, created_at_ms, archived_at_ms, spans FROM channel ORDER BY archived_at_ms, id

-- name: channel_members
SELECT channel, number, role, joined_at_ms FROM channel_member

-- name: replace_objective
INSERT INTO objective (serial, id, offset, status, assignee, parties, content) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (serial) DO UPDATE SET
    offset = excluded.offset,
    status = excluded.status,
    assignee = excluded.assignee,
    parties = excluded.parties,
    content = excluded.content

-- name: delete_parties
DELETE FROM objective_party WHERE serial = ?

-- name: insert_party
INSERT OR IGNORE INTO objective_party (number, serial) VALUES (?, ?)

-- name: insert_objective_event
INSERT INTO objective_event (offset, serial, at_ms, actor, event) VALUES (?, ?, ?, ?, ?)

-- name: objective_by_id
SELECT serial, parties, content FROM objective WHERE id = ?

-- name: open_objectives
SELECT serial, parties, content FROM objective
WHERE status IN ('active', 'blocked') ORDER BY serial

-- name: objectives
-- The statuses are passed as a JSON array.
SELECT serial, parties, content FROM objective
WHERE serial < ? AND status IN (SELECT value FROM json_each(?)) AND (? IS NULL OR assignee = ?)
ORDER BY serial DESC LIMIT ?

-- name: objectives_of_party
SELECT serial, parties, content FROM objective_party JOIN objective USING (serial)
WHERE number = ? AND serial < ? AND status IN (SELECT value FROM json_each(?)) AND (? IS NULL OR assignee = ?)
ORDER BY serial DESC LIMIT ?

-- name: objective_events
SELECT offset, at_ms, actor, event FROM objective_event WHERE serial = ? AND offset > ? ORDER BY offset LIMIT ?

-- name: next_serial
SELECT coalesce(max(serial), 0) + 1 FROM objective

-- name: delete_image
DELETE FROM image WHERE number = ?

-- name: replace_image
INSERT OR REPLACE INTO image (number, base, offsets, stream_seqs, rungs, streams, last_seen_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: set_snapshot_end
UPDATE snapshot SET log_end = ?

-- name: append_activity
INSERT INTO activity (offset, at_ms, number, event, kind, ts_ms) VALUES (?, ?, ?, ?, ?, ?)

-- name: activity_of_member
-- The kinds are passed as a JSON array; the flag before it says that all are wanted.
SELECT offset, at_ms, number, kind, ts_ms, event FROM activity
WHERE number = ? AND ts_ms BETWEEN ? AND ? AND (? OR kind IN (SELECT value FROM json_each(?)))
ORDER BY ts_ms DESC, offset DESC LIMIT ?

-- name: oldest_activity
-- All but the newest row, which says where the log goes on.
SELECT offset, at_ms FROM activity WHERE offset < (SELECT max(offset) FROM activity) ORDER BY offset LIMIT ?

-- name: delete_activity
DELETE FROM activity WHERE offset <= ?

-- name: members
SELECT number, name, kind, permissions, origin, created_at_ms, since, title, description, instructions
FROM member WHERE removed_at_ms IS NULL ORDER BY number

-- name: next_number
SELECT coalesce(max(number), 0) + 1 FROM member

-- name: tokens
SELECT digest, number, created_at_ms, expires_at_ms, id, label, created_by FROM token


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

-- name: known_wire_ids
-- The ids are passed as a JSON array.
SELECT wire_id, message.id, message.offset, message.content, length(message.route) / 24
FROM message WHERE sender = ? AND protocol = ? AND wire_id IN (SELECT value FROM json_each(?))

-- name: known_shared_ids
SELECT wire_id, message.id, message.offset, message.content, length(message.route) / 24
FROM message WHERE protocol = ? AND wire_id IN (SELECT value FROM json_each(?)) AND shared_id = 1

-- name: known_shared_id
SELECT message.id, message.offset, message.content, length(message.route) / 24
FROM message WHERE protocol = ? AND wire_id = ? AND shared_id = 1

-- name: message_at
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE offset = ?

-- name: received
SELECT offset, sender, content, route FROM message ORDER BY offset DESC

-- name: message_by_id
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature, route
FROM message WHERE id = ?

-- name: step_of
SELECT log.at_ms, log.event
FROM step JOIN log ON log.offset = step.offset
WHERE step.number = ? AND step.state = ? AND step.last >= ? AND step.first <= ? ORDER BY step.last LIMIT 1

-- name: name_of
SELECT name FROM member WHERE number = ?

-- name: history_of_target
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE target = ? AND offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_between
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE target = ? AND sender = ? AND offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_of_all
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: history_of_reader
-- The set of targets is passed as a JSON array; scanning back from the newest finds recent traffic first. The target
-- comes last, because its name may have been another channel's at that offset, which the caller knows.
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature, target
FROM message
WHERE offset >= ? AND offset < ?
    AND (
        sender = ?
        OR target IN (SELECT value FROM json_each(?))
        OR target IN (SELECT 'obj:' || id FROM objective_party JOIN objective USING (serial) WHERE number = ?)
        OR (? AND target >= 'obj:' AND target < 'obj;')
    )
ORDER BY offset DESC

-- name: all_from
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT ?

-- name: seen_from
-- As before, from the oldest on.
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature, target
FROM message
WHERE offset >= ? AND offset < ?
    AND (
        sender = ?
        OR target IN (SELECT value FROM json_each(?))
        OR target IN (SELECT 'obj:' || id FROM objective_party JOIN objective USING (serial) WHERE number = ?)
        OR (? AND target >= 'obj:' AND target < 'obj;')
    )
ORDER BY offset

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
SELECT offset, id, sender, target, protocol, verified, sent_at_ms, route, content, signature, wire_id
FROM message ORDER BY offset

-- name: inspect_members
SELECT number, name, created_at_ms FROM member ORDER BY number

-- name: inspect_steps
SELECT offset, number, state, first, last FROM step ORDER BY offset

-- name: inspect_objectives
SELECT offset, id, status, parties, content FROM objective ORDER BY offset

-- name: inspect_objective_events
SELECT objective_event.offset, objective.id, objective_event.at_ms, actor, event
FROM objective_event JOIN objective USING (serial) ORDER BY objective_event.offset

-- name: attach_hub
-- To the search database. Nothing is ever written through this name.
ATTACH DATABASE ? AS hub

-- name: search_progress
SELECT progress.log_end, progress.hash IS NULL OR progress.hash = log.hash
FROM progress LEFT JOIN hub.log AS log ON log.offset = progress.log_end - 1

-- name: search_log_end
SELECT coalesce(max(offset) + 1, 0) FROM hub.log

-- name: index_messages
-- What is longer than the last parameter is found by its beginning. A text ends for substr at a NUL, behind which
-- nothing may hide; bytes do not.
INSERT INTO said (rowid, body, title)
SELECT
    offset,
    CASE instr(body, char(0)) WHEN 0 THEN substr(body, 1, ?3) ELSE CAST(substr(CAST(body AS BLOB), 1, ?3) AS TEXT) END,
    title
FROM (
    SELECT
        offset,
        json_extract(CAST(content AS TEXT), '$.body') AS body,
        json_extract(CAST(content AS TEXT), '$.title') AS title
    FROM hub.message WHERE offset >= ?1 AND offset < ?2
)

-- name: set_search_progress
UPDATE progress SET log_end = ?1, hash = (SELECT hash FROM hub.log WHERE offset = ?1 - 1)

-- name: search
SELECT message.offset, message.sender, message.target
FROM said JOIN hub.message AS message ON message.offset = said.rowid
WHERE said MATCH ?1 AND said.rowid >= ?2 AND said.rowid < ?3
    AND message.sent_at_ms BETWEEN ?4 AND ?5 AND (?6 IS NULL OR message.sender = ?6)
ORDER BY said.rowid DESC

-- name: threads_of_member
SELECT 'obj:' || id FROM hub.objective_party JOIN hub.objective USING (serial) WHERE number = ?

-- name: search_sweep
SELECT said.rowid, message.offset
FROM said LEFT JOIN hub.message AS message ON message.offset = said.rowid
WHERE said.rowid > ? ORDER BY said.rowid LIMIT ?

-- name: search_oldest
SELECT min(offset) FROM hub.message

-- name: search_forget
DELETE FROM said WHERE rowid = ?

-- name: search_forget_all
INSERT INTO said (said) VALUES ('delete-all')
