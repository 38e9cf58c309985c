-- Every statement of the PostgreSQL store, by name. Parameters are $1, $2…

-- name: make_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: drop_schema
DROP SCHEMA IF EXISTS {schema} CASCADE

-- name: use_schema
SELECT set_config('search_path', quote_ident($1), false)

-- name: server
SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')

-- name: has_versions
SELECT to_regclass('schema_version') IS NOT NULL

-- name: make_versions
CREATE TABLE schema_version (part text PRIMARY KEY, version integer NOT NULL)

-- name: version
SELECT coalesce((SELECT version FROM schema_version WHERE part = $1), 0)

-- name: set_version
INSERT INTO schema_version (part, version) VALUES ($1, $2) ON CONFLICT (part) DO UPDATE SET version = excluded.version

-- name: lock_migration
SELECT pg_advisory_xact_lock($1)

-- name: old_writer
-- Hubs of older programs hold an advisory lock instead of a lease.
SELECT pg_try_advisory_xact_lock($1), hub FROM writer

-- name: lock_lease
SELECT until <= clock_timestamp(), hub FROM lease FOR UPDATE

-- name: take_lease
SELECT my_term, my_claim FROM take_lease($1, $2, $3, $4)

-- name: renew_lease
UPDATE lease SET until = clock_timestamp() + $1 * interval '1 ms' WHERE term = $2 AND claim = $3 RETURNING preferred

-- name: release_lease
UPDATE lease SET until = clock_timestamp() WHERE term = $1 AND claim = $2 RETURNING term

-- name: lease
SELECT term, hub, address, coalesce(extract(epoch FROM greatest(until, clock_timestamp() - interval '1 d') - clock_timestamp()), 0)::float8,
    preferred
FROM lease

-- name: prefer
UPDATE lease SET preferred = $1 RETURNING term

-- name: see_hub
WITH old AS (DELETE FROM hub WHERE seen_at < clock_timestamp() - interval '1 d' AND address <> $1)
INSERT INTO hub (address, hub, seen_at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (address) DO UPDATE SET hub = excluded.hub, seen_at = excluded.seen_at
RETURNING address

-- name: hubs
SELECT address, hub, extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM hub ORDER BY address

-- name: terms
SELECT term, hub, (extract(epoch FROM began_at) * 1000)::bigint FROM term ORDER BY term DESC LIMIT $1

-- name: cluster
SELECT link_key, home_key FROM cluster

-- name: join_cluster
UPDATE cluster SET home_key = coalesce(home_key, $1) RETURNING link_key, home_key

-- name: falling_term
-- The first row, from an offset on, whose term is older than that of the row before it: a hub wrote without the lease.
SELECT log_offset, term FROM (
    SELECT log_offset, term, lag(term) OVER (ORDER BY log_offset) AS before FROM log WHERE log_offset >= $1
) AS pairs
WHERE term < before ORDER BY log_offset LIMIT 1

-- name: open_writer
SELECT my_connection, my_commits FROM open_writer($1, $2, $3)

-- name: fence
SELECT fence($1, $2)

-- name: begin_commit
SELECT begin_commit($1, $2, $3, $4)

-- name: nothing
SELECT

-- Statements with lists insert many rows: one list for each column.

-- name: append_log
INSERT INTO log (log_offset, at_ms, event, hash, term)
SELECT *, $5::bigint FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])

-- name: insert_message
INSERT INTO message
    (log_offset, id, sender, protocol, wire_id, target, sent_at_ms, expires_at_ms, verified, hops, cause, content, route,
    signature, shared_id)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::bigint[], $8::bigint[], $9::boolean[],
    $10::bigint[], $11::text[], $12::bytea[], $13::bytea[], $14::text[], $15::boolean[]
)

-- name: insert_step
INSERT INTO step (number, state, last, first, log_offset)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
ON CONFLICT DO NOTHING

-- name: insert_fall
INSERT INTO fall (number, last, first, log_offset)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
ON CONFLICT DO NOTHING

-- name: replace_grant
INSERT INTO resumption (id, number, digest, previous, expires_at_ms)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[])
ON CONFLICT (id) DO UPDATE SET
    number = excluded.number,
    digest = excluded.digest,
    previous = excluded.previous,
    expires_at_ms = excluded.expires_at_ms

