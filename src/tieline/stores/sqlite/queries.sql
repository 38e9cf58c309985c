-- Every statement of the SQLite store, by name.

-- name: append_log
INSERT INTO log (offset, at_ms, event, hash) VALUES (?, ?, ?, ?)

-- name: insert_word
INSERT INTO word (number, text) VALUES (?, ?)

-- name: word
SELECT text FROM word WHERE number = ?

-- name: newest_words
SELECT number, text FROM (SELECT number, text FROM word ORDER BY number DESC LIMIT ?) ORDER BY number

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
-- Ranges of one member lie within each other where deliveries that fell together fell again one by one.
SELECT found.first, found.last, log.at_ms, log.event
FROM (SELECT first, last, offset FROM fall WHERE number = ? AND last >= ? ORDER BY last LIMIT ?) AS found
JOIN log ON log.offset = found.offset
WHERE found.first <= ? ORDER BY found.offset

-- name: has_falls
SELECT EXISTS (SELECT 1 FROM fall)

-- name: delete_falls
DELETE FROM fall WHERE number = ? AND last = ? AND first = ?

-- name: insert_member
INSERT INTO member (number, name, kind, permissions, origin, created_at_ms, since, title, description, instructions)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    kind = excluded.kind,
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
ON CONFLICT (number) DO UPDATE SET digest = excluded.digest

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
INSERT OR IGNORE INTO objective_party (number, serial, status, assignee) VALUES (?, ?, ?, ?)

-- name: insert_objective_event
INSERT INTO objective_event (offset, serial, at_ms, actor, event) VALUES (?, ?, ?, ?, ?)

-- name: objective_by_id
SELECT serial, parties, content FROM objective WHERE id = ?

-- name: open_objectives
SELECT serial, parties, content FROM objective
WHERE status IN ('active', 'blocked') ORDER BY serial

-- name: objective_at
SELECT serial, parties, content FROM objective WHERE serial = ?

-- name: objectives
SELECT serial FROM objective WHERE status = ? AND serial >= ? AND serial < ? ORDER BY serial DESC LIMIT ?

-- name: objectives_of_assignee
SELECT serial FROM objective
WHERE assignee = ? AND status = ? AND serial >= ? AND serial < ? ORDER BY serial DESC LIMIT ?

-- name: objectives_of_party
SELECT serial FROM objective_party
WHERE number = ? AND status = ? AND serial >= ? AND serial < ? ORDER BY serial DESC LIMIT ?

-- name: objectives_of_both
SELECT serial FROM objective_party
WHERE number = ? AND assignee = ? AND status = ? AND serial >= ? AND serial < ? ORDER BY serial DESC LIMIT ?

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
SELECT ts_ms, offset FROM activity
WHERE number = ? AND ts_ms BETWEEN ? AND ? ORDER BY ts_ms DESC, offset DESC LIMIT ?

-- name: activity_of_kind
SELECT ts_ms, offset FROM activity
WHERE number = ? AND ts_ms BETWEEN ? AND ? AND kind = ? ORDER BY ts_ms DESC, offset DESC LIMIT ?

-- name: activity_at
SELECT offset, at_ms, number, kind, ts_ms, event FROM activity WHERE offset = ?

-- name: oldest_activity
-- All but the newest row, which says where the log goes on.
SELECT offset, at_ms FROM activity WHERE offset < (SELECT max(offset) FROM activity) ORDER BY offset LIMIT ?

-- name: erase_activity
UPDATE activity SET event = CAST(json_object('kind', kind, 'ts', ts_ms, 'redacted', ?1) AS BLOB)
WHERE instr(event, ?2) OR instr(event, ?3)

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

-- name: sent_at
SELECT sender, content, route FROM message WHERE offset = ?

-- name: message_by_id
SELECT offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature, route
FROM message WHERE id = ?

-- name: step_of
-- As with falls: what was offered together on a wire without acknowledgement may be offered again one by one.
SELECT log.at_ms, log.event
FROM (SELECT first, last, offset FROM step WHERE number = ? AND state = ? AND last >= ? ORDER BY last LIMIT ?) AS found
JOIN log ON log.offset = found.offset
WHERE found.first <= ? ORDER BY found.last LIMIT 1

-- name: name_of
SELECT name FROM member WHERE number = ?

-- name: target_back
SELECT offset FROM message WHERE target = ? AND offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: target_forth
SELECT offset FROM message WHERE target = ? AND offset >= ? AND offset < ? ORDER BY offset LIMIT ?

-- name: trail_back
SELECT first, offsets FROM trail WHERE sender = ? AND target = ? AND first < ? ORDER BY first DESC LIMIT 1

-- name: trail_forth
SELECT first, offsets FROM trail WHERE sender = ? AND target = ? AND first > ? ORDER BY first LIMIT 1

-- name: all_back
SELECT offset FROM message WHERE offset >= ? AND offset < ? ORDER BY offset DESC LIMIT ?

