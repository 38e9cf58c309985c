"""Tests of the tables after a commit: unique keys, and sums that must be the same in two tables.

Used by: a run, after each batch, and `tieline pipeline tables --check`. Uses: the tables, read with Arrow. Only the
files and days that changed since the last time are read, and older files that may have rows of the same offsets. The
results are in the lake, for the report and its alerts.
"""

import msgspec
import pyarrow.compute as pc

from tieline.pipeline.arrow_tables import DAY_MS, ArrowTables, Window
from tieline.pipeline.catalogue import BALANCES, BRONZE, GOLD, KEYS, SILVER, TIMES
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.report_traffic import day_start
from tieline.wire.report_parts import CHECKS_FILE, Checked, FailedCheck


def read_checked(lake: Lake) -> Checked:
    """Return the results of the last tests of the tables."""
    told = lake.storage.read(CHECKS_FILE)
    return msgspec.json.decode(told, type=Checked) if told else Checked()


def check_tables(lake: Lake, *, everything: bool = False) -> Checked:
    """Test what was committed since the last time. Store the results in the lake and return them.

    A table whose test failed the last time is tested completely. With `everything`, all tables are tested completely.
    """
    before, head = read_checked(lake), lake.head()
    if not head.number or (before.commit == head.number and not everything):
        return before
    again = {one.table for one in before.failed}
    tests = _Tests(ArrowTables(lake, head), 0 if everything else before.at_ms, again)
    passed = dict(before.passed)
    failed: list[FailedCheck] = []
    for table in head.versions:
        wrong = tests.of(table) if table in KEYS else []
        failed += [FailedCheck(table, check, what, head.number, head.at_ms) for check, what in wrong]
        if not wrong:
            passed[table] = head.number
    found = Checked(head.number, head.at_ms, passed, failed)
    lake.storage.write(CHECKS_FILE, msgspec.json.encode(found))
    return found


class _Tests:
    """The tests of the tables on files that were written after `since_ms`, or on all files of the tables in `whole`."""

    def __init__(self, tables: ArrowTables, since_ms: int, whole: set[str]) -> None:
        self._tables = tables
        self._since_ms = since_ms
        self._whole = whole

    def of(self, table: str) -> list[tuple[str, str]]:
        """Run the tests of a table. Return a pair of texts for each failed test: the test, and what is wrong."""
        try:
            return [*self._unique(table), *self._balanced(table), *self._waiting(table)]
        except LakeError as error:
            return [("readable", str(error))]

    def _since(self, table: str) -> int:
        return 0 if table in self._whole else self._since_ms

    def _unique(self, table: str) -> list[tuple[str, str]]:
        keys, since = list(KEYS[table]), self._since(table)
        if table in SILVER or table == BRONZE or TIMES[table] is None:
            # A table without days is small.
            rows = [self._tables.written(table, keys, since if TIMES[table] is not None else 0)]
        else:
            days = (day_start(day) for day in self._tables.changed(table, since))
            time = TIMES[table]
            rows = [self._tables.read(table, keys, Window(day, day + DAY_MS), time=time) for day in days]
        found = [one for one in rows if one.num_rows and one.group_by(keys).aggregate([]).num_rows < one.num_rows]
        name = f"unique: {', '.join(keys)}"
        return [(name, f"rows of {table} have the same {', '.join(keys)}")] if found else []

    def _balanced(self, table: str) -> list[tuple[str, str]]:
        found = []
        for one, column, other, counted in BALANCES:
            if one != table:
                continue
            for day in sorted(
                {*self._tables.changed(one, self._since(one)), *self._tables.changed(other, self._since(one))}
            ):
                sums = self._sum(one, column, day), self._sum(other, counted, day)
                if sums[0] != sums[1]:
                    what = f"on {day} {one}.{column} is {sums[0]:,} and {other}.{counted} is {sums[1]:,}"
                    found.append((f"by day: sum of {one}.{column} = sum of {other}.{counted}", what))
        return found

    def _sum(self, table: str, column: str, day: str) -> int:
        start = day_start(day)
        rows = self._tables.read(table, [column], Window(start, start + DAY_MS), time=GOLD[table].part)
        return int(pc.sum(rows[column]).as_py() or 0) if rows.num_rows else 0

    def _waiting(self, table: str) -> list[tuple[str, str]]:
        if table != "members" or not self._tables.changed(table, self._since(table)):
            return []
        rows = self._tables.read(table, ["member", "received", "departed"])
        name, wrong = "received - departed = deliveries that wait, for each member at least 0", []
        sums = rows.group_by("member").aggregate([("received", "sum"), ("departed", "sum")])
        below = sums.filter(pc.less(sums["received_sum"], sums["departed_sum"]))
        if below.num_rows:
            wrong.append((name, f"more left than arrived for {below['member'][0].as_py()}"))
        total, began = int(pc.sum(rows["received"]).as_py() or 0), self._tables.rows("deliveries")
        if total != began:
            wrong.append((name, f"members received {total:,} deliveries, and there are {began:,}"))
        return wrong
