"""The expected contents of the pipeline's tables, computed in another way: with sqlite3, json and DuckDB.

This module shares no code with the pipeline. Its queries have the columns of the gold tables (sums), in their order.
"""

import json
import re
import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
_MOVES = ("deliver", "see", "ack", "claim", "expire", "die")

_PRICES = """
CREATE MACRO price(model, a, b, c, d) AS CASE
    WHEN model LIKE 'claude-opus%' THEN a * 5000 + b * 25000 + c * 500 + d * 6250
    WHEN model LIKE 'claude-sonnet%' THEN a * 3000 + b * 15000 + c * 300 + d * 3750
    WHEN model LIKE 'gpt-5%' THEN a * 1750 + b * 14000 + c * 175 + d * 1750
END
"""

_VIEWS = f"""
CREATE TABLE delivery AS
SELECT route.number, route.key, any_value(member.name) AS recipient, any_value(sender) AS sender,
    any_value(message.at_ms) AS sent_ms,
    min(move.at_ms) FILTER (kind = 'deliver') AS offered_ms,
    arg_min(protocol, move.offset_) FILTER (kind = 'deliver') AS offered_by,
    min(move.at_ms) FILTER (kind = 'deliver' AND mute) AS muted_ms,
    min(move.at_ms) FILTER (kind = 'see') AS seen_ms,
    min(move.at_ms) FILTER (kind IN ('ack', 'claim')) AS acked_ms,
    arg_min(protocol, move.offset_) FILTER (kind IN ('ack', 'claim')) AS acked_by,
    min(move.at_ms) FILTER (kind = 'expire') AS expired_ms, min(move.at_ms) FILTER (kind = 'die') AS dead_ms,
    arg_min(cause, move.offset_) FILTER (kind IN ('expire', 'die')) AS cause, any_value(priority) AS priority,
    any_value(offset_) AS offset_, any_value(scope) AS scope, any_value(thread) AS thread
FROM route JOIN message USING (offset_) JOIN member USING (number)
LEFT JOIN move ON move.number = route.number AND move.key = route.key
GROUP BY route.number, route.key;
CREATE TABLE rung AS
SELECT recipient, sent_ms, 'offered' AS rung, offered_ms AS at_ms, offered_by AS protocol, priority, cause FROM delivery
UNION ALL SELECT recipient, sent_ms, 'seen', seen_ms, '', priority, cause FROM delivery
UNION ALL SELECT recipient, sent_ms, 'acked', acked_ms, acked_by, priority, cause FROM delivery
UNION ALL SELECT recipient, sent_ms, 'expired', expired_ms, '', priority, cause FROM delivery
UNION ALL SELECT recipient, sent_ms, 'dead', dead_ms, '', priority, cause FROM delivery;
DELETE FROM rung WHERE at_ms IS NULL;
CREATE TABLE exchange AS
SELECT *, price(model, asked, told, read_, written) AS cost,
    (SELECT marker.objective FROM activity AS marker
     WHERE marker.number = one.number AND marker.offset_ < one.offset_ AND marker.kind LIKE 'objective_%'
     ORDER BY marker.offset_ DESC LIMIT 1) AS focus
FROM (SELECT *, row_number() OVER (PARTITION BY number, ts_ms, event ORDER BY offset_) AS nth FROM activity) AS one
WHERE kind = 'llm_exchange' AND nth = 1;
CREATE TABLE taken AS
SELECT *, least(seen_ms, acked_ms, muted_ms) AS taken_ms FROM delivery;
CREATE TABLE spent AS
SELECT *, coalesce(regexp_replace(regexp_replace(coalesce(own_scope, (
        SELECT arg_max(if(one.ts_ms - sent_ms <= {7 * DAY}, scope, ''), (taken_ms, taken.offset_)) FROM taken
        WHERE scope IS NOT NULL AND taken.number = one.number AND taken_ms <= ts_ms
    )), '^(https://|git@)(.*)[.]git$', '\\2'), ':', '/'), '') AS scope,
    coalesce(own_thread, (
        SELECT arg_max(if(one.ts_ms - sent_ms <= {7 * DAY}, thread, ''), (taken_ms, taken.offset_)) FROM taken
        WHERE thread IS NOT NULL AND taken.number = one.number AND taken_ms <= ts_ms
    ), '') AS thread
FROM exchange AS one;
CREATE TABLE answer AS
SELECT reply.at_ms // {DAY} * {DAY} AS day_ms, reply.sender, asked.sender AS recipient,
    reply.at_ms - asked.at_ms AS response_ms, reply.offset_, asked.offset_ AS asked, asked.at_ms AS asked_ms
FROM message AS reply JOIN message AS asked ON asked.id = reply.reply_to WHERE reply.sender <> asked.sender;
"""

