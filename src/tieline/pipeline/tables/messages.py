"""Messages: one row for each accepted message.

If retention has deleted a message, the row has only the columns that are also in the log, such as id, sender and
target. The other columns are null. `conversation` has the same name as in the hub's loop rule: `thread:<name>`,
`@a+@b`, or the target.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.table import DAY_MS, Silver, columns, start_of

TABLE = Silver(
    name="messages",
    schema=columns(
        "offset bigint, sent_ms bigint, id string, sender string, target string, recipients int, protocol string, "
        "conversation string, thread string, reply_to string, cause string, hops int, level string, priority string, "
        "saying string, body_bytes bigint, verified boolean, signature string, wire_id string"
    ),
    time="sent_ms",
)


def messages(bronze: DataFrame) -> DataFrame:
    """Return the messages in a batch of log rows."""
    sent = bronze.where((f.col("log") == "main") & (f.col("kind") == "send"))
    named = sent.select(
        "offset",
        f.col("at_ms").alias("sent_ms"),
        _known("id"),
        _known("sender"),
        _known("target"),
        f.coalesce(f.size("keys"), f.get_json_object("event", "$.recipients").try_cast("int")).alias("recipients"),
        "protocol", "thread", "reply_to", "cause", "hops", "level", "priority", "saying", "body_bytes", "verified",
        "signature", "wire_id",
    )  # fmt: skip
    return named.withColumn("conversation", _conversation()).select(*TABLE.schema.fieldNames())


def _known(name: str) -> Column:
    return f.coalesce(f.col(name), f.get_json_object("event", f"$.{name}")).alias(name)


def _conversation() -> Column:
    sender, target = f.concat(f.lit("@"), f.col("sender")), f.col("target")
    pair = f.concat(f.least(sender, target), f.lit("+"), f.greatest(sender, target))
    threaded = f.col("thread").isNotNull() & (f.col("thread") != "")
    return (
        f.when(threaded, f.concat(f.lit("thread:"), f.col("thread")))
        .when(target.startswith("@"), pair)
        .otherwise(target)
    )


def answers(new: DataFrame, known: DataFrame) -> DataFrame:
    """Return the `new` messages that reply to a `known` message of another member, with the delay of the reply."""
    asked = known.select(
        f.col("id").alias("reply_to"), f.col("sender").alias("recipient"), f.col("sent_ms").alias("asked_ms")
    )
    return (
        new.where(f.col("reply_to").isNotNull())
        .select("reply_to", "sender", "sent_ms")
        .join(asked, "reply_to")
        .where(f.col("sender") != f.col("recipient"))
        .select(
            start_of(f.col("sent_ms"), DAY_MS).alias("day_ms"),
            "sender",
            "recipient",
            (f.col("sent_ms") - f.col("asked_ms")).alias("response_ms"),
        )
    )
