-- The statements that make the tables, in Spark SQL. $names stand for rows (a view, or another statement in parentheses)
-- and for lists of columns, which the modules beside this file fill in. `$$` is a dollar sign.

-- Any rows.

-- name: columns
SELECT $columns FROM $rows

-- name: some
SELECT * FROM $rows WHERE $where

-- name: one_partition
SELECT /*+ COALESCE(1) */ * FROM $rows

-- name: by_day
SELECT /*+ REPARTITION(day) */ * FROM (SELECT *, floor($time / $day_ms) AS day FROM $rows)

-- name: nothing
SELECT $columns FROM range(1) WHERE false

-- name: last_time
SELECT max(at_ms) AS now_ms FROM $bronze WHERE log = 'main'

-- A gold table.

-- name: facts
SELECT $columns FROM $rows WHERE $where $by

-- name: merged
SELECT $columns FROM (SELECT $keys, $measures FROM $rows GROUP BY $keys)

-- Messages.

-- name: messages
SELECT $columns
FROM (
    SELECT *,
        coalesce(id, get_json_object(event, '$$.id')) AS known_id,
        coalesce(sender, get_json_object(event, '$$.sender')) AS known_sender,
        coalesce(target, get_json_object(event, '$$.target')) AS known_target
    FROM $bronze WHERE log = 'main' AND kind = 'send'
)

-- name: answers
SELECT $day AS day_ms, new.sender AS sender, known.sender AS recipient, new.sent_ms - known.sent_ms AS response_ms,
    new.`offset` AS `offset`, known.`offset` AS asked, known.sent_ms AS asked_ms
FROM $new AS new JOIN $known AS known ON new.reply_to = known.id
WHERE new.sender <> known.sender

-- Objectives.

-- name: objective_events
SELECT `offset`, at_ms, said.id AS objective, said.kind AS kind, said.by AS actor, said.status AS status,
    said.assignee AS assignee, get_json_object(happening, '$$.title') AS title, happening
FROM (
    SELECT `offset`, at_ms, happening,
        from_json(event, 'id string, kind string, by string, status string, assignee string') AS said
    FROM $bronze WHERE log = 'main' AND kind = 'objective'
)

-- name: objective_history
SELECT /*+ BROADCAST(changed) */ known.*
FROM $known AS known LEFT SEMI JOIN $new AS changed ON known.objective = changed.objective

-- name: objective_steps
SELECT *, lead(at_ms) OVER (PARTITION BY objective ORDER BY `offset`) AS next_ms FROM {objective_history}

-- Other events.

-- name: records
SELECT `offset`, at_ms, kind, coalesce(said.member, said.speaker) AS member, said.by AS by, said.what AS what,
    said.code AS code, said.protocol AS protocol, coalesce(said.channel, said.name) AS channel, said.thread AS thread,
    coalesce(said.count, 1) AS count