QUERIES = {
    "latency": f"""
        SELECT recipient, protocol, at_ms // {MINUTE} * {MINUTE}, count(*) FILTER (rung = 'offered'),
            count(*) FILTER (rung = 'seen'), count(*) FILTER (rung = 'acked'), count(*) FILTER (rung = 'expired'),
            count(*) FILTER (rung = 'dead'), count(*) FILTER (at_ms - sent_ms > {DAY}),
            coalesce(list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'offered'), []),
            coalesce(list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'acked'), []),
            quantile_disc(at_ms - sent_ms, 0.5) FILTER (rung = 'acked'),
            quantile_disc(at_ms - sent_ms, 0.99) FILTER (rung = 'acked')
        FROM rung GROUP BY ALL""",
    "service": f"""
        SELECT at_ms // {DAY} * {DAY}, recipient, protocol, priority, count(*) FILTER (rung = 'offered'),
            count(*) FILTER (rung = 'seen'), count(*) FILTER (rung = 'acked'), count(*) FILTER (rung = 'expired'),
            count(*) FILTER (rung = 'dead'), count(*) FILTER (at_ms - sent_ms > {DAY}),
            coalesce(list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'offered'), []),
            coalesce(list(at_ms - sent_ms ORDER BY at_ms - sent_ms) FILTER (rung = 'acked'), [])
        FROM rung GROUP BY ALL""",
    "responses": f"""
        SELECT asked_ms // {DAY} * {DAY}, asked, any_value(recipient), arg_min(sender, offset_), min(response_ms),
            count(*), -min(offset_)
        FROM answer GROUP BY ALL""",
    "failures": f"""
        SELECT at_ms // {DAY} * {DAY}, rung, recipient, cause, count(*) FROM rung
        WHERE rung IN ('expired', 'dead') GROUP BY ALL
        UNION ALL SELECT at_ms // {DAY} * {DAY}, 'refused', speaker, code, sum(n)::BIGINT FROM refusal GROUP BY ALL
        UNION ALL SELECT ts_ms // {DAY} * {DAY}, 'call', member.name, error, count(*)
        FROM exchange JOIN member USING (number) WHERE failed GROUP BY ALL""",
    "backlog": f"""
        SELECT recipient, minute, sum(came)::BIGINT, sum(went)::BIGINT FROM (
            SELECT recipient, sent_ms // {MINUTE} * {MINUTE} AS minute, 1 AS came, 0 AS went FROM delivery
            UNION ALL SELECT recipient, least(acked_ms, expired_ms, dead_ms, muted_ms) // {MINUTE} * {MINUTE}, 0, 1
            FROM delivery WHERE least(acked_ms, expired_ms, dead_ms, muted_ms) IS NOT NULL
        ) GROUP BY ALL""",
    "edges": f"""
        WITH sent AS (SELECT sent_ms // {DAY} * {DAY} AS day_ms, sender, recipient, count(*) AS n
                      FROM delivery GROUP BY ALL),
        told AS (SELECT day_ms, sender, recipient, count(*) AS n, list(response_ms ORDER BY response_ms) AS times,
                 quantile_disc(response_ms, 0.5) AS middle FROM answer GROUP BY ALL)
        SELECT day_ms, sender, recipient, coalesce(sent.n, 0), coalesce(told.n, 0), coalesce(times, []), middle
        FROM sent FULL JOIN told USING (day_ms, sender, recipient)""",
    "threads": f"""
        SELECT at_ms // {DAY} * {DAY}, conversation, count(*), min(at_ms), max(at_ms),
            list_sort(list(DISTINCT sender)), arg_max(sender, offset_), max(offset_), count(DISTINCT sender) = 1
        FROM message GROUP BY ALL""",
    "objectives": """
        WITH step AS (SELECT *, lead(at_ms) OVER (PARTITION BY objective ORDER BY offset_) AS next_ms FROM happening),
        life AS (
            SELECT objective, max(title) AS title, arg_max(assignee, offset_) AS assignee,
                arg_max(status, offset_) AS status, min(at_ms) AS created,
                min(at_ms) FILTER (status IN ('done', 'cancelled')) AS finished,
                coalesce(sum(next_ms - at_ms) FILTER (status = 'blocked'), 0)::BIGINT AS blocked,
                max(at_ms) FILTER (status = 'blocked' AND next_ms IS NULL) AS since, count(*) AS changes,
                max(offset_) AS version
            FROM step GROUP BY objective),
        spent AS (
            SELECT focus AS objective, count(*) AS n, sum(asked)::BIGINT AS asked, sum(told)::BIGINT AS told,
                coalesce(sum(cost), 0)::BIGINT AS cost
            FROM exchange WHERE focus <> '' GROUP BY focus)
        SELECT objective, title, assignee, status, created, finished, finished - created, blocked, since, changes,
            coalesce(n, 0), coalesce(asked, 0), coalesce(told, 0), coalesce(cost, 0), version
        FROM life FULL JOIN spent USING (objective)""",
    "llm": f"""
        SELECT ts_ms // {HOUR} * {HOUR}, member.name, model, coalesce(focus, ''), count(*), count(*) FILTER (failed),
            count(*) FILTER (at_ms - ts_ms > {DAY}), count(*) FILTER (cost IS NULL), sum(asked)::BIGINT,
            sum(told)::BIGINT, sum(read_)::BIGINT, sum(written)::BIGINT, sum(lasted)::BIGINT,
            coalesce(sum(cost), 0)::BIGINT
        FROM exchange JOIN member USING (number) GROUP BY ALL""",
    "loops": f"""
        WITH looped AS (
            SELECT at_ms // {DAY} * {DAY} AS day_ms, conversation, count(*) AS n, max(hops) AS hops,
                list_sort(list(DISTINCT sender)) AS members, 0 AS pauses, min(at_ms) AS first, max(at_ms) AS last
            FROM message WHERE hops >= 16 GROUP BY ALL),
        paused AS (
            SELECT at_ms // {DAY} * {DAY} AS day_ms, thread AS conversation, count(*) AS pauses, min(at_ms) AS first,
                max(at_ms) AS last
            FROM pause GROUP BY ALL)
        SELECT day_ms, conversation, coalesce(n, 0), coalesce(hops, 0), coalesce(members, []),
            coalesce(paused.pauses, 0), least(looped.first, paused.first), greatest(looped.last, paused.last)
        FROM looped FULL JOIN paused USING (day_ms, conversation)""",
    "storms": f"""
        SELECT at_ms // {MINUTE} * {MINUTE}, sender, count(*), sum(recipients)::BIGINT, count(*) >= 60
        FROM message GROUP BY ALL""",
    "findings": f"""
        SELECT at_ms // {DAY} * {DAY}, offset_, 'chain', '', at_ms,
            'row ' || offset_ || ' does not follow from the row before it'
        FROM (SELECT *, lag(offset_, 1, -1) OVER (ORDER BY offset_) AS before FROM log_row) WHERE before <> offset_ - 1
        UNION ALL SELECT at_ms // {DAY} * {DAY}, offset_, 'signature', sender, at_ms,
            'the signature of ' || id || ' is ' || signature
        FROM message WHERE signature IN ('failed', 'misnamed')""",
    "inboxes": f"""
        SELECT sent_ms // {DAY} * {DAY}, number, min(key), max(key) FROM delivery GROUP BY ALL""",
    "members": f"""
        WITH fact AS (
            SELECT at_ms // {DAY} * {DAY} AS day_ms, sender AS member, at_ms, 'sent' AS what, 1 AS n, 0 AS a, 0 AS b,
                0 AS c FROM message
            UNION ALL SELECT sent_ms // {DAY} * {DAY}, recipient, sent_ms, 'received', 1, 0, 0, 0 FROM delivery
            UNION ALL SELECT at_ms // {DAY} * {DAY}, recipient, at_ms, rung, 1, 0, 0, 0 FROM rung
                WHERE rung IN ('offered', 'acked', 'seen')
            UNION ALL SELECT left_ms // {DAY} * {DAY}, recipient, left_ms, 'left', 1, 0, 0, 0 FROM (
                SELECT recipient, least(acked_ms, expired_ms, dead_ms, muted_ms) AS left_ms FROM delivery)
                WHERE left_ms IS NOT NULL
            UNION ALL SELECT at_ms // {DAY} * {DAY}, speaker, at_ms, 'refused', n, 0, 0, 0 FROM refusal
                WHERE speaker <> ''
            UNION ALL SELECT ts_ms // {DAY} * {DAY}, member.name, ts_ms, 'exchange', 1, asked, told, coalesce(cost, 0)
                FROM exchange JOIN member USING (number))
        SELECT day_ms, member, count(*) FILTER (what = 'sent'), count(*) FILTER (what = 'received'),
            count(*) FILTER (what = 'offered'), count(*) FILTER (what = 'acked'), count(*) FILTER (what = 'left'),
            coalesce(sum(n) FILTER (what = 'refused'), 0)::BIGINT, count(*) FILTER (what = 'exchange'),
            sum(a)::BIGINT, sum(b)::BIGINT, sum(c)::BIGINT, min(at_ms), max(at_ms),
            max(at_ms) FILTER (what IN ('sent', 'seen', 'acked', 'exchange'))
        FROM fact GROUP BY ALL""",
}


