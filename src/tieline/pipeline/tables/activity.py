"""Activity: one row for each action of a member, however often the member reported it.

If the answer to an upload is lost, the member sends the upload again. So equal events from the same member are the same
action, and only the first row counts. Model calls (`llm_exchange`) have tokens and cost. Other kinds have only the
common columns. `objective` is the objective that the member worked on, by the marker events that it reported. `late`
marks an action reported more than a day after it happened. It still counts at the time when it happened.
"""

from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import DAY_MS, Facts, Gold, Silver, columns, quoted
from tieline.wire.prices import Prices

WATERMARK_MS = DAY_MS
EXCHANGE = "llm_exchange"

# Members can report any number. A value beyond these limits is a mistake, and must not make a sum overflow.
AHEAD_MS, BEHIND_MS = DAY_MS, 366 * DAY_MS
_TOKENS_MAX = 10**8
_LASTED_MAX_MS = 10**10

TABLE = Silver(
    name="activity",
    schema=columns(
        "offset bigint, at_ms bigint, ts_ms bigint, number bigint, member string, kind string, digest string, "
        "objective string, late boolean, model string, provider string, failed boolean, error string, "
        "input_tokens bigint, output_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, "
        "lasted_ms bigint, cost_nano_usd bigint, scope string, thread string"
    ),
    time="ts_ms",
)

_OPEN, _CLOSE = "objective_open", "objective_close"


_NAMED = "coalesce(get_json_object(event, '$.objectiveId'), '')"

FOCUS = Gold(
    name="focus",
    schema=columns("number bigint, objective string, version bigint"),
    keys=("number",),
    measures={"objective": "newest", "version": "max"},
    reads=("focus",),
    facts=(
        Facts(
            "{bronze}",
            {
                "number": "number",
                "objective": f"CASE WHEN kind = '{_OPEN}' THEN {_NAMED} ELSE '' END",
                "version": "`offset`",
            },
            where=f"log = 'activity' AND kind IN ('{_OPEN}', '{_CLOSE}')",
        ),
    ),
)
"""The objective that each member works on now, by its last marker event. It is empty if the member works on no
objective. The facts are the marker events, in the log rows of a batch.
"""

_HAPPENED = f"CASE WHEN ts_ms BETWEEN at_ms - {BEHIND_MS} AND at_ms + {AHEAD_MS} THEN ts_ms ELSE at_ms END"
"""The time of an action as its member reported it. If this time is impossible, the time of the report."""
_MARKED = f"CASE WHEN kind = '{_OPEN}' THEN {_NAMED} WHEN kind = '{_CLOSE}' THEN '' ELSE before END"
_TOKENS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
}
_TOKEN_COLUMNS = ", ".join(
    f"CASE WHEN kind = '{EXCHANGE}' THEN least(greatest(coalesce(said.entry.response.usage.{told}, 0), 0), "
    f"{_TOKENS_MAX}) END AS {name}"
    for name, told in _TOKENS.items()
)
_MODEL = f"CASE WHEN kind = '{EXCHANGE}' THEN coalesce(said.entry.response.model, said.entry.request.model, '') END"

_FAILED = "(said.entry.response.error IS NOT NULL OR coalesce(said.entry.response.status, 200) >= 400)"
_ERROR = (
    f"CASE WHEN {_FAILED} THEN trim(substring(regexp_extract("
    "coalesce(said.entry.response.error, concat('status ', said.entry.response.status)), '^([^:;,(]*)', 1), 1, 60)) END"
)
"""The kind of a failed model call, as an expression: the first words of its error, or its status."""


def activity(bronze: str, focus: str, prices: Prices) -> str:
    """Return a query (SQL text) for the activity in a batch of log rows, each event once.

    `bronze` stands for the log rows. `focus` has the objective that each member worked on before the batch.
    """
    return rows_of(
        "activity", bronze=bronze, focus=focus, columns=_columns(prices), model=_MODEL, tokens=_TOKEN_COLUMNS,
        marked=_MARKED, happened=_HAPPENED,
    )  # fmt: skip


def _columns(prices: Prices) -> str:
    objective = "coalesce(said.objectiveId, focus)"
    given = {
        "objective": f"CASE WHEN {objective} <> '' THEN {objective} END",
        "late": f"at_ms - ts_ms > {WATERMARK_MS}",
        "provider": "said.entry.provider",
        "failed": f"CASE WHEN kind = '{EXCHANGE}' THEN {_FAILED} END",
        "error": f"CASE WHEN kind = '{EXCHANGE}' THEN {_ERROR} END",
        "lasted_ms": f"CASE WHEN said.duration BETWEEN 0 AND {_LASTED_MAX_MS} THEN said.duration END",
        "cost_nano_usd": _cost(prices),
        "scope": "nullif(said.scope, '')",
        "thread": "nullif(said.thread, '')",
    }
    return ", ".join(
        f"CAST({given.get(one.name, f'`{one.name}`')} AS {one.dataType.simpleString()}) AS `{one.name}`"
        for one in TABLE.schema
    )


def _cost(prices: Prices) -> str:
    """Return an expression (SQL text) for the cost of a model call.

    The price is that of the longest known prefix of the model's name. The cost is null if no known prefix matches.
    """
    cases = "".join(
        f" WHEN startswith(model, {quoted(prefix)}) THEN "
        + " + ".join(f"{name} * {price}" for name, price in zip(_TOKENS, prices[prefix], strict=True))
        for prefix in sorted(prices, key=len, reverse=True)
    )
    return f"CASE{cases} END" if cases else "NULL"


def exchanges(rows: str) -> str:
    """Return a query (SQL text) for the model calls among the actions `rows`."""
    return rows_of("some", rows=rows, where=f"kind = '{EXCHANGE}'")


def unknown(new: str, known: str) -> str:
    """Return a query (SQL text) for the rows of `new` that are not in `known`, because an upload may come twice.

    Rows are the same if their hash (`digest`) is the same.
    """
    return rows_of("unknown", new=new, known=known)
