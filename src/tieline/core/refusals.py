"""Refusals in the log: one row for many of a kind, because the chain is kept for ever and a refusal is cheap."""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.event import Refused
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_KINDS_MAX = 10_000
"""Kinds remembered at once; past it all are forgotten, and each may write a row again."""
_SPEAKER_MAX = 140
"""A speaker that was refused may call itself anything."""


class Refusals:
    """What was refused lately, by kind."""

    __slots__ = ("_limits", "_recent")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Kind to the time of its last row and how many came since.
        self._recent: dict[tuple[str, str, str, str], tuple[int, int]] = {}

    def record(self, broker: "Broker", command: c.Command, code: Code) -> None:
        """Put a refused command into the log, under whoever its session speaks for."""
        session = broker.directory.sessions.get(getattr(command, "session", SessionId("")))
        if session is not None:
            speaker, protocol = session.speaker, session.protocol
        else:
            speaker, protocol = str(getattr(command, "member", "") or ""), str(getattr(command, "protocol", ""))
        what = command.what if isinstance(command, c.RecordRefusal) else type(command).__name__
        row = self.note(code, speaker, protocol, what, broker.now_ms)
        if row is not None:
            broker.record(row, urgent=False)

    def note(self, code: str, speaker: str, protocol: str, what: str, now_ms: int) -> Refused | None:
        """The row for a refusal, or `None` when it is counted into a later one."""
        kind = (code, speaker[:_SPEAKER_MAX], protocol[:_SPEAKER_MAX], what)
        at_ms, since = self._recent.get(kind, (None, 0))
        if at_ms is not None and now_ms - at_ms < self._limits.refusal_row_ms:
            self._recent[kind] = (at_ms, since + 1)
            return None
        if len(self._recent) >= _KINDS_MAX:
            self._recent.clear()
        self._recent[kind] = (now_ms, 0)
        return Refused(*kind, count=since + 1)
