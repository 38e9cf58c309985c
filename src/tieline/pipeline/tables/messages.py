"""Messages: one row for each accepted message.

If retention has deleted a message, the row has only the columns that are also in the log, such as id, sender and
target. The other columns are null. `conversation` has the same name as in the hub's loop rule: `thread:<name>`,
`@a+@b`, or the target.
"""

from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import DAY_MS, Silver, columns, start_of

TABLE = Silver(
    name="messages",
    schema=columns(
        "offset bigint, sent_ms bigint, id string, sender string, target string, recipients int, protocol string, "
        "conversation string, scope string, thread string, reply_to string, cause string, hops int, level string, "
        "priority string, saying string, body_bytes bigint, verified boolean, signature string, wire_id string"
    ),
    time="sent_ms",
)


def messages(bronze: str) -> str:
    """Return a query (SQL text) for the messages in a batch of log rows."""
    given = {
        "sent_ms": "at_ms",
        **{name: f"known_{name}" for name in ("id", "sender", "target")},
        "recipients": "coalesce(size(keys), try_cast(get_json_object(event, '$.recipients') AS INT))",
        "conversation": _CONVERSATION,
    }
    selected = ", ".join(f"{given.get(name, f'`{name}`')} AS `{name}`" for name in TABLE.schema.fieldNames())
    return rows_of("messages", columns=selected, bronze=bronze)


_PAIR = "concat(least(concat('@', known_sender), known_target), '+', greatest(concat('@', known_sender), known_target))"
_CONVERSATION = (
    "CASE WHEN thread <> '' THEN concat('thread:', thread) "
    f"WHEN startswith(known_target, '@') THEN {_PAIR} ELSE known_target END"
)


def answers(new: str, known: str) -> str:
    """Return a query (SQL text) for the `new` messages that reply to a `known` message of another member.

    The rows also have the time that the reply took.
    """
    return rows_of("answers", day=start_of("new.sent_ms", DAY_MS), new=new, known=known)
