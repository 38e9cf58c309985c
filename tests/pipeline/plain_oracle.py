"""The expected contents of the gold tables, computed a third time: in plain Python, with dicts, loops and sorting.

This module shares no code with the pipeline or with the oracle in DuckDB. It decodes the events itself, but reads them
with the store's own reader, because the log of a real hub is packed. Of the audit chain it sees only missing rows.
"""

import itertools
import json
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pipeline.oracle import ordered
from tieline.stores.sqlite.pages import LogPages

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
PAGE = 5000
TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
PRICES = {
    "claude-opus": (5000, 25000, 500, 6250), "claude-sonnet": (3000, 15000, 300, 3750),
    "claude-haiku": (1000, 5000, 100, 1250), "gpt-5": (1750, 14000, 175, 1750), "gpt-5-mini": (250, 2000, 25, 250),
    "gemini-3-pro": (2000, 12000, 200, 2000),
}  # fmt: skip
RUNGS = ("offered", "seen", "acked", "expired", "dead")
ENDS = ("acked", "expired", "dead", "muted")
STATES = {
    "deliver": "offered", "see": "seen", "ack": "acked", "claim": "acked", "expire": "expired", "die": "dead",
}  # fmt: skip

Fact = dict[str, Any]
Row = tuple[Any, ...]


def floor(time_ms: int, width_ms: int) -> int:
    return time_ms - time_ms % width_ms


def rank(values: Sequence[int], share: float) -> int | None:
    """Return the nearest-rank percentile of sorted numbers, or `None` if there are none."""
    return values[max(1, math.ceil(len(values) * share)) - 1] if values else None


def words(text: str, ends: str) -> str:
    """Return the text before the first match of the pattern `ends`, at most sixty characters."""
    return re.split(ends, text)[0][:60].strip()


def grouped(facts: Iterable[Fact], key: Callable[[Fact], Row]) -> dict[Row, list[Fact]]:
    found: dict[Row, list[Fact]] = defaultdict(list)
    for fact in facts:
        found[key(fact)].append(fact)
    return found


