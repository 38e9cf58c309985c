-- The pipeline's job as DuckDB does it: from the log in Parquet files to every silver and gold table.
-- name: base
CREATE VIEW row AS SELECT * FROM read_parquet($log);
CREATE TABLE message AS
SELECT "offset", at_ms, coalesce(id, event->>'id') AS id, coalesce(sender, event->>'sender') AS sender,
    coalesce(target, event->>'target') AS target, numbers, keys, recipients, thread, reply_to, hops, signature,
    coalesce(priority, 'normal') AS priority,
    CASE WHEN coalesce(thread, '') <> '' THEN 'thread:' || thread
         WHEN starts_with(target, '@') THEN least('@' || sender, target) || '+' || greatest('@' || sender, target)
         ELSE target END AS conversation
FROM row WHERE log = 'main' AND kind = 'send';
CREATE TABLE step AS
SELECT "offset", at_ms, kind, number, unnest(keys) AS key, coalesce(protocol, '') AS protocol, mute,
    CASE WHEN kind IN ('expire', 'die')
         THEN trim(regexp_extract(evidence, '^(.*?)( by |[:;,(]|$)', 1)[:60]) END AS cause
FROM row WHERE log = 'main' AND kind IN ('deliver', 'see', 'ack', 'claim', 'expire', 'die');
CREATE TABLE reached AS
SELECT number, key, min(at_ms) FILTER (kind = 'deliver') AS offered_ms,
    arg_min(protocol, "offset") FILTER (kind = 'deliver') AS offered_by,
    min(at_ms) FILTER (kind = 'deliver' AND mute) AS muted_ms, min(at_ms) FILTER (kind = 'see') AS seen_ms,
    min(at_ms) FILTER (kind IN ('ack', 'claim')) AS acked_ms,
    arg_min(protocol, "offset") FILTER (kind IN ('ack', 'claim')) AS acked_by,
    min(at_ms) FILTER (kind = 'expire') AS expired_ms, min(at_ms) FILTER (kind = 'die') AS dead_ms,
    arg_min(cause, "offset") FILTER (kind IN ('expire', 'die')) AS cause
FROM step GROUP BY ALL;
CREATE TABLE delivery AS
SELECT sent.*, reached.* EXCLUDE (number, key), least(acked_ms, expired_ms, dead_ms, muted_ms) AS left_ms
FROM (
    SELECT unnest(numbers) AS number, unnest(keys) AS key, unnest(recipients) AS recipient, "offset", sender,
        at_ms AS sent_ms, priority
    FROM message) AS sent
LEFT JOIN reached USING (number, key);
CREATE VIEW rung AS
SELECT recipient, sent_ms, 'offered' AS rung, offered_ms AS at_ms, offered_by AS protocol, priority, cause FROM delivery
    WHERE offered_ms IS NOT NULL
UNION ALL SELECT recipient, sent_ms, 'seen', seen_ms, '', priority, cause FROM delivery WHERE seen_ms IS NOT NULL
UNION ALL SELECT recipient, sent_ms, 'acked', acked_ms, acked_by, priority, cause FROM delivery
    WHERE acked_ms IS NOT NULL
UNION ALL SELECT recipient, sent_ms, 'expired', expired_ms, '', priority, cause FROM delivery
    WHERE expired_ms IS NOT NULL
UNION ALL SELECT recipient, sent_ms, 'dead', dead_ms, '', priority, cause FROM delivery WHERE dead_ms IS NOT NULL;
CREATE TABLE happening AS
SELECT "offset", at_ms, event->>'id' AS objective, event->>'status' AS status, event->>'assignee' AS assignee,
    happening->>'title' AS title
FROM row WHERE log = 'main' AND kind = 'objective';
CREATE TABLE record AS
SELECT "offset", at_ms, kind, event->>'thread' AS thread, event->>'code' AS code,
    coalesce(event->>'member', event->>'speaker') AS member,
    coalesce((event->>'count')::BIGINT, 1) AS n
FROM row
WHERE log = 'main' AND kind NOT IN ('send', 'deliver', 'see', 'ack', 'claim', 'expire', 'die', 'objective');
CREATE TABLE activity AS
SELECT *,
    last_value(CASE WHEN kind = 'objective_open' THEN coalesce(event->>'objectiveId', '')
                    WHEN kind = 'objective_close' THEN '' END IGNORE NULLS)
        OVER (PARTITION BY number ORDER BY "offset") AS focus
FROM (SELECT "offset", at_ms, ts_ms, number, member, kind, event FROM row WHERE log = 'activity')
QUALIFY row_number() OVER (PARTITION BY number, event ORDER BY "offset") = 1;
CREATE TABLE exchange AS
SELECT * EXCLUDE (said), coalesce(said.entry.response.model, said.entry.request.model, '') AS model,
    said.entry.response.error IS NOT NULL OR coalesce(said.entry.response.status, 200) >= 400 AS failed,
    coalesce(said.entry.response.error, 'status ' || said.entry.response.status) AS error,
    coalesce(said.entry.response.usage.inputTokens, 0) AS asked,
    coalesce(said.entry.response.usage.outputTokens, 0) AS told,
    coalesce(said.entry.response.usage.cacheReadInputTokens, 0) AS read_,
    coalesce(said.entry.response.usage.cacheCreationInputTokens, 0) AS written, coalesce(said.duration, 0) AS lasted,
    CASE WHEN starts_with(model, 'claude-opus') THEN asked * 5000 + told * 25000 + read_ * 500 + written * 6250
         WHEN starts_with(model, 'claude-sonnet') THEN asked * 3000 + told * 15000 + read_ * 300 + written * 3750
         WHEN starts_with(model, 'gpt-5') THEN asked * 1750 + told * 14000 + read_ * 175 + written * 1750 END AS cost
