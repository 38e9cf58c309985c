"""Readers of the logs: programs with a name, such as the pipeline, for which the hub keeps what they have not read."""

from msgspec import Struct


class Reader(Struct, frozen=True, kw_only=True):
    """The position of one reader in one log."""

    name: str
    log: str
    position: int
    """Offset of the next row that the reader will read. It has read all rows before it."""
    by: str
    """Name of the member, or `operator`, that set the position last."""
    at_ms: int
    """Time at which the position was set."""
    missed: int = 0
    """Number of rows (in the main log: messages) that retention deleted before this reader read them."""
    missed_first: int | None = None
    """Offset of the first of those rows; `None` if there are none."""
    missed_last: int | None = None
    warned: bool = False
    """True if people were told that retention will soon stop waiting for this reader."""


class LogState(Struct, frozen=True, kw_only=True):
    """One log: its identity, and the offsets that can be read."""

    log: str
    epoch: str
    """Random id of the log. A hub that is restored from a backup gets a new one, because its offsets are given anew."""
    kept_from: int
    """Retention has deleted nothing from this offset on. Of the main log it deletes messages and never rows."""
    end: int
    """The offset that the next row will have."""
