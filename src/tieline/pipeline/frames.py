"""The facts of one batch, as gold tables read them: the new rows of every silver table.

Above: the tables. `flow.py` fills it, from one batch or, to rebuild a table, from everything that was ever read.
"""

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tieline.pipeline.prices import Prices


@dataclass(frozen=True)
class Frames:
    """New facts."""

    messages: DataFrame
    sendings: DataFrame
    """A row for each message and recipient."""
    steps: DataFrame
    """A row for each rung that a delivery reached."""
    answers: DataFrame
    """Messages that answer another: who answered whom, and after how long."""
    exchanges: DataFrame
    objective_events: DataFrame
    objective_history: DataFrame
    """All events of the objectives that have new ones."""
    records: DataFrame
    findings: DataFrame
    prices: Prices
    empty: frozenset[str] = field(default_factory=frozenset)
    """Names of the frames that have no rows."""