FROM (
    SELECT * EXCLUDE (event), from_json(event, '{"duration":"BIGINT","entry":{"request":{"model":"VARCHAR"},
        "response":{"model":"VARCHAR","status":"INTEGER","error":"VARCHAR","usage":{"inputTokens":"BIGINT",
        "outputTokens":"BIGINT","cacheReadInputTokens":"BIGINT","cacheCreationInputTokens":"BIGINT"}}}}') AS said
    FROM activity WHERE kind = 'llm_exchange');
CREATE TABLE answer AS
SELECT reply.at_ms // 86400000 * 86400000 AS day_ms, reply.sender, asked.sender AS recipient,
    reply.at_ms - asked.at_ms AS response_ms, reply."offset", asked."offset" AS asked, asked.at_ms AS asked_ms
FROM message AS reply JOIN message AS asked ON asked.id = reply.reply_to WHERE reply.sender <> asked.sender;
-- name: messages
SELECT * FROM message
-- name: deliveries
SELECT * FROM delivery
-- name: objective_events
SELECT * FROM happening
-- name: activity
SELECT * FROM activity
-- name: records
SELECT * FROM record
-- name: latency
SELECT recipient, protocol, at_ms // 60000 * 60000 AS minute_ms, count(*) FILTER (rung = 'offered') AS offered,
    count(*) FILTER (rung = 'seen') AS seen, count(*) FILTER (rung = 'acked') AS acked,
    count(*) FILTER (rung = 'expired') AS expired, count(*) FILTER (rung = 'dead') AS dead,
    count(*) FILTER (at_ms - sent_ms > 86400000) AS late,
    list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'offered') AS offered_ms,
    list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'acked') AS acked_ms,
    quantile_disc(at_ms - sent_ms, 0.5) FILTER (rung = 'acked') AS p50_ms,
    quantile_disc(at_ms - sent_ms, 0.99) FILTER (rung = 'acked') AS p99_ms
FROM rung GROUP BY ALL
-- name: service
SELECT at_ms // 86400000 * 86400000 AS day_ms, recipient, protocol, priority,
    count(*) FILTER (rung = 'offered') AS offered, count(*) FILTER (rung = 'seen') AS seen,
    count(*) FILTER (rung = 'acked') AS acked, count(*) FILTER (rung = 'expired') AS expired,
    count(*) FILTER (rung = 'dead') AS dead, count(*) FILTER (at_ms - sent_ms > 86400000) AS late,
    list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'offered') AS offered_ms,
    list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'acked') AS acked_ms
FROM rung GROUP BY ALL
-- name: responses
SELECT asked_ms // 86400000 * 86400000 AS day_ms, asked, any_value(recipient) AS asker,
    arg_min(sender, "offset") AS responder, min(response_ms) AS response_ms, count(*) AS answers