-- name: all_forth
SELECT offset FROM message WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT ?

-- name: targets_of_sender
-- From each target to the next one, instead of over all that was said.
WITH RECURSIVE spoken (target) AS (
    SELECT min(target) FROM trail WHERE sender = ?1
    UNION ALL
    SELECT (SELECT min(target) FROM trail WHERE sender = ?1 AND trail.target > spoken.target)
    FROM spoken WHERE spoken.target IS NOT NULL
)
SELECT target FROM spoken WHERE target IS NOT NULL

-- name: targets_with_messages
-- The targets are passed as a JSON array.
SELECT value FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM message WHERE target = value AND offset >= ?2 AND offset < ?3)

-- name: threads_of_party
SELECT 'obj:' || id FROM objective_party JOIN objective USING (serial) WHERE number = ? ORDER BY serial DESC LIMIT ?

-- name: threads
SELECT 'obj:' || id FROM objective ORDER BY serial DESC LIMIT ?

-- name: untrailed
SELECT sender, target, offset FROM message WHERE offset >= (SELECT log_end FROM trail_end) ORDER BY sender, target, offset

-- name: insert_trail
INSERT INTO trail (sender, target, first, offsets) VALUES (?, ?, ?, ?)

-- name: set_trail_end
UPDATE trail_end SET log_end = ?

-- name: delete_trail
DELETE FROM trail WHERE sender = ? AND target = ? AND first = ?

-- name: read_main
SELECT offset, at_ms, event, hash FROM log WHERE offset >= ? ORDER BY offset LIMIT ?

-- name: read_activity
SELECT offset, at_ms, event FROM activity WHERE offset >= ? ORDER BY offset LIMIT ?

-- name: by_age
SELECT offset, sent_at_ms, route, sender, target FROM message WHERE offset >= ? ORDER BY offset LIMIT ?

-- name: delete_message
DELETE FROM message WHERE offset = ?

-- name: redact_message
UPDATE message SET content = ?, signature = '' WHERE offset = ?

-- name: note_redaction
-- The offset of the last redaction, for the search index.
INSERT OR REPLACE INTO setting (key, value) VALUES ('redaction', ?)

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
-- The second value is false if the index was made from another log, or before the last redaction.
SELECT
    progress.log_end,
    progress.log_end = 0 OR (
        (progress.hash IS NULL OR progress.hash = log.hash)
        AND progress.redaction IS (SELECT value FROM hub.setting WHERE key = 'redaction')
    )
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
UPDATE progress SET
    log_end = ?1,
    hash = (SELECT hash FROM hub.log WHERE offset = ?1 - 1),
    redaction = CASE log_end WHEN 0 THEN (SELECT value FROM hub.setting WHERE key = 'redaction') ELSE redaction END

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

-- name: epoch
SELECT epoch FROM log_state

-- name: has_log_state
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'log_state')

-- name: renew_epoch
-- After a restore: what was logged after the backup is lost, so the offsets mean other rows from now on.
UPDATE log_state SET epoch = lower(hex(randomblob(16)))

-- name: read_schema
-- A read that begins a transaction.
SELECT count(*) FROM sqlite_schema

-- name: digests
-- Of the catalogue of files.
SELECT DISTINCT digest FROM entry WHERE digest IS NOT NULL

-- name: digest_at
-- Of the catalogue of files.
SELECT digest FROM entry WHERE path = ? AND digest IS NOT NULL

-- name: paths_with
-- Of the catalogue of files.
SELECT path FROM entry WHERE digest = ? ORDER BY path

-- name: main_kept_from
SELECT kept_from FROM log_state

-- name: set_kept_from
UPDATE log_state SET kept_from = max(kept_from, ?)

-- name: activity_kept_from
SELECT coalesce(min(offset), 0) FROM activity

-- name: main_time
SELECT at_ms FROM log WHERE offset >= ? ORDER BY offset LIMIT 1

-- name: activity_time
SELECT at_ms FROM activity WHERE offset >= ? ORDER BY offset LIMIT 1

-- name: readers
SELECT name, position, set_by, at_ms, missed, missed_first, missed_last, warned FROM reader ORDER BY name

-- name: replace_reader
INSERT OR REPLACE INTO reader (name, position, set_by, at_ms, missed, missed_first, missed_last, warned)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete_reader
DELETE FROM reader WHERE name = ?

-- name: free_space
-- Moves at most so many pages, a quarter of a MiB, to the front of the file: a few milliseconds with their commit.
PRAGMA incremental_vacuum(64)

-- name: main_end
SELECT coalesce(max(offset) + 1, 0) FROM log

-- name: newest_events
SELECT event FROM log WHERE offset >= ? ORDER BY offset

-- name: word_bytes
SELECT coalesce(sum(length(text)), 0) FROM word WHERE number IN (SELECT value FROM json_each(?))
