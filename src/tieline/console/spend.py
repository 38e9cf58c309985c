"""Spend: tokens and cost of model calls, per member and model, since a time within the last two days: `/api/spend`.

Used by: the console's web page, for the cost of the present day. Uses: the stored activity that the caller may read.
The pipeline's report is exact, but comes later; this sum is there at once. The token counts of calls that were read
stay in memory. So a later request reads only new calls, and those of the last minutes again, because agents report
late.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time

import msgspec
from msgspec import Struct, field
from starlette.types import Scope

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.permission import ACTIVITY_READ
from tieline.wire.http import Bodies, foreign
from tieline.wire.prices import PRICES_FILE, Prices, Tokens, cost_of, read_prices
from tieline.wire.route import Call, Refused, Route, no, require
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

PATH = "/api/spend"
_EXCHANGE = "llm_exchange"
_KEPT_MS = 48 * 60 * 60 * 1000
"""Calls of the last so many milliseconds are remembered: the present day of any time zone."""
_LATE_MS = 10 * 60 * 1000
"""A call that is reported within this time after it ended is never missed."""
_PAGE_ROWS = 500
_TOKENS_MAX = 2**40
"""Largest number of tokens of one call that counts. A program may report anything."""


class SpendQuery(Struct, frozen=True):
    """Query of `GET /api/spend`: calls from this time on count, at most those of the last 48 hours."""

    from_ms: int


class SpendRow(Struct, frozen=True):
    """Model calls of one member with one model, their tokens, and their cost; `None` if the model has no price.

    `input_tokens` includes tokens that were read from a cache or written to one.
    """

    member: str
    model: str
    exchanges: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class SpendView(Struct, frozen=True):
    """Answer to `GET /api/spend`: the spend of all members, sorted by member and model."""

    spend: list[SpendRow]


class _Usage(Struct, rename="camel"):
    input_tokens: float | None = 0
    output_tokens: float | None = 0
    cache_read_input_tokens: float | None = 0
    cache_creation_input_tokens: float | None = 0


class _Said(Struct):
    model: str | None = None
    usage: _Usage | None = None


class _Entry(Struct):
    request: _Said | None = None
    response: _Said | None = None


class _Event(Struct):
    entry: _Entry = field(default_factory=_Entry)


class _Exchange(Struct, frozen=True):
    ts_ms: int
    model: str
    tokens: Tokens


_decoder = msgspec.json.Decoder(_Event)


class Spend(RouteApp):
    """HTTP application that sums up the model calls of the present day."""

    def __init__(self, hub: Hub, folder: Path, unfinished: Unfinished) -> None:
        self._prices_path = folder / "lake" / PRICES_FILE
        # By member: its model calls by their offsets.
        self._known: dict[MemberName, dict[int, _Exchange]] = {}
        # One request reads at a time, so that two do not read the same.
        self._reading = asyncio.Lock()
        table = (Route("GET", PATH, self.spend),)
        super().__init__(hub, Sessions(hub, "console"), table, Bodies(unfinished), check=_check)

    async def spend(self, call: Call, query: SpendQuery) -> SpendView:
        """Sum up the model calls of all members since a time, by member and model. Needs activity.read."""
        await require(call, ACTIVITY_READ)
        now_ms = int(time() * 1000)
        oldest_ms = now_ms - _KEPT_MS
        async with self._reading:
            roster = await call.get(c.ListMembers, r.Roster)
            names = [presence.member.name for presence in roster.members]
            self._known = {name: self._known.get(name, {}) for name in names}
            for name in names:
                await self._read(call, name, oldest_ms, now_ms)
        prices = await asyncio.to_thread(self._prices)
        since_ms = max(query.from_ms, oldest_ms)
        rows = [row for name in names for row in _summed(name, self._known[name].values(), since_ms, prices)]
        return SpendView(rows)

    async def _read(self, call: Call, name: MemberName, oldest_ms: int, now_ms: int) -> None:
        """Read the calls of a member that are not known yet, and forget those that are too old."""
        known = {offset: one for offset, one in self._known[name].items() if one.ts_ms >= oldest_ms}
        # A program with a wrong clock may report a call of the future.
        newest_ms = max((one.ts_ms for one in known.values() if one.ts_ms <= now_ms), default=0)
        from_ms, to_ms = max(oldest_ms, newest_ms - _LATE_MS), None
        while page := await self._page(call, name, from_ms, to_ms):
            known |= await asyncio.to_thread(_decoded, [row for row in page if row.offset not in known])
            # Pages are newest first, and the next one begins with what has the same time.
            last_ms = page[-1].ts_ms
            to_ms = last_ms - 1 if last_ms == to_ms else last_ms
        self._known[name] = known

    async def _page(self, call: Call, name: MemberName, from_ms: int, to_ms: int | None) -> Sequence[ActivityRow]:
        def make(session: SessionId) -> c.ReadActivity:
            return c.ReadActivity(
                session, member=name, from_ms=from_ms, to_ms=to_ms, kinds=(_EXCHANGE,), limit=_PAGE_ROWS
            )

        return (await call.get(make, r.Activity, name)).rows

    def _prices(self) -> Prices:
        # A file that is not valid is an error of the pipeline, which says so. The page shows list prices then.
        with suppress(OSError, ValueError, TypeError, AttributeError):
            return read_prices(self._prices_path.read_bytes())
        return read_prices(None)


def _decoded(rows: Sequence[ActivityRow]) -> dict[int, _Exchange]:
    return {row.offset: _exchange(row) for row in rows}


def _exchange(row: ActivityRow) -> _Exchange:
    """Return the model and the tokens of a call. A program may report anything, so each part may be missing."""
    try:
        entry = _decoder.decode(row.event).entry
    except msgspec.DecodeError:
        return _Exchange(row.ts_ms, "", (0, 0, 0, 0))
    asked, told = entry.request or _Said(), entry.response or _Said()
    used = told.usage or _Usage()
    counts = (used.input_tokens, used.output_tokens, used.cache_read_input_tokens, used.cache_creation_input_tokens)
    asked_for, got, read, written = (int(min(max(count or 0, 0), _TOKENS_MAX)) for count in counts)
    return _Exchange(row.ts_ms, told.model or asked.model or "", (asked_for, got, read, written))


def _summed(name: str, exchanges: Iterable[_Exchange], since_ms: int, prices: Prices) -> list[SpendRow]:
    by_model: dict[str, list[_Exchange]] = {}
    for one in exchanges:
        if one.ts_ms >= since_ms:
            by_model.setdefault(one.model, []).append(one)
    return [_row(name, model, found, prices) for model, found in sorted(by_model.items())]


def _row(name: str, model: str, exchanges: list[_Exchange], prices: Prices) -> SpendRow:
    asked, told, read, written = (sum(one.tokens[place] for one in exchanges) for place in range(4))
    cost = cost_of(model, (asked, told, read, written), prices)
    return SpendRow(
        name, model, len(exchanges), asked + read + written, told, None if cost is None else cost / 1_000_000_000
    )


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(no(403, "this request comes from a page of another site"))