FROM (
    SELECT `offset`, at_ms, kind,
        from_json(event, 'member string, speaker string, by string, what string, code string, protocol string,
            channel string, name string, thread string, count bigint') AS said
    FROM $bronze WHERE log = 'main' AND kind NOT IN $elsewhere
)

-- name: findings
SELECT $day AS day_ms, `offset`, 'chain' AS kind, '' AS member, at_ms,
    concat('row ', `offset`, ' does not follow from the row before it') AS what
FROM $bronze WHERE log = 'main' AND NOT chained
UNION ALL
SELECT $day, `offset`, 'signature', sender, at_ms, concat('the signature of ', id, ' is ', signature)
FROM $bronze WHERE log = 'main' AND signature IN $bad

-- Deliveries.

-- name: begun
SELECT $columns, $sent AS fresh
FROM (
    SELECT `offset`, sender, priority, at_ms, scope, thread, explode(arrays_zip(numbers, keys, recipients)) AS one
    FROM $bronze WHERE log = 'main' AND kind = 'send' AND keys IS NOT NULL
)

-- name: known
SELECT $columns, 0 AS fresh FROM $rows

-- name: open
$begun UNION ALL $before

-- name: reached
SELECT number, key, $rungs, coalesce(max(kind = 'claim'), false) AS claimed
FROM $moves
GROUP BY number, key

-- name: moves
SELECT `offset`, kind, at_ms, number, coalesce(protocol, '') AS wire, mute, explode(keys) AS key,
    CASE WHEN kind IN ('expire', 'die') THEN evidence END AS cause
FROM $bronze WHERE log = 'main' AND kind IN $kinds AND keys IS NOT NULL

-- Events that are damaged or move very many deliveries, and rows of an older lake, have the keys only in their JSON.

-- name: moves_as_json
SELECT `offset`, kind, at_ms, number, wire, mute, explode(sequence(get(range, 0), get(range, 1))) AS key, cause
FROM (
    SELECT `offset`, kind, at_ms, said.number AS number, coalesce(said.protocol, '') AS wire, said.mute AS mute, cause,
        explode(said.keys) AS range
    FROM (
        SELECT `offset`, kind, at_ms,
            CASE WHEN kind IN ('expire', 'die') THEN get_json_object(event, '$$.evidence') END AS cause,
            from_json(event, 'number bigint, keys array<array<bigint>>, protocol string, mute boolean') AS said
        FROM $bronze WHERE log = 'main' AND kind IN $kinds AND keys IS NULL
    )
)
WHERE get(range, 1) BETWEEN get(range, 0) AND get(range, 0) + $range_max AND get(range, 0) BETWEEN 0 AND $key_max

-- name: all_moves
$moves UNION ALL $others

-- name: folded
SELECT $hint $columns, CAST($fresh AS INT) AS fresh, $part AS part
FROM $before AS known FULL OUTER JOIN $steps AS rung USING (number, key)

-- name: lateness
SELECT /*+ BROADCAST(steps) */ count(*) AS rows, count_if($reached_ms - known.sent_ms > $watermark_ms) AS late
FROM $known AS known JOIN $steps AS steps USING (number, key)

-- name: steps
SELECT $keys, step.rung AS rung, step.at_ms AS at_ms, step.protocol AS protocol, step.cause AS cause,
    step.at_ms - sent_ms AS after_ms
FROM (
    SELECT $keys, fresh, explode(array($rungs)) AS step
    FROM $touched WHERE fresh & $any <> 0
)
WHERE fresh & step.bit <> 0

-- name: days
SELECT /*+ BROADCAST(steps) */ DISTINCT day_ms
FROM $inboxes AS inboxes LEFT SEMI JOIN $steps AS steps
    ON inboxes.number = steps.number AND steps.key BETWEEN inboxes.first_key AND inboxes.last_key

-- Activity. The digest includes the time: an event without a time of its own is a new event each time.

-- name: activity
SELECT $columns
FROM (
    SELECT *, $model AS model, $tokens
    FROM (
        SELECT *, CASE WHEN kind = 'llm_exchange' THEN from_json(event, 'duration bigint, objectiveId string,
            scope string, thread string,
            entry struct<provider: string, request: struct<model: string>, response: struct<model: string, status: int,
            error: string, usage: struct<inputTokens: bigint, outputTokens: bigint, cacheReadInputTokens: bigint,
            cacheCreationInputTokens: bigint>>>') END AS said
        FROM (
            SELECT *, row_number() OVER (PARTITION BY digest ORDER BY `offset`) AS nth
            FROM (
                SELECT *, md5(concat_ws('\u001f', CAST(number AS STRING), CAST(ts_ms AS STRING), event)) AS digest
                FROM (
                    SELECT *, last($marked) IGNORE NULLS OVER (
                        PARTITION BY number ORDER BY `offset` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                    ) AS focus
                    FROM (
                        SELECT `offset`, at_ms, $happened AS ts_ms, number, member, kind, event,
                            CAST(NULL AS STRING) AS before
                        FROM $bronze WHERE log = 'activity'
                        UNION ALL
                        SELECT -1, NULL, NULL, number, NULL, '', NULL, objective FROM $focus
                    )
                )
                WHERE `offset` >= 0
            )
        )
        WHERE nth = 1
    )
)

-- name: unknown
SELECT new.* FROM $new AS new LEFT ANTI JOIN $known AS known ON new.digest = known.digest
