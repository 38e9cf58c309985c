"""The facts of one batch, as gold tables read them: the new rows of every silver table.

Above: the tables. `flow.py` fills `Frames` from one batch or, to rebuild a table, from everything that was ever read.
"""

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tieline.pipeline.prices import Prices


@dataclass(frozen=True)
class Frames:
    """New facts, one frame per kind of fact."""

    messages: DataFrame
    sendings: DataFrame
    """A row for each message and recipient."""
    steps: DataFrame
    """A row for each rung that a delivery reached."""
    answers: DataFrame
    """One row for each message that answers another: the sender, the recipient, and the time it took."""
    exchanges: DataFrame
    objective_events: DataFrame
    objective_history: DataFrame
    """All events, old and new, of the objectives that have new events."""
    records: DataFrame
    findings: DataFrame
    prices: Prices
    empty: frozenset[str] = field(default_factory=frozenset)
    """Names of the frames that have no rows."""