class PlainOracle:
    """Computes the expected rows of the gold tables (sums) for one home."""

    def __init__(self, home: Path) -> None:
        pages = LogPages(home)
        self._names: Mapping[int, str] = pages.names()
        # In the order of the log.
        self._messages: list[Fact] = []
        self._deliveries: dict[tuple[int, int], Fact] = {}
        self._happenings: list[Fact] = []
        self._records: list[Fact] = []
        # Rows that follow a gap in the offsets.
        self._breaks: list[Row] = []
        end = 0
        for first in range(0, pages.end("main"), PAGE):
            page = pages.main(first, first + PAGE)
            stored = {row[0]: row for row in page.messages}
            changes = {row[0]: json.loads(row[3]) for row in page.happenings}
            for offset, at_ms, event, _hash in page.rows:
                if offset != end:
                    self._breaks.append((offset, at_ms))
                end = offset + 1
                self._take(offset, at_ms, json.loads(event), stored.get(offset), changes.get(offset, {}))
        self._calls = self._exchanges(
            row for first in range(0, pages.end("activity"), PAGE) for row in pages.activity(first, first + PAGE)
        )
        pages.close()
        self._steps = [step for delivery in self._deliveries.values() for step in self._reached(delivery)]
        self._answers = self._replies()

    def rows(self, table: str) -> list[Row]:
        """Return the expected rows of a gold table, sorted."""
        return ordered(list(getattr(self, f"_{table}_rows")()))

    # Facts.

    def _take(self, offset: int, at_ms: int, event: Fact, stored: Row | None, change: Fact) -> None:
        kind = event["event"]
        if kind == "send":
            self._send(offset, at_ms, event, stored)
        elif kind in STATES:
            self._move(offset, at_ms, event)
        elif kind == "objective":
            fact = {name: event.get(name) for name in ("id", "status", "assignee")}
            self._happenings.append({**fact, "offset": offset, "at": at_ms, "title": change.get("title")})
        else:
            self._records.append({**event, "at": at_ms})

    def _send(self, offset: int, at_ms: int, event: Fact, stored: Row | None) -> None:
        said = json.loads(stored[12]) if stored else event
        route = array("q", stored[13]) if stored else array("q")
        count = len(route) // 3
        sender, target, thread = event["sender"], event["target"], said.get("thread")
        place = "+".join(sorted(("@" + sender, target))) if target.startswith("@") else target
        self._messages.append(
            {
                "offset": offset, "at": at_ms, "id": event["id"], "sender": sender,
                "conversation": f"thread:{thread}" if thread else place, "reply_to": said.get("reply_to"),
                "hops": stored[9] if stored else event.get("hops", 0),
                "recipients": count if stored else event.get("recipients", 0),
                "signature": stored[11] if stored else None,
            }
        )  # fmt: skip
        for number, key in zip(route[:count], route[count : 2 * count], strict=True):
            self._deliveries[number, key] = {
                "number": number, "key": key, "recipient": self._names.get(number, f"member-{number}"),
                "sender": sender, "sent": at_ms, "priority": said.get("priority") or "normal",
            }  # fmt: skip

    def _move(self, offset: int, at_ms: int, event: Fact) -> None:
        del offset  # rows come in its order, so the first one is the one that counts
        state = STATES[event["event"]]
        for first, last in event["keys"]:
            for key in range(first, last + 1):
                delivery = self._deliveries.get((event["number"], key), {})
                if state not in delivery:
                    delivery[f"{state}_by"] = event.get("protocol") or ""
                if state in ("expired", "dead"):
                    delivery.setdefault("cause", words(event.get("evidence") or "", " by |[:;,(]"))
                if event.get("mute") and state == "offered":
                    delivery["muted"] = min(at_ms, delivery.get("muted", at_ms))
                # A clock that goes back is possible, so the first row need not have the first time.
                delivery[state] = min(at_ms, delivery.get(state, at_ms))

    @staticmethod
    def _reached(delivery: Fact) -> Iterable[Fact]:
        common = {name: delivery[name] for name in ("recipient", "priority", "sent")}
        for rung in RUNGS:
            if rung in delivery:
                protocol = delivery[f"{rung}_by"] if rung in ("offered", "acked") else ""
                cause = delivery.get("cause", "") if rung in ("expired", "dead") else ""
                yield {**common, "rung": rung, "at": delivery[rung], "protocol": protocol, "cause": cause}
        left = [delivery[name] for name in ENDS if name in delivery]
        if left:
            yield {**common, "rung": "left", "at": min(left)}

    def _replies(self) -> list[Fact]:
        by_id = {message["id"]: message for message in self._messages}
        found = []
        for message in self._messages:
            asked = by_id.get(message["reply_to"])
            if asked is not None and asked["sender"] != message["sender"]:
                after = message["at"] - asked["at"]
                found.append({"by": message["sender"], "to": asked["sender"], "at": message["at"], "after": after,
                              "offset": message["offset"], "asked": asked})  # fmt: skip
        return found

    def _exchanges(self, rows: Iterable[Row]) -> list[Fact]:
        """Return the model calls. An action that was reported twice is one."""
        known: set[Row] = set()
        focus: dict[int, str] = {}
        found = []
        for offset, at_ms, number, kind, ts_ms, raw in rows:
            happened = ts_ms if ts_ms is not None and at_ms - 366 * DAY <= ts_ms <= at_ms + DAY else at_ms
            event = json.loads(raw)
            if kind in ("objective_open", "objective_close"):
                focus[number] = event.get("objectiveId") or "" if kind == "objective_open" else ""
            if (number, happened, raw) in known:
                continue
            known.add((number, happened, raw))
            if kind == "llm_exchange":
                fact = self._call(event, focus.get(number, ""))
                member = self._names.get(number, f"member-{number}")
                found.append({**fact, "offset": offset, "member": member, "at": happened,
                              "late": at_ms - happened > DAY})  # fmt: skip
        return found

    @staticmethod
    def _call(event: Fact, focus: str) -> Fact:
        entry = event.get("entry") or {}
        response = entry.get("response") or {}
        usage = response.get("usage") or {}
        model = response.get("model") or (entry.get("request") or {}).get("model") or ""
        counts = [min(max(usage.get(name) or 0, 0), 10**8) for name in TOKENS]
        prices = [PRICES[prefix] for prefix in sorted(PRICES, key=len) if model.startswith(prefix)]
        status, error = response.get("status"), response.get("error")
        named = event.get("objectiveId")
        return {
            "model": model, "tokens": counts, "objective": focus if named is None else named,
            "cost": sum(map(math.prod, zip(counts, prices[-1], strict=True))) if prices else None,
            "lasted": event["duration"] if 0 <= event.get("duration", -1) <= 10**10 else 0,
            "failed": error is not None or (200 if status is None else status) >= 400,
            "error": words(error if error is not None else f"status {status}", "[:;,(]"),
        }  # fmt: skip

    # Tables.

    @staticmethod
    def _counted(steps: Sequence[Fact]) -> Row:
        """Return the numbers of steps by rung, of late ones, and the sorted times until two rungs."""
        after = {rung: sorted(one["at"] - one["sent"] for one in steps if one["rung"] == rung) for rung in RUNGS}
        late = sum(one["at"] - one["sent"] > DAY for one in steps)
        return (*(len(after[rung]) for rung in RUNGS), late, after["offered"], after["acked"])

    def _rungs(self) -> list[Fact]:
        return [step for step in self._steps if step["rung"] != "left"]

    def _latency_rows(self) -> Iterable[Row]:
        minutes = grouped(self._rungs(), lambda one: (one["recipient"], one["protocol"], floor(one["at"], MINUTE)))
        for key, steps in minutes.items():
            counted = self._counted(steps)
            yield (*key, *counted, rank(counted[-1], 0.5), rank(counted[-1], 0.99))

    def _service_rows(self) -> Iterable[Row]:
        for key, steps in grouped(
            self._rungs(), lambda one: (floor(one["at"], DAY), one["recipient"], one["protocol"], one["priority"])
        ).items():
            yield (*key, *self._counted(steps))

    def _backlog_rows(self) -> Iterable[Row]:
        moves: dict[Row, list[int]] = defaultdict(lambda: [0, 0])
        for delivery in self._deliveries.values():
            moves[delivery["recipient"], floor(delivery["sent"], MINUTE)][0] += 1
        for step in self._steps:
            if step["rung"] == "left":
                moves[step["recipient"], floor(step["at"], MINUTE)][1] += 1
        return ((*key, *counts) for key, counts in moves.items())

    def _edges_rows(self) -> Iterable[Row]:
        sent = grouped(
            self._deliveries.values(), lambda one: (floor(one["sent"], DAY), one["sender"], one["recipient"])
        )
        told = grouped(self._answers, lambda one: (floor(one["at"], DAY), one["by"], one["to"]))
        for key in {*sent, *told}:
            times = sorted(one["after"] for one in told.get(key, ()))
            yield (*key, len(sent.get(key, ())), len(times), times, rank(times, 0.5))

    def _responses_rows(self) -> Iterable[Row]:
        for (offset,), replies in grouped(self._answers, lambda one: (one["asked"]["offset"],)).items():
            first, asked = min(replies, key=lambda one: one["offset"]), replies[0]["asked"]
            yield (
                floor(asked["at"], DAY), offset, asked["sender"], first["by"], min(one["after"] for one in replies),
                len(replies), -first["offset"],
            )  # fmt: skip

    def _threads_rows(self) -> Iterable[Row]:
        for key, sent in grouped(self._messages, lambda one: (floor(one["at"], DAY), one["conversation"])).items():
            times, members = [one["at"] for one in sent], sorted({one["sender"] for one in sent})
            last = sent[-1]
            yield (
                *key, len(sent), min(times), max(times), members, last["sender"], last["offset"], len(members) == 1
            )  # fmt: skip

    def _loops_rows(self) -> Iterable[Row]:
        looped = grouped(
            (one for one in self._messages if one["hops"] >= 16),
            lambda one: (floor(one["at"], DAY), one["conversation"]),
        )
        paused = grouped(
            (one for one in self._records if one["event"] == "pause" and one.get("by") is None),
            lambda one: (floor(one["at"], DAY), one.get("thread")),
        )
        for key in {*looped, *paused}:
            sent, pauses = looped.get(key, []), paused.get(key, [])
            times = [one["at"] for one in (*sent, *pauses)]
            hops = max((one["hops"] for one in sent), default=0)
            yield (
                *key, len(sent), hops, sorted({one["sender"] for one in sent}), len(pauses), min(times), max(times)
            )  # fmt: skip

    def _storms_rows(self) -> Iterable[Row]:
        for key, sent in grouped(self._messages, lambda one: (floor(one["at"], MINUTE), one["sender"])).items():
            yield (*key, len(sent), sum(one["recipients"] for one in sent), len(sent) >= 60)

    def _inboxes_rows(self) -> Iterable[Row]:
        for key, got in grouped(
            self._deliveries.values(), lambda one: (floor(one["sent"], DAY), one["number"])
        ).items():
            yield (*key, min(one["key"] for one in got), max(one["key"] for one in got))

    def _findings_rows(self) -> Iterable[Row]:
        for offset, at_ms in self._breaks:
            what = f"row {offset} does not follow from the row before it"
            yield floor(at_ms, DAY), offset, "chain", "", at_ms, what
        for one in self._messages:
            if one["signature"] in ("failed", "misnamed"):
                what = f"the signature of {one['id']} is {one['signature']}"
                yield floor(one["at"], DAY), one["offset"], "signature", one["sender"], one["at"], what

    def _failures_rows(self) -> Iterable[Row]:
        counts: dict[Row, int] = defaultdict(int)
        for step in self._steps:
            if step["rung"] in ("expired", "dead"):
                counts[floor(step["at"], DAY), step["rung"], step["recipient"], step["cause"]] += 1
        for one in self._refusals():
            counts[floor(one["at"], DAY), "refused", one["who"], one.get("code") or ""] += one["count"]
        for call in self._calls:
            if call["failed"]:
                counts[floor(call["at"], DAY), "call", call["member"], call["error"]] += 1
        return ((*key, count) for key, count in counts.items())

    def _refusals(self) -> list[Fact]:
        refused = [one for one in self._records if one["event"] == "refuse"]
        return [{**one, "count": one.get("count", 1), "who": one.get("speaker") or ""} for one in refused]

    def _llm_rows(self) -> Iterable[Row]:
        for key, calls in grouped(
            self._calls, lambda one: (floor(one["at"], HOUR), one["member"], one["model"], one["objective"])
        ).items():
            unpriced = sum(one["cost"] is None for one in calls)
            yield (
                *key, len(calls), sum(one["failed"] for one in calls), sum(one["late"] for one in calls), unpriced,
                *(sum(column) for column in zip(*(one["tokens"] for one in calls), strict=True)),
                sum(one["lasted"] for one in calls), sum(one["cost"] or 0 for one in calls),
            )  # fmt: skip

    def _objectives_rows(self) -> Iterable[Row]:
        lives = grouped(self._happenings, lambda one: (one["id"],))
        spent = grouped((one for one in self._calls if one["objective"]), lambda one: (one["objective"],))
        for key in {*lives, *spent}:
            calls = spent.get(key, [])
            costs = (len(calls), *(sum(one["tokens"][at] for one in calls) for at in (0, 1)),
                     sum(one["cost"] or 0 for one in calls))  # fmt: skip
            life = self._life(lives[key]) if key in lives else (None,) * 9
            yield (*key, *life, *costs, lives[key][-1]["offset"] if key in lives else None)

    @staticmethod
    def _life(steps: Sequence[Fact]) -> Row:
        created, last = min(one["at"] for one in steps), steps[-1]
        ended = [one["at"] for one in steps if one["status"] in ("done", "cancelled")]
        titles = [one["title"] for one in steps if one["title"] is not None]
        blocked = sum(
            after["at"] - one["at"]
            for one, after in itertools.pairwise(steps)
            if one["status"] == "blocked"
        )  # fmt: skip
        since = last["at"] if last["status"] == "blocked" else None
        finished = min(ended) if ended else None
        cycle = finished - created if finished is not None else None
        title = titles[-1] if titles else None
        return (title, last["assignee"], last["status"], created, finished, cycle, blocked, since, len(steps))

    def _members_rows(self) -> Iterable[Row]:
        found: dict[Row, dict[str, Any]] = defaultdict(lambda: defaultdict(int))

        def count(member: str, at: int, *, heard: bool = False, **counts: int) -> None:
            row = found[floor(at, DAY), member]
            for name, number in counts.items():
                row[name] += number
            row["first"], row["last"] = min(row.get("first", at), at), max(row.get("last", at), at)
            if heard:
                row["heard"] = max(row.get("heard", at), at)

        for one in self._messages:
            count(one["sender"], one["at"], heard=True, sent=1)
        for one in self._deliveries.values():
            count(one["recipient"], one["sent"], received=1)
        for one in self._steps:
            if one["rung"] in ("offered", "seen", "acked", "left"):
                count(one["recipient"], one["at"], heard=one["rung"] in ("seen", "acked"), **{one["rung"]: 1})
        for one in self._refusals():
            if one["who"]:
                count(one["who"], one["at"], refused=one["count"])
        for one in self._calls:
            used = {"asked": one["tokens"][0], "told": one["tokens"][1], "cost": one["cost"] or 0}
            count(one["member"], one["at"], heard=True, calls=1, **used)
        sums = ("sent", "received", "offered", "acked", "left", "refused", "calls", "asked", "told", "cost")
        for key, row in found.items():
            yield (*key, *(row[name] for name in sums), row["first"], row["last"], row.get("heard"))
