"""Threads: one row for each conversation and day: its length, the members that spoke, and a mark if nobody answered.

The messages with the same thread name are a conversation. Messages without a thread name belong to the conversation of
their channel, objective or pair of members. A conversation has the same name as in the hub's loop rule. `unanswered` is
true if only one member spoke.
"""

from tieline.pipeline.table import DAY_MS, VERSION, Facts, Gold, columns, start_of

_DAY = start_of("sent_ms", DAY_MS)

TABLE = Gold(
    name="threads",
    schema=columns(
        "day_ms bigint, conversation string, messages bigint, first_ms bigint, last_ms bigint, "
        "participants array<string>, last_sender string, version bigint, unanswered boolean"
    ),
    keys=("day_ms", "conversation"),
    measures={
        "messages": "sum",
        "first_ms": "min",
        "last_ms": "max",
        "participants": "union",
        "last_sender": "newest",
        "version": "max",
    },
    reads=("messages",),
    facts=(
        Facts(
            "{messages}",
            {
                "day_ms": _DAY,
                "conversation": "conversation",
                "messages": "count(*)",
                "first_ms": "min(sent_ms)",
                "last_ms": "max(sent_ms)",
                "participants": "array(sender)",
                "last_sender": "sender",
                VERSION: "max(`offset`)",
            },
            by=(_DAY, "conversation", "sender"),
        ),
    ),
    part="day_ms",
    finish={"unanswered": "size(participants) = 1"},
)
