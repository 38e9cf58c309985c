"""The facts of one batch: new rows of every silver table (facts), with which the gold tables (sums) are updated.

Used by: the tables. `flow.py` makes the frames from one batch or, to rebuild a table, from all rows that were ever
read. A frame is a text in SQL that stands for rows: the name of a view, or a query in parentheses.
"""

from collections.abc import Mapping
from typing import TypedDict

from tieline.pipeline.tables import activity, deliveries, findings, messages


class Frames(TypedDict):
    """The new facts of one batch, with which gold tables (sums) are updated.

    Each field is a frame for one kind of fact: a text in SQL that stands for rows.
    """

    messages: str
    sendings: str
    """One row for each new delivery: a message and one recipient."""
    steps: str
    """One row for each state that a delivery reached. The column `rung` has the state. A delivery that left the backlog
    also has a row with `left` in this column.
    """
    answers: str
    """One row for each message that replies to another: the sender, the recipient, and the time that the reply took."""
    exchanges: str
    objective_history: str
    """All events, old and new, of the objectives that have new events."""
    records: str
    findings: str


def frames(bronze: str, silver: Mapping[str, str], asked: str, history: str) -> Frames:
    """Return the facts of a batch, as texts in SQL. `bronze` are the log rows, `silver` the new rows of silver tables.

    `asked` are the messages to which messages of the batch may reply. `history` are all events of the objectives in the
    batch.
    """
    return Frames(
        messages=silver["messages"],
        sendings=deliveries.sendings(silver["deliveries"]),
        steps=deliveries.steps(silver["deliveries"]),
        answers=messages.answers(silver["messages"], asked),
        exchanges=activity.exchanges(silver["activity"]),
        objective_history=history,
        records=silver["records"],
        findings=findings.findings(bronze),
    )