-- name: insert_member
INSERT INTO member (number, name, kind, permissions, origin, created_at_ms, since, title, description, instructions)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (number) DO UPDATE SET
    kind = excluded.kind,
    permissions = excluded.permissions,
    origin = excluded.origin,
    title = excluded.title,
    description = excluded.description,
    instructions = excluded.instructions

-- name: remove_member
UPDATE member SET removed_at_ms = $1 WHERE number = $2

-- name: forget_wire_ids
UPDATE message SET wire_id = NULL
WHERE wire_id IS NOT NULL AND NOT shared_id AND sender = (SELECT name FROM member WHERE number = $1)

-- name: delete_tokens
DELETE FROM token WHERE number = $1

-- name: insert_token
INSERT INTO token (digest, number, created_at_ms, expires_at_ms, id, label, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: delete_token
DELETE FROM token WHERE digest = $1

-- name: replace_setting
INSERT INTO setting (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: delete_grants
DELETE FROM resumption WHERE number = $1

-- name: insert_owner
INSERT INTO owner (number, digest) VALUES ($1, $2) ON CONFLICT (number) DO UPDATE SET digest = excluded.digest

-- name: delete_owner
DELETE FROM owner WHERE number = $1

-- name: delete_subscriptions
DELETE FROM channel_member WHERE number = $1

-- name: delete_image
DELETE FROM image WHERE number = $1

-- name: replace_image
INSERT INTO image (number, base, offsets, stream_seqs, rungs, streams, last_seen_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (number) DO UPDATE SET
    base = excluded.base,
    offsets = excluded.offsets,
    stream_seqs = excluded.stream_seqs,
    rungs = excluded.rungs,
    streams = excluded.streams,
    last_seen_ms = excluded.last_seen_ms

-- name: set_snapshot_end
UPDATE snapshot SET log_end = $1

-- name: replace_channel
INSERT INTO channel (id, name, created_by, created_at_ms, archived_at_ms, spans) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, archived_at_ms = excluded.archived_at_ms, spans = excluded.spans

-- name: delete_channel
DELETE FROM channel WHERE id = $1

-- name: delete_channel_members
DELETE FROM channel_member WHERE channel = $1

-- name: replace_channel_member
INSERT INTO channel_member (channel, number, role, joined_at_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (channel, number) DO UPDATE SET role = excluded.role, joined_at_ms = excluded.joined_at_ms

-- name: delete_channel_member
DELETE FROM channel_member WHERE channel = $1 AND number = $2

-- name: replace_objective
INSERT INTO objective (serial, id, log_offset, status, assignee, parties, content) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (serial) DO UPDATE SET
    log_offset = excluded.log_offset,
    status = excluded.status,
    assignee = excluded.assignee,
    parties = excluded.parties,
    content = excluded.content

-- name: delete_parties
DELETE FROM objective_party WHERE serial = $1

-- name: insert_parties
INSERT INTO objective_party (number, serial, status, assignee)
SELECT DISTINCT party.number, $2::bigint, $3, $4::bigint FROM unnest($1::bigint[]) AS party (number)

-- name: insert_objective_event
INSERT INTO objective_event (log_offset, serial, at_ms, actor, event) VALUES ($1, $2, $3, $4, $5)

-- name: delete_messages
DELETE FROM message WHERE log_offset = ANY($1::bigint[])

-- name: delete_steps
-- A range that also covers other deliveries stays, because those may be kept.
DELETE FROM step USING unnest($1::bigint[], $2::bigint[]) AS gone (number, key)
WHERE step.number = gone.number AND step.last = gone.key AND step.first = gone.key

-- name: delete_falls
DELETE FROM fall USING unnest($1::bigint[], $2::bigint[]) AS gone (number, key)
WHERE fall.number = gone.number AND fall.last = gone.key AND fall.first = gone.key

-- name: redact_message
UPDATE message SET content = $1, signature = '' WHERE log_offset = $2

-- name: forget_said
DELETE FROM said WHERE log_offset = $1

-- name: search_again
INSERT INTO search_again (log_offset) VALUES ($1) ON CONFLICT DO NOTHING

-- name: main_set_kept_from
UPDATE log_state SET kept_from = greatest(kept_from, $1)

-- name: main_replace_reader
INSERT INTO reader (name, position, set_by, at_ms, missed, missed_first, missed_last, warned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET
    position = excluded.position,
    set_by = excluded.set_by,
    at_ms = excluded.at_ms,
    missed = excluded.missed,
    missed_first = excluded.missed_first,
    missed_last = excluded.missed_last,
    warned = excluded.warned

-- name: main_delete_reader
DELETE FROM reader WHERE name = $1

-- name: activity_replace_reader
INSERT INTO activity_reader (name, position, set_by, at_ms, missed, missed_first, missed_last, warned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET
    position = excluded.position,
    set_by = excluded.set_by,
    at_ms = excluded.at_ms,
    missed = excluded.missed,
    missed_first = excluded.missed_first,
    missed_last = excluded.missed_last,
    warned = excluded.warned

-- name: activity_delete_reader
DELETE FROM activity_reader WHERE name = $1

-- What a start reads.

-- name: log_tail
SELECT log_offset, hash FROM log ORDER BY log_offset DESC LIMIT 1

-- name: members
SELECT number, name, kind, permissions, origin, created_at_ms, since, title, description, instructions
FROM member WHERE removed_at_ms IS NULL ORDER BY number

-- name: next_number
SELECT coalesce(max(number), 0) + 1 FROM member

-- name: tokens
SELECT digest, number, created_at_ms, expires_at_ms, id, label, created_by FROM token

-- name: settings
SELECT key, value FROM setting

-- name: grants
SELECT id, number, digest, previous, expires_at_ms FROM resumption

-- name: owners
SELECT number, digest FROM owner

-- name: channels
SELECT id, name, created_by, created_at_ms, archived_at_ms, spans FROM channel ORDER BY archived_at_ms NULLS FIRST, id

-- name: channel_members
SELECT channel, number, role, joined_at_ms FROM channel_member

-- name: open_objectives
SELECT serial, parties, content FROM objective WHERE status IN ('active', 'blocked') ORDER BY serial

-- name: next_serial
SELECT coalesce(max(serial), 0) + 1 FROM objective

-- name: images
SELECT number, base, offsets, stream_seqs, rungs, streams, last_seen_ms FROM image

-- name: snapshot_end
SELECT log_end FROM snapshot

-- name: replay
SELECT log.log_offset, log.event, message.sender, message.content, message.route
FROM log LEFT JOIN message USING (log_offset)
WHERE log_offset >= $1 ORDER BY log_offset LIMIT $2

-- name: expiring
SELECT expires_at_ms, route FROM message WHERE expires_at_ms IS NOT NULL ORDER BY log_offset

-- Reads of messages.

-- name: known_wire_ids
SELECT wire_id, id, log_offset, content, length(route) / 24
FROM message WHERE sender = $1 AND protocol = $2 AND wire_id = ANY($3::bytea[])

-- name: known_shared_ids
SELECT wire_id, id, log_offset, content, length(route) / 24
FROM message WHERE protocol = $1 AND wire_id = ANY($2::bytea[]) AND shared_id

-- name: messages_at
-- In the order of the offsets. Past so many bytes of content, the content is left out, but never that of the first.
SELECT
    place, log_offset, id, sender, protocol, sent_at_ms,
    CASE WHEN total <= $2 OR place_found = 1 THEN content END,
    wire_id, verified, hops, cause, signature
FROM (
    SELECT
        asked.place, message.*,
        sum(length(content)) OVER (ORDER BY asked.place) AS total,
        row_number() OVER (ORDER BY asked.place) AS place_found
    FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (log_offset, place) JOIN message USING (log_offset)
) AS found
ORDER BY place

-- name: message_by_id
SELECT log_offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature, route
FROM message WHERE id = $1

-- name: steps_of
-- For each state, the first range that ends at or after the key and begins at or before it.
SELECT found.state, log.at_ms, log.event
FROM unnest($3::bigint[], $4::bigint[]) AS asked (state, nested)
CROSS JOIN LATERAL (
    SELECT state, log_offset FROM (
        SELECT step.state, first, last, log_offset FROM step
        WHERE number = $1 AND step.state = asked.state AND last >= $2 ORDER BY last LIMIT asked.nested
    ) AS ends
    WHERE first <= $2 ORDER BY last LIMIT 1
) AS found
JOIN log USING (log_offset) ORDER BY found.state

-- name: falls_of
-- Ranges of one member lie within each other where deliveries that fell together fell again one by one.
SELECT found.first, found.last, log.at_ms, log.event
FROM (SELECT first, last, log_offset FROM fall WHERE number = $1 AND last >= $2 ORDER BY last LIMIT $3) AS found
JOIN log USING (log_offset)
WHERE found.first <= $4 ORDER BY log_offset

-- name: names
SELECT number, name FROM member WHERE number = ANY($1::bigint[])

-- name: read_main
SELECT log_offset, at_ms, event, hash FROM log WHERE log_offset >= $1 ORDER BY log_offset LIMIT $2

-- name: by_age
SELECT log_offset, sent_at_ms, route FROM message WHERE log_offset >= $1 ORDER BY log_offset LIMIT $2

-- name: targets_of_sender
-- From each target to the next one, instead of over all that was said.
WITH RECURSIVE spoken (target) AS (
    (SELECT target FROM message WHERE sender = $1 ORDER BY target LIMIT 1)
    UNION ALL
    SELECT (
        SELECT message.target FROM message
        WHERE sender = $1 AND message.target > spoken.target ORDER BY message.target LIMIT 1
    )
    FROM spoken WHERE spoken.target IS NOT NULL
)
SELECT target FROM spoken WHERE target IS NOT NULL

-- name: threads_of_party
SELECT 'obj:' || id FROM objective_party JOIN objective USING (serial) WHERE number = $1 ORDER BY serial DESC LIMIT $2

-- name: threads
SELECT 'obj:' || id FROM objective ORDER BY serial DESC LIMIT $1

-- name: all_back
SELECT log_offset FROM message WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset DESC LIMIT $3

-- name: all_forth
SELECT log_offset FROM message WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset LIMIT $3

-- name: walk_back
-- The newest messages of several parts of the log. A part has a target, maybe a sender, and its first and last offset.
SELECT DISTINCT found.log_offset
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS part (target, sender, first, last)
CROSS JOIN LATERAL (
    (
        SELECT log_offset FROM message
        WHERE part.sender IS NULL AND message.target = part.target AND log_offset BETWEEN part.first AND part.last
        ORDER BY message.target DESC, log_offset DESC LIMIT $5
    )
    UNION ALL
    (
        SELECT log_offset FROM message
        WHERE message.sender = part.sender AND message.target = part.target
            AND log_offset BETWEEN part.first AND part.last
        ORDER BY message.sender DESC, message.target DESC, log_offset DESC LIMIT $5
    )
) AS found
ORDER BY found.log_offset DESC LIMIT $5

-- name: walk_forth
SELECT DISTINCT found.log_offset
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS part (target, sender, first, last)
CROSS JOIN LATERAL (
    (
        SELECT log_offset FROM message
        WHERE part.sender IS NULL AND message.target = part.target AND log_offset BETWEEN part.first AND part.last
        ORDER BY message.target, log_offset LIMIT $5
    )
    UNION ALL
    (
        SELECT log_offset FROM message
        WHERE message.sender = part.sender AND message.target = part.target
            AND log_offset BETWEEN part.first AND part.last
        ORDER BY message.sender, message.target, log_offset LIMIT $5
    )
) AS found
ORDER BY found.log_offset LIMIT $5

-- name: sent_at
SELECT log_offset, sender, content, route FROM message WHERE log_offset = ANY($1::bigint[]) ORDER BY log_offset DESC

-- Objectives.

-- name: objective_by_id
SELECT serial, parties, content FROM objective WHERE id = $1

-- name: objectives
SELECT serial, parties, content FROM objective JOIN (
    SELECT found.serial FROM unnest($1::text[]) AS asked (status) CROSS JOIN LATERAL (
        SELECT serial FROM objective WHERE objective.status = asked.status AND serial < $2 ORDER BY serial DESC LIMIT $3
    ) AS found
) AS found USING (serial) ORDER BY serial DESC LIMIT $3

-- name: objectives_of_assignee
SELECT serial, parties, content FROM objective JOIN (
    SELECT found.serial FROM unnest($1::text[]) AS asked (status) CROSS JOIN LATERAL (
        SELECT serial FROM objective
        WHERE assignee = $4 AND objective.status = asked.status AND serial < $2 ORDER BY serial DESC LIMIT $3
    ) AS found
) AS found USING (serial) ORDER BY serial DESC LIMIT $3

-- name: objectives_of_party
SELECT serial, parties, content FROM objective JOIN (
    SELECT found.serial FROM unnest($1::text[]) AS asked (status) CROSS JOIN LATERAL (
        SELECT serial FROM objective_party
        WHERE number = $4 AND objective_party.status = asked.status AND serial < $2 ORDER BY serial DESC LIMIT $3
    ) AS found
) AS found USING (serial) ORDER BY serial DESC LIMIT $3

-- name: objectives_of_both
SELECT serial, parties, content FROM objective JOIN (
    SELECT found.serial FROM unnest($1::text[]) AS asked (status) CROSS JOIN LATERAL (
        SELECT serial FROM objective_party
        WHERE number = $4 AND assignee = $5 AND objective_party.status = asked.status AND serial < $2
        ORDER BY serial DESC LIMIT $3
    ) AS found
) AS found USING (serial) ORDER BY serial DESC LIMIT $3

-- name: objective_events
SELECT log_offset, at_ms, actor, event FROM objective_event
WHERE serial = $1 AND log_offset > $2 ORDER BY log_offset LIMIT $3

-- Readers of the logs.

-- name: main_epoch
SELECT epoch FROM log_state

-- name: activity_epoch
SELECT epoch FROM activity_state

-- name: main_kept_from
SELECT kept_from FROM log_state

-- name: activity_kept_from
SELECT coalesce(min(log_offset), 0) FROM activity

-- name: main_time
SELECT at_ms FROM log WHERE log_offset >= $1 ORDER BY log_offset LIMIT 1

-- name: activity_time
SELECT at_ms FROM activity WHERE log_offset >= $1 ORDER BY log_offset LIMIT 1

-- name: main_readers
SELECT name, position, set_by, at_ms, missed, missed_first, missed_last, warned FROM reader ORDER BY name

-- name: activity_readers
SELECT name, position, set_by, at_ms, missed, missed_first, missed_last, warned FROM activity_reader ORDER BY name

-- name: bytes_used
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'

-- Activity.

-- name: append_activity
INSERT INTO activity (log_offset, at_ms, number, event, kind, ts_ms)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[])

-- name: activity_end
SELECT coalesce(max(log_offset) + 1, 0) FROM activity

-- name: activity_of_member
SELECT log_offset, at_ms, number, kind, ts_ms, event FROM (
    SELECT
        activity.*, sum(length(event)) OVER (ORDER BY ts_ms DESC, log_offset DESC) AS total,
        row_number() OVER (ORDER BY ts_ms DESC, log_offset DESC) AS place
    FROM (
        SELECT * FROM activity WHERE number = $1 AND ts_ms BETWEEN $2 AND $3
        ORDER BY ts_ms DESC, log_offset DESC LIMIT $4
    ) AS activity
) AS found
WHERE total <= $5 OR place = 1 ORDER BY ts_ms DESC, log_offset DESC

-- name: activity_of_kinds
SELECT log_offset, at_ms, number, kind, ts_ms, event FROM (
    SELECT
        activity.*, sum(length(event)) OVER (ORDER BY ts_ms DESC, log_offset DESC) AS total,
        row_number() OVER (ORDER BY ts_ms DESC, log_offset DESC) AS place
    FROM (
        SELECT found.* FROM unnest($6::bytea[]) AS asked (kind) CROSS JOIN LATERAL (
            SELECT * FROM activity
            WHERE number = $1 AND activity.kind = asked.kind AND ts_ms BETWEEN $2 AND $3
            ORDER BY ts_ms DESC, log_offset DESC LIMIT $4
        ) AS found
        ORDER BY ts_ms DESC, log_offset DESC LIMIT $4
    ) AS activity
) AS found
WHERE total <= $5 OR place = 1 ORDER BY ts_ms DESC, log_offset DESC

-- name: read_activity
SELECT log_offset, at_ms, event FROM (
    SELECT
        activity.*, sum(length(event)) OVER (ORDER BY log_offset) AS total,
        row_number() OVER (ORDER BY log_offset) AS place
    FROM (SELECT * FROM activity WHERE log_offset >= $1 ORDER BY log_offset LIMIT $2) AS activity
) AS found
WHERE total <= $3 OR place = 1 ORDER BY log_offset

-- name: oldest_activity
-- All but the newest row, which says where the log goes on.
SELECT log_offset, at_ms FROM activity
WHERE log_offset < (SELECT max(log_offset) FROM activity) ORDER BY log_offset LIMIT $1

-- name: activity_with
SELECT log_offset, kind, ts_ms FROM activity
WHERE position($1::bytea IN event) > 0 OR position($2::bytea IN event) > 0

-- name: replace_events
UPDATE activity SET event = made.event
FROM unnest($1::bigint[], $2::bytea[]) AS made (log_offset, event) WHERE activity.log_offset = made.log_offset

-- name: touch_activity
UPDATE activity_state SET epoch = epoch

-- name: delete_activity
DELETE FROM activity WHERE log_offset <= $1

-- Search.

-- name: search_state
SELECT
    (SELECT log_end FROM search_progress),
    (SELECT coalesce(max(log_offset) + 1, 0) FROM log),
    EXISTS (SELECT 1 FROM search_again)

-- name: messages_to_index
SELECT log_offset, content FROM message WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset

-- name: messages_to_index_again
SELECT search_again.log_offset, message.content
FROM search_again LEFT JOIN message USING (log_offset) ORDER BY search_again.log_offset LIMIT $1

-- name: index_message
-- A message that was deleted meanwhile is left out.
INSERT INTO said (log_offset, words)
SELECT log_offset, array_to_tsvector($2::text[]) FROM message WHERE log_offset = $1
ON CONFLICT (log_offset) DO UPDATE SET words = excluded.words

-- name: indexed_again
DELETE FROM search_again WHERE log_offset = ANY($1::bigint[])

-- name: set_search_progress
UPDATE search_progress SET log_end = $1

-- name: search
SELECT message.log_offset, message.sender, message.target
FROM said JOIN message USING (log_offset)
WHERE said.words @@ $1::tsquery AND log_offset >= $2 AND log_offset < $3
    AND message.sent_at_ms BETWEEN $4 AND $5 AND ($6::text IS NULL OR message.sender = $6)
ORDER BY log_offset DESC LIMIT $7

-- name: threads_of_member
SELECT 'obj:' || id FROM objective_party JOIN objective USING (serial) WHERE number = $1

-- name: message_at
SELECT log_offset, id, sender, protocol, sent_at_ms, content, wire_id, verified, hops, cause, signature
FROM message WHERE log_offset = ANY($1::bigint[]) ORDER BY log_offset DESC

-- Pages of the logs.

-- name: main_end
SELECT coalesce(max(log_offset) + 1, 0) FROM log

-- name: page_names
SELECT number, name FROM member

-- name: page_rows
SELECT log_offset, at_ms, event, hash FROM log WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset

-- name: page_messages
SELECT
    log_offset, id, sender, protocol, wire_id, target, sent_at_ms, expires_at_ms, verified::integer, hops, cause,
    signature, content, route
FROM message WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset

-- name: page_happenings
SELECT objective_event.log_offset, objective.id, actor, event
FROM objective_event JOIN objective USING (serial)
WHERE objective_event.log_offset >= $1 AND objective_event.log_offset < $2 ORDER BY objective_event.log_offset

-- name: page_activity
SELECT log_offset, at_ms, number, kind, ts_ms, event FROM activity
WHERE log_offset >= $1 AND log_offset < $2 ORDER BY log_offset

-- The audit reads everything in the order of the log.

-- name: inspect_log
SELECT log_offset, at_ms, event, hash FROM log ORDER BY log_offset

-- name: inspect_messages
SELECT log_offset, id, sender, target, protocol, sent_at_ms, route, content, signature, verified, wire_id
FROM message ORDER BY log_offset

-- name: inspect_members
SELECT number, name, created_at_ms FROM member ORDER BY number

-- name: inspect_steps
SELECT log_offset, number, state, first, last FROM step ORDER BY log_offset

-- name: inspect_objectives
SELECT log_offset, id, status, parties, content FROM objective ORDER BY log_offset

-- name: inspect_objective_events
SELECT objective_event.log_offset, objective.id, objective_event.at_ms, actor, event
FROM objective_event JOIN objective USING (serial) ORDER BY objective_event.log_offset
