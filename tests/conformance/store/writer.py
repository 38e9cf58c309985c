"""Test helper that writes to a store as the broker does. To test another store, add one line to `STORES`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.doubles import content
from tests.stores.postgres_server import postgres_store
from tieline.contract import objective as o
from tieline.contract.chain import digest
from tieline.contract.event import (
    Event,
    Fell,
    LogRow,
    Moved,
    ObjectiveChanged,
    Sent,
    Subscribed,
)
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message
from tieline.core.ladder import STATES
from tieline.core.ledger import Ledger, encode_content
from tieline.core.store import (
    DeliveryRoute,
    ObjectiveRow,
    Store,
    StoredState,
)
from tieline.stores.sqlite import SqliteStore

PAGE_BYTES = 1 << 30
"""Limit of bytes for queries in these tests. It is more than any test stores."""

Opener = Callable[[], Store]


def sqlite(folder: Path) -> Opener:
    return lambda: SqliteStore(folder, synchronous="OFF")


def postgres(folder: Path) -> Opener:
    return lambda: postgres_store(folder)


STORES: dict[str, Callable[[Path], Opener]] = {"sqlite": sqlite, "postgres": postgres}
"""Functions that make the opener of a store, by the name of the store."""

PARAMS = [pytest.param(name, marks=pytest.mark.slow if name == "postgres" else ()) for name in sorted(STORES)]
"""The names of the stores, for parametrized tests. Those that need a server are slow."""


_UNBLOCKED = o.Unblocked()


class Writer:
    """Writes to a store in the way of the broker: with a ledger (the end of the log), and with small messages."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.reopen()

    def reopen(self) -> StoredState:
        """Open the store again, and continue the log after its last committed row. Return the stored state."""
        self.store = self._opener()
        return self.restore()

    def restore(self) -> StoredState:
        stored_state = self.store.restore()
        self.ledger = Ledger(stored_state.log_end, stored_state.log_head)
        return stored_state

    def crash(self) -> StoredState:
        """Close the store without a commit, and open it again. Return the stored state."""
        self.store.close()
        return self.reopen()

    def accept(
        self,
        said: Content | str = "@bob",
        route: DeliveryRoute | None = None,
        *,
        sender: str = "ada",
        protocol: str = "hub",
        wire_id: str | None = None,
        at_ms: int = 1000,
        message_id: str | None = None,
    ) -> Message:
        what = content(said) if isinstance(said, str) else said
        route = route or DeliveryRoute([2], [1], [1])
        message = Message(
            id=MessageId(message_id or f"m-{self.ledger.end}"),
            offset=self.ledger.end,
            sender=sender,
            protocol=protocol,
            sent_at_ms=at_ms,
            content=what,
            wire_id=wire_id,
        )
        encoded = encode_content(what)
        event = Sent(
            id=message.id, sender=sender, target=str(what.target), recipients=len(route.keys), digest=digest(encoded)
        )
        self.store.accept(self.ledger.append(event, at_ms), message, encoded, route.pack())
        return message

    def advance(
        self, kind: type[Moved], *ranges: tuple[int, int], number: int = 2, at_ms: int = 2000, **fields: Any
    ) -> None:
        row = self.ledger.append(kind("bob", number, ranges, **fields), at_ms)
        self.store.advance(row, number, STATES[kind], ranges)

    def fall(self, *ranges: tuple[int, int], way: str, after: str, at_ms: int = 2000, number: int = 2) -> None:
        row = self.ledger.append(Fell(member="bob", number=number, keys=ranges, way=way, after=after), at_ms)
        self.store.fall(row, number, ranges)

    def change(self, row: ObjectiveRow, what: o.AnyHappening = _UNBLOCKED) -> o.ObjectiveEvent:
        event = o.ObjectiveEvent(self.ledger.end, 600, MemberName("ada"), what)
        said = ObjectiveChanged(
            id=row.objective.id,
            kind="unblocked",
            by="ada",
            status=row.objective.status,
            assignee="bob",
            digest="",
            state="",
        )
        self.store.objectives.change(self.ledger.append(said, 600), row, event)
        return event

    def record(self, event: Event | None = None) -> LogRow:
        row = self.ledger.append(event or Subscribed("ada", "dev"), 500)
        self.store.record(row)
        return row