FROM answer GROUP BY ALL
-- name: failures
SELECT at_ms // 86400000 * 86400000 AS day_ms, rung AS kind, recipient AS member, cause, count(*) AS n FROM rung
WHERE rung IN ('expired', 'dead') GROUP BY ALL
UNION ALL SELECT at_ms // 86400000 * 86400000, 'refused', member, code, sum(n) FROM record WHERE kind = 'refuse'
GROUP BY ALL
UNION ALL SELECT ts_ms // 86400000 * 86400000, 'call', member, error, count(*) FROM exchange WHERE failed GROUP BY ALL
-- name: inboxes
SELECT sent_ms // 86400000 * 86400000 AS day_ms, number, min(key) AS first_key, max(key) AS last_key FROM delivery
GROUP BY ALL
-- name: focus
SELECT number, arg_max(focus, "offset") AS objective FROM activity WHERE focus IS NOT NULL GROUP BY ALL
-- name: backlog
SELECT recipient, minute, sum(came) AS arrived, sum(went) AS departed FROM (
    SELECT recipient, sent_ms // 60000 * 60000 AS minute, 1 AS came, 0 AS went FROM delivery
    UNION ALL SELECT recipient, left_ms // 60000 * 60000, 0, 1 FROM delivery WHERE left_ms IS NOT NULL)
GROUP BY ALL
-- name: edges
WITH sent AS (SELECT sent_ms // 86400000 * 86400000 AS day_ms, sender, recipient, count(*) AS n FROM delivery
              GROUP BY ALL),
told AS (SELECT day_ms, sender, recipient, count(*) AS n, list(response_ms ORDER BY response_ms) AS times,
         quantile_disc(response_ms, 0.5) AS middle FROM answer GROUP BY ALL)
SELECT day_ms, sender, recipient, sent.n AS messages, told.n AS answers, times, middle
FROM sent FULL JOIN told USING (day_ms, sender, recipient)
-- name: threads
SELECT at_ms // 86400000 * 86400000 AS day_ms, conversation, count(*) AS messages, min(at_ms) AS first_ms,
    max(at_ms) AS last_ms, list_sort(list(DISTINCT sender)) AS participants, arg_max(sender, "offset") AS last_sender
FROM message GROUP BY ALL
-- name: objectives
WITH moved AS (SELECT *, lead(at_ms) OVER (PARTITION BY objective ORDER BY "offset") AS next_ms FROM happening),
life AS (
    SELECT objective, max(title) AS title, arg_max(assignee, "offset") AS assignee,
        arg_max(status, "offset") AS status, min(at_ms) AS created,
        min(at_ms) FILTER (status IN ('done', 'cancelled')) AS finished,
        sum(next_ms - at_ms) FILTER (status = 'blocked') AS blocked, count(*) AS changes
    FROM moved GROUP BY objective),
spent AS (
    SELECT focus AS objective, count(*) AS n, sum(asked) AS asked, sum(told) AS told, sum(cost) AS cost
    FROM exchange WHERE focus <> '' GROUP BY focus)
SELECT * FROM life FULL JOIN spent USING (objective)
-- name: llm
SELECT ts_ms // 3600000 * 3600000 AS hour_ms, member, model, coalesce(focus, '') AS objective, count(*) AS exchanges,
    count(*) FILTER (failed) AS failed, count(*) FILTER (at_ms - ts_ms > 86400000) AS late,
    count(*) FILTER (cost IS NULL) AS unpriced, sum(asked) AS asked, sum(told) AS told, sum(read_) AS read_,
    sum(written) AS written, sum(lasted) AS lasted, sum(cost) AS cost
FROM exchange GROUP BY ALL
-- name: loops
WITH looped AS (
    SELECT at_ms // 86400000 * 86400000 AS day_ms, conversation, count(*) AS n, max(hops) AS hops,
        list_sort(list(DISTINCT sender)) AS members, min(at_ms) AS first, max(at_ms) AS last
    FROM message WHERE hops >= 16 GROUP BY ALL),
paused AS (
    SELECT at_ms // 86400000 * 86400000 AS day_ms, thread AS conversation, count(*) AS pauses, min(at_ms) AS first,
        max(at_ms) AS last
    FROM record WHERE kind = 'pause' GROUP BY ALL)
SELECT * FROM looped FULL JOIN paused USING (day_ms, conversation)
-- name: storms
SELECT at_ms // 60000 * 60000 AS minute_ms, sender, count(*) AS messages, sum(len(keys)) AS deliveries,
    count(*) >= 60 AS storm
FROM message GROUP BY ALL
-- name: findings
SELECT at_ms // 86400000 * 86400000 AS day_ms, "offset", 'signature' AS kind, sender, at_ms FROM message
WHERE signature IN ('failed', 'misnamed')
UNION ALL SELECT at_ms // 86400000 * 86400000, "offset", 'chain', '', at_ms FROM row WHERE log = 'main' AND NOT chained
-- name: members
WITH fact AS (
    SELECT at_ms // 86400000 * 86400000 AS day_ms, sender AS member, at_ms, 'sent' AS what, 1 AS n, 0 AS a, 0 AS b,
        0 AS c FROM message
    UNION ALL SELECT sent_ms // 86400000 * 86400000, recipient, sent_ms, 'received', 1, 0, 0, 0 FROM delivery
    UNION ALL SELECT at_ms // 86400000 * 86400000, recipient, at_ms, rung, 1, 0, 0, 0 FROM rung
        WHERE rung IN ('offered', 'seen', 'acked')
    UNION ALL SELECT left_ms // 86400000 * 86400000, recipient, left_ms, 'left', 1, 0, 0, 0 FROM delivery
        WHERE left_ms IS NOT NULL
    UNION ALL SELECT at_ms // 86400000 * 86400000, member, at_ms, 'refused', n, 0, 0, 0 FROM record
        WHERE kind = 'refuse' AND member IS NOT NULL
    UNION ALL SELECT ts_ms // 86400000 * 86400000, member, ts_ms, 'exchange', 1, asked, told, coalesce(cost, 0)
        FROM exchange)
SELECT day_ms, member, count(*) FILTER (what = 'sent') AS sent, count(*) FILTER (what = 'received') AS received,
    count(*) FILTER (what = 'offered') AS offered, count(*) FILTER (what = 'acked') AS acked,
    count(*) FILTER (what = 'left') AS departed,
    max(at_ms) FILTER (what IN ('sent', 'seen', 'acked', 'exchange')) AS heard_ms,
    sum(n) FILTER (what = 'refused') AS refused, count(*) FILTER (what = 'exchange') AS exchanges, sum(a) AS asked,
    sum(b) AS told, sum(c) AS cost, min(at_ms) AS first_ms, max(at_ms) AS last_ms
FROM fact GROUP BY ALL
