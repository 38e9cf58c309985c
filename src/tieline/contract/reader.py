"""Readers of the logs: programs with a name, such as the pipeline. The hub keeps rows that they have not read yet."""

from msgspec import Struct


class Reader(Struct, frozen=True, kw_only=True):
    """Record of one reader (a program with a name), and of its position in one log."""

    name: str
    log: str
    position: int
    """Offset of the next row that the reader will read. The reader has read all earlier rows."""
    by: str
    """Name of the member, or `operator`, that set the position last."""
    at_ms: int
    """Time at which the position was set."""
    missed: int = 0
    """Number of rows (in the main log: messages) that retention deleted before this reader read them."""
    missed_first: int | None = None
    """Offset of the first row that retention deleted before this reader read it; `None` if there is none."""
    missed_last: int | None = None
    warned: bool = False
    """True if people were told that retention will soon delete rows that this reader has not read."""


class LogState(Struct, frozen=True, kw_only=True):
    """State of one log: its identity (`epoch`), and the offsets that can be read."""

    log: str
    epoch: str
    """Random id of the log, made together with the log. A new log has a new epoch, so a reader notices that its offsets
    mean other rows. A copy of the log has the same epoch."""
    kept_from: int
    """The hub has deleted nothing at or after this offset. In the main log it deletes only messages, never rows."""
    end: int
    """The offset that the next row will have."""
