"""Activity: one row for each action of a member, however often the member reported it.

If the answer to an upload is lost, the member sends the upload again. So equal events from the same member are the same
action, and only the first row counts. Model calls (`llm_exchange`) have tokens and cost. Other kinds have only the
common columns. `objective` is the objective that the member worked on, by the marker events that it reported. `late`
marks an action reported more than a day after it happened. It still counts at the time when it happened.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tieline.pipeline.prices import Prices
from tieline.pipeline.table import DAY_MS, Gold, Silver, columns

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
        "objective string, late boolean, model string, provider string, failed boolean, input_tokens bigint, "
        "output_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, lasted_ms bigint, "
        "cost_nano_usd bigint"
    ),
    time="ts_ms",
)

FOCUS = Gold(
    name="focus",
    schema=columns("number bigint, objective string, version bigint"),
    keys=("number",),
    measures={"objective": "newest", "version": "max"},
    reads=("focus",),
    contribute=lambda frames: [],
)
"""The objective that each member works on now, by its last marker event. It is empty if the member works on no
objective.
"""

_EVENT = (
    "duration bigint, objectiveId string, entry struct<provider: string, request: struct<model: string>, "
    "response: struct<model: string, status: int, error: string, usage: struct<inputTokens: bigint, "
    "outputTokens: bigint, cacheReadInputTokens: bigint, cacheCreationInputTokens: bigint>>>"
)
_OPEN, _CLOSE = "objective_open", "objective_close"


def happened_ms() -> Column:
    """Return the time of an action as its member reported it.

    If the reported time is impossible, return the time of the report.
    """
    told, at = f.col("ts_ms"), f.col("at_ms")
    return f.when(told.between(at - BEHIND_MS, at + AHEAD_MS), told).otherwise(at)


def markers(bronze: DataFrame) -> DataFrame:
    """Return the marker events by which members report the objective they work on, in the columns of `FOCUS`."""
    marked = bronze.where((f.col("log") == "activity") & f.col("kind").isin(_OPEN, _CLOSE))
    named = f.coalesce(f.get_json_object("event", "$.objectiveId"), f.lit(""))
    objective = f.when(f.col("kind") == _OPEN, named).otherwise("")
    return marked.select("number", objective.alias("objective"), f.col("offset").alias("version"))


def activity(bronze: DataFrame, focus: DataFrame, prices: Prices) -> DataFrame:
    """Return the activity in a batch of log rows, each event once.

    `focus` has the objective that each member worked on before the batch.
    """
    rows = bronze.where(f.col("log") == "activity").select(
        "offset", "at_ms", happened_ms().alias("ts_ms"), "number", "member", "kind", "event",
        f.lit(None).cast("string").alias("before"),
    )  # fmt: skip
    carried = focus.select(
        f.lit(-1).cast("bigint").alias("offset"), "number", f.lit("").alias("kind"), f.col("objective").alias("before")
    )
    all_rows = rows.unionByName(carried, allowMissingColumns=True)
    marked = (
        f.when(f.col("kind") == _OPEN, f.coalesce(f.get_json_object("event", "$.objectiveId"), f.lit("")))
        .when(f.col("kind") == _CLOSE, f.lit(""))
        .otherwise(f.col("before"))
    )
    told = Window.partitionBy("number").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    focused = all_rows.withColumn("focus", f.last(marked, ignorenulls=True).over(told)).where(f.col("offset") >= 0)
    # Include the time: an event without a time of its own is a new event each time.
    digest = f.md5(f.concat_ws("\x1f", f.col("number").cast("string"), f.col("ts_ms").cast("string"), "event"))
    first = Window.partitionBy("digest").orderBy("offset")
    once = focused.withColumn("digest", digest).withColumn("nth", f.row_number().over(first)).where(f.col("nth") == 1)
    return _typed(once, prices)


def _typed(rows: DataFrame, prices: Prices) -> DataFrame:
    said = rows.withColumn("said", f.when(f.col("kind") == EXCHANGE, f.from_json("event", _EVENT)))
    usage, response = f.col("said.entry.response.usage"), f.col("said.entry.response")
    exchange = f.col("kind") == EXCHANGE
    model = f.when(exchange, f.coalesce(response["model"], f.col("said.entry.request.model"), f.lit("")))
    tokens = [
        f.when(exchange, f.least(f.greatest(f.coalesce(usage[name], f.lit(0)), f.lit(0)), f.lit(_TOKENS_MAX)))
        for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    ]
    failed = f.when(
        exchange, response["error"].isNotNull() | (f.coalesce(response["status"], f.lit(200)) >= f.lit(400))
    )
    objective = f.coalesce(f.col("said.objectiveId"), f.col("focus"))
    return said.select(
        "offset", "at_ms", "ts_ms", "number", "member", "kind", "digest",
        f.when(objective != "", objective).alias("objective"),
        (f.col("at_ms") - f.col("ts_ms") > WATERMARK_MS).alias("late"),
        model.alias("model"),
        f.col("said.entry.provider").alias("provider"),
        failed.alias("failed"),
        tokens[0].alias("input_tokens"),
        tokens[1].alias("output_tokens"),
        tokens[2].alias("cache_read_tokens"),
        tokens[3].alias("cache_write_tokens"),
        f.when(f.col("said.duration").between(0, _LASTED_MAX_MS), f.col("said.duration")).alias("lasted_ms"),
        _cost(model, tokens, prices).alias("cost_nano_usd"),
    )  # fmt: skip


def _cost(model: Column, tokens: list[Column], prices: Prices) -> Column:
    """Compute the cost of a model call, by the longest known prefix of the model's name.

    The cost is null if no known prefix matches.
    """
    cost = f.lit(None).cast("bigint")
    for prefix in sorted(prices, key=len):
        asked, told, read, written = prices[prefix]
        sums = tokens[0] * asked + tokens[1] * told + tokens[2] * read + tokens[3] * written
        cost = f.when(model.startswith(prefix), sums.cast("bigint")).otherwise(cost)
    return cost


def unknown(new: DataFrame, known: DataFrame) -> DataFrame:
    """Return the rows of `new` that are not in `known`, because an upload may come twice.

    Rows are the same if their hash (`digest`) is the same.
    """
    return new.join(known.select("digest"), "digest", "left_anti").select(*TABLE.schema.fieldNames())
