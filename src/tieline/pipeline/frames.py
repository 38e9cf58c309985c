"""The facts of one batch: new rows of every silver table (facts), with which the gold tables (sums) are updated.

Above: the tables. `flow.py` fills `Frames` from one batch or, to rebuild a table, from all rows that were ever read.
"""

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tieline.pipeline.prices import Prices


@dataclass(frozen=True)
class Frames:
    """The new facts of one batch, with which gold tables (sums) are updated: one Spark frame for each kind of fact."""

    messages: DataFrame
    sendings: DataFrame
    """One row for each new delivery: a message and one recipient."""
    steps: DataFrame
    """One row for each rung (state) that a delivery reached. A delivery that left the backlog also has a row with the
    rung `left`.
    """
    answers: DataFrame
    """One row for each message that replies to another: the sender, the recipient, and the time that the reply took."""
    exchanges: DataFrame
    objective_events: DataFrame
    objective_history: DataFrame
    """All events, old and new, of the objectives that have new events."""
    records: DataFrame
    findings: DataFrame
    prices: Prices
    empty: frozenset[str] = field(default_factory=frozenset)
    """Names of the frames that have no rows."""