class Oracle:
    """Computes the expected rows of the gold tables (sums) for one home."""

    def __init__(self, home: Path) -> None:
        self._duck = duckdb.connect()
        self._load_main(home / "tieline.db")
        self._load_activity(home / "activity.db")
        self._duck.execute(_PRICES)
        self._duck.execute(_VIEWS)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return the expected rows of a gold table, sorted."""
        return ordered(self._duck.execute(QUERIES[table]).fetchall())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the facts of the log: `message`, `delivery`, `rung`, `spent`, `answer`."""
        return self._duck.execute(query).fetchall()

    def _table(self, name: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
        names = columns.split()
        lists: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [() for _ in names]
        arrow = pa.table({column: pa.array(values) for column, values in zip(names, lists, strict=True)})
        self._duck.register("incoming", arrow)
        self._duck.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
        self._duck.unregister("incoming")

    def _load_main(self, path: Path) -> None:
        source = sqlite3.connect(path)
        kept = {
            row[0]: row[1:] for row in source.execute("SELECT offset, content, route, hops, signature FROM message")
        }
        rows, messages, routes, moves, happenings, pauses, refusals = [], [], [], [], [], [], []
        titles = {
            row[0]: json.loads(row[1]).get("title")
            for row in source.execute("SELECT offset, event FROM objective_event")
        }
        for offset, at_ms, raw in source.execute("SELECT offset, at_ms, event FROM log ORDER BY offset"):
            event = json.loads(raw)
            kind = event["event"]
            rows.append((offset, at_ms))
            told: tuple[Any, ...]
            if kind == "send":
                # Of a message that retention deleted, the event has the facts that tables count.
                content, route, hops, signature = kept.get(offset, (raw, b"", event.get("hops", 0), None))
                said = json.loads(content)
                numbers = array("q", route)
                count = len(numbers) // 3
                recipients = count if offset in kept else event.get("recipients", 0)
                routes += [(offset, numbers[index], numbers[count + index]) for index in range(count)]
                thread = said.get("thread")
                pair = "+".join(sorted((f"@{event['sender']}", event["target"])))
                place = pair if event["target"].startswith("@") else event["target"]
                name = f"thread:{thread}" if thread else place
                told = (event["sender"], event["target"], recipients, name, said.get("reply_to"), hops, signature)
                told = (*told, said.get("priority", "normal"), said.get("scope"), thread)
                messages.append((offset, at_ms, event["id"], *told))
            elif kind in _MOVES:
                common = (offset, at_ms, kind, event["number"])
                cause = re.split(" by |[:;,(]", event.get("evidence", ""))[0].strip()
                told = (event.get("protocol", ""), event.get("mute", False), cause)
                for first, last in event["keys"]:
                    moves += [(*common, key, *told) for key in range(first, last + 1)]
            elif kind == "objective":
                told = (event["status"], event["assignee"], titles[offset])
                happenings.append((offset, at_ms, event["id"], *told))
            elif kind == "pause":
                pauses.append((at_ms, event["thread"]))
            elif kind == "refuse":
                refusals.append((at_ms, event["speaker"], event["code"], event.get("count", 1)))
        columns = "offset_ at_ms id sender target recipients conversation reply_to hops signature priority scope thread"
        self._table("log_row", "offset_ at_ms", rows)
        self._table("message", columns, messages)
        self._table("route", "offset_ number key", routes)
        self._table("move", "offset_ at_ms kind number key protocol mute cause", moves)
        self._table("happening", "offset_ at_ms objective status assignee title", happenings)
        self._table("pause", "at_ms thread", pauses)
        self._table("refusal", "at_ms speaker code n", refusals)
        self._table("member", "number name", source.execute("SELECT number, name FROM member").fetchall())
        source.close()

    def _load_activity(self, path: Path) -> None:
        source = sqlite3.connect(path)
        rows = []
        query = "SELECT offset, at_ms, number, kind, ts_ms, event FROM activity ORDER BY offset"
        for offset, at_ms, number, kind, told_ms, raw in source.execute(query):
            event = json.loads(raw)
            response = event.get("entry", {}).get("response", {})
            usage = response.get("usage", {})
            objective = event.get("objectiveId", "") if kind == "objective_open" else ""
            tokens = [usage.get(name) or 0 for name in
                      ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")]  # fmt: skip
            failed = response.get("error") is not None or (response.get("status") or 200) >= 400
            error = response.get("error") or f"status {response.get('status')}"
            told = (objective, response.get("model", ""), failed, error, *tokens, event.get("duration", 0))
            told = (*told, event.get("scope"), event.get("thread"))
            # A time that cannot be is replaced by that of the report.
            ts_ms = told_ms if at_ms - 366 * DAY <= told_ms <= at_ms + DAY else at_ms
            rows.append((offset, at_ms, number, kind, ts_ms, raw.decode(), *told))
        columns = "offset_ at_ms number kind ts_ms event objective model failed error asked told read_ written lasted"
        columns += " own_scope own_thread"
        self._table("activity", columns, rows)
        source.close()


def ordered(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows in an order that depends only on their contents, so that two lists can be compared."""
    return sorted(rows, key=repr)


def stored(files: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table of a lake, sorted. DuckDB reads them from the Parquet `files`."""
    if not files:
        return []
    wanted = ", ".join(f'"{column}"' for column in columns)
    return ordered(duckdb.execute(f"SELECT {wanted} FROM read_parquet(?)", [list(files)]).fetchall())
