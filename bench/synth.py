"""The generator: a home with the log of a busy team, with known answers, for tests and benchmarks.

`python -m bench.synth --events N --seed S --out HOME` makes one. The same seed makes the same log. Its audit chain is
valid, so that every check of a real home also works on this one. The log contains loops, storms, members that
acknowledge many deliveries at once or a day late, failed signatures, and exchanges reported twice or late.
"""

import argparse
import gc
import heapq
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from bench.home_writer import HomeWriter, pack_route
from bench.synth_activity import ActivityMaker
from tieline.contract.chain import seal, seal_stored
from tieline.pipeline.signatures import signing
from tieline.protocols import protocols

START_MS = 1_767_603_600_000
"""Start of the log: 2026-01-05, nine o'clock UTC."""
STORM_MESSAGES = 60
"""So many messages of one sender in one minute are a storm."""
ANSWERS_FILE = "answers.json"

_CHUNK = 20_000
"""Messages that are generated at a time."""
_NATIVE = "tieline"
_CHANNEL_SIZE = 8
_ACTIVITY_SHARE = 0.1
_ROWS_PER_MESSAGE = 4.1
"""Average number of rows in the main log per message, with the steps of its deliveries."""
_MESSAGES_PER_OBJECTIVE = 1500
_LATE_MS = 26 * 3_600_000
_LATE_MANY, _LATE_ALONE, _MESSAGES_BETWEEN = 200, 5, 80
_LOOP_LENGTH = 40
_STORM_LENGTH = 150
_TTL_MS = 60_000
_SCOPES = {0: "https://github.com/acme/api.git", 1: "git@github.com:acme/api.git", 2: "acme/web"}
"""Scopes by three bits of a message's id. The first two are one repository; most messages have none."""
_RECENT = 64
_SLEEPER, _LAGGARD = 0, 1
"""The first member reads many messages at once; the second member reads a day late."""

_OFFERED, _SEEN, _ACKED, _EXPIRED, _DEAD = 1, 2, 3, 4, 5
_WORDS = {_OFFERED: "deliver", _SEEN: "see", _ACKED: "ack", _EXPIRED: "expire", _DEAD: "die"}
_EVIDENCE = {_EXPIRED: ',"evidence":"time to live passed"', _DEAD: ',"evidence":"discarded by m: too large"'}


class Answers(Struct):
    """Known facts about a log that was generated."""

    events: int = 0
    main: int = 0
    activity: int = 0
    messages: int = 0
    deliveries: int = 0
    states: dict[str, int] = {}
    """Number of deliveries by the rung that they reached last."""
    late_acks: int = 0
    failed_signatures: int = 0
    loops: list[str] = []
    """Conversations in which agents looped."""
    storms: list[tuple[str, int]] = []
    """Sender and minute, in milliseconds."""
    objectives: dict[str, int] = {}
    """Number of objectives by status."""
    counts: dict[str, int] = {}
    """Counts of activity; see `ActivityMaker.counts`."""
    head: str = ""


class _Wires(Struct, frozen=True):
    """The protocols that members use."""

    names: tuple[str, ...]
    """The hub's own protocol, then the others, and at the end the one without acknowledgements."""
    ackless: str
    """A protocol without acknowledgements, or empty: its members never confirm a delivery."""
    signing: frozenset[str]

    @classmethod
    def declared(cls) -> "_Wires":
        """The protocols that are registered."""
        ackless = max((protocol.name for protocol in protocols() if not protocol.puppet().acknowledges), default="")
        names = sorted(
            (protocol.name for protocol in protocols()), key=lambda name: (name != ackless, name), reverse=True
        )
        return cls((_NATIVE, *names), ackless, frozenset(signing()))


class _Plan(Struct, frozen=True, gc=False):
    """A message to send; without recipients, the message answers a recent one."""

    sender: int
    recipients: tuple[int, ...] = ()
    target: str = ""
    thread: str | None = None
    hops: int = 0
    soon: bool = False
    """True if the message follows the one before at once."""


class Generator:
    """Generates one log."""

    def __init__(self, home: Path, events: int, seed: int) -> None:
        self._home = home
        self.answers = Answers()
        self._states: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        # Messages by sender and minute.
        self._pace: Counter[tuple[int, int]] = Counter()
        self._chance = random.Random(seed)
        self._numpy = np.random.default_rng(seed)
        self._messages_left = max(500, int(events * (1 - _ACTIVITY_SHARE) / _ROWS_PER_MESSAGE))
        # A small log also gets a few chunks, because loops and storms are added once per chunk.
        self._chunk_size = min(_CHUNK, max(_LOOP_LENGTH + _STORM_LENGTH, self._messages_left // 4))
        self._activity_per_message = _ACTIVITY_SHARE * _ROWS_PER_MESSAGE / (1 - _ACTIVITY_SHARE)
        size = max(12, min(400, events // 20_000))
        self._names = [f"agent-{number:03d}" for number in range(1, size + 1)]
        # The protocol of each member; the first three have acknowledgements.
        wires = self._wires = _Wires.declared()
        self._protocols = [*wires.names[:3], *(self._chance.choice(wires.names) for _ in range(size - 3))]
        self._rooms = [
            (f"#room-{index}", tuple(sorted(self._chance.sample(range(3, size), min(_CHANNEL_SIZE, size - 3)))))
            for index in range(max(2, size // 10))
        ]
        self._keys = [0] * size
        # The part that all events about a member's deliveries share.
        self._told = [f'"member":"{name}","number":{number},"keys":' for number, name in enumerate(self._names, 1)]
        self._writer = HomeWriter(home, self._names, START_MS)
        self._activity = ActivityMaker(self._writer, self._names, self._chance)
        self._now_ms = START_MS
        # Steps to come: time, rung, recipient, and key of the delivery.
        self._due: list[tuple[int, int, int, int]] = []
        # Keys to acknowledge together (`_heap`), and keys to acknowledge much later (`_late`).
        self._heap: list[int] = []
        self._late: list[int] = []
        # Messages that may be answered: id, sender, recipient, thread.
        self._recent: list[tuple[str, int, int, str | None]] = []

    def run(self, progress: Callable[[int], None] = lambda events: None) -> Answers:
        """Generate the whole log, and write the answers beside it."""
        # There are millions of small values and no cycles; garbage collection would take a fifth of the time.
        collected = gc.isenabled()
        gc.disable()
        try:
            return self._run(progress)
        finally:
            if collected:
                gc.enable()

    def _run(self, progress: Callable[[int], None]) -> Answers:
        for name in self._names:
            self._writer.append(self._now_ms, _event(event="register", member=name, by="synth", what="token member"))
        while self._messages_left > 0:
            count = min(self._chunk_size, self._messages_left)
            self._messages_left -= count
            self._chunk(count)
            self._writer.flush()
            progress(self._writer.end + self._activity.end)
        self._finish()
        answers = self.answers
        answers.main, answers.activity = self._writer.end, self._activity.end
        answers.events = answers.main + answers.activity
        answers.states, answers.objectives = dict(self._states), dict(self._statuses)
        answers.counts = dict(self._activity.counts)
        answers.storms = sorted(
            (self._names[sender], minute * 60_000)
            for (sender, minute), count in self._pace.items()
            if count >= STORM_MESSAGES
        )
        answers.head = self._writer.close()
        (self._home / ANSWERS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(answers)))
        return answers

    def _chunk(self, count: int) -> None:
        start_ms = self._now_ms
        plans = self._plans(count)
        for at_ms, plan in zip(self._times(plans), plans, strict=True):
            self._catch_up(at_ms)
            self._send(at_ms, plan if plan.recipients else self._answer(plan))
        self._activity.fill(start_ms, self._now_ms, int(count * self._activity_per_message))
        for _ in range(max(1, count // _MESSAGES_PER_OBJECTIVE)):
            self._objective()
        if self._heap:
            self._move_range(_OFFERED, _SLEEPER, self._heap)
            self._move_range(_ACKED, _SLEEPER, self._heap)
            self._heap = []

    def _times(self, plans: list[_Plan]) -> list[int]:
        """Times of the messages: in bursts, on average four per minute and agent."""
        count = len(plans)
        pace = np.repeat(self._numpy.choice([0.2, 1.0, 3.0], size=count // 200 + 1), 200)[:count]
        gaps = self._numpy.exponential(15_000 / len(self._names), size=count) * pace
        gaps[[index for index, plan in enumerate(plans) if plan.soon]] = 100
        times: list[int] = (self._now_ms + np.cumsum(gaps).astype(np.int64)).tolist()
        self._now_ms = times[-1] + 1
        return times

    def _plans(self, count: int) -> list[_Plan]:
        size = len(self._names)
        senders = self._numpy.integers(3, size, size=count).tolist()
        others = self._numpy.integers(0, size, size=count).tolist()
        draws = self._numpy.random(size=count).tolist()
        plans = []
        for sender, other, draw in zip(senders, others, draws, strict=True):
            pick = int(draw * 1e6)
            if draw < 0.4:
                plans.append(_Plan(sender))
            elif draw < 0.46:
                room, members = self._rooms[pick % len(self._rooms)]
                plans.append(_Plan(sender, tuple(one for one in members if one != sender), room))
            else:
                recipient = other if other != sender else (other + 1) % size
                thread = f"t-{pick % (count // 4 + 1)}-{self._now_ms}" if draw < 0.7 else None
                plans.append(_Plan(sender, (recipient,), f"@{self._names[recipient]}", thread))
        self._plant(plans)
        return plans

    def _plant(self, plans: list[_Plan]) -> None:
        """Add a loop of two agents, and a storm of one agent."""
        size, serial = len(self._names), len(self.answers.loops)
        if len(plans) <= _LOOP_LENGTH + _STORM_LENGTH:
            return
        place = self._chance.randrange(len(plans) - _LOOP_LENGTH - _STORM_LENGTH)
        pair = (3 + serial % (size - 4), 4 + serial % (size - 4))
        thread = f"loop-{serial}"
        for hop in range(_LOOP_LENGTH):
            sender, recipient = pair if hop % 2 == 0 else pair[::-1]
            plans[place + hop] = _Plan(sender, (recipient,), f"@{self._names[recipient]}", thread, hop, soon=True)
        self.answers.loops.append(f"thread:{thread}")
        for index in range(_STORM_LENGTH):
            recipient = 4 + index % (size - 4)
            plans[place + _LOOP_LENGTH + index] = _Plan(3, (recipient,), f"@{self._names[recipient]}", soon=True)

    def _answer(self, plan: _Plan) -> _Plan:
        if not self._recent:
            recipient = 4 if plan.sender != 4 else 3
            return _Plan(plan.sender, (recipient,), f"@{self._names[recipient]}")
        message_id, asker, answerer, thread = self._recent[int(self._chance.random() * len(self._recent))]
        return _Plan(answerer, (asker,), message_id, thread)

    def _send(self, at_ms: int, plan: _Plan) -> None:
        names, chance = self._names, self._chance
        reply_to = None if plan.target[0] in "@#" else plan.target
        target = plan.target if reply_to is None else f"@{names[plan.recipients[0]]}"
        draw = chance.random()
        protocol = self._protocols[plan.sender]
        signs = protocol in self._wires.signing
        failed = signs and draw < 0.02
        expires = draw > 0.97
        bits = chance.getrandbits(76)
        message_id = f"{at_ms:012x}{0x7000 | bits >> 64:04x}{0x8000000000000000 | bits & (1 << 62) - 1:016x}"
        message_id = "-".join((message_id[:8], message_id[8:12], message_id[12:16], message_id[16:20], message_id[20:]))
        labels = f',"thread":"{plan.thread}"' if plan.thread else ""
        labels += f',"reply_to":"{reply_to}"' if reply_to else ""
        facts = labels + (f',"hops":{plan.hops}' if plan.hops else "")
        labels += f',"ttl_ms":{_TTL_MS}' if expires else ""
        labels += ',"priority":"urgent"' if bits & 31 == 0 else ""
        labels += f',"scope":"{scope}"' if (scope := _SCOPES.get(bits >> 5 & 7)) else ""
        kind = "member" if target[0] == "@" else "channel"
        content = (
            f'{{"target":{{"kind":"{kind}","name":"{target[1:]}"}},"body":"{"done and looking at it " * (bits & 7)}.'
            f'"{labels}}}'
        ).encode()
        keys = []
        for recipient in plan.recipients:
            self._keys[recipient] += 1
            keys.append(self._keys[recipient])
        route = pack_route([recipient + 1 for recipient in plan.recipients], keys, keys)
        signature = ("failed" if failed else "verified") if signs else ""
        stamps = (message_id, names[plan.sender], protocol, 1, at_ms)
        offset = self._writer.append(
            at_ms,
            (
                f'{{"event":"send","id":"{message_id}","sender":"{names[plan.sender]}","target":"{target}",'
                f'"recipients":{len(keys)},"digest":"{seal_stored(content, route, stamps, signature, None)}"{facts}}}'
            ).encode(),
        )
        deadline = at_ms + _TTL_MS if expires else None
        stamped = (offset, message_id, names[plan.sender], protocol, target, at_ms, deadline, plan.hops, reply_to)
        self._writer.keep("message", (*stamped, content, route, signature))
        self.answers.messages += 1
        self._pace[plan.sender, at_ms // 60_000] += 1
        self.answers.deliveries += len(keys)
        self.answers.failed_signatures += failed
        for recipient, key in zip(plan.recipients, keys, strict=True):
            self._plan_delivery(at_ms, recipient, key, expires=expires)
        if len(self._recent) < _RECENT:
            self._recent.append((message_id, plan.sender, plan.recipients[0], plan.thread))
        elif len(plan.recipients) == 1 and plan.recipients[0] > _LAGGARD:
            place = int(draw * _RECENT)
            self._recent[place] = (message_id, plan.sender, plan.recipients[0], plan.thread)

    def _plan_delivery(self, at_ms: int, recipient: int, key: int, *, expires: bool) -> None:
        """Plan the steps of a delivery."""
        if recipient == _SLEEPER:
            self._heap.append(key)
            return
        chance = self._chance
        draw = chance.random()
        if recipient == _LAGGARD:
            if draw < 0.5:
                self._late.append(key)
            else:
                self._states["pending"] += 1
            return
        if draw < 0.03:
            ends = [(_EXPIRED, _TTL_MS)] if expires else []
        elif draw < 0.035:
            ends = [(_DEAD, 50)]
        else:
            offered = 1 + int(-30 * math.log(1 - chance.random()))
            ends = [(_OFFERED, offered)]
            if self._protocols[recipient] != self._wires.ackless:
                acked = offered + int(-900 * math.log(1 - chance.random()))
                if draw > 0.8 and acked > offered:
                    ends.append((_SEEN, acked - 1))
                ends.append((_ACKED, acked))
            elif draw > 0.9:
                # A reply acknowledges the message, long after a delivery without an acknowledgement.
                ends.append((_ACKED, offered + int(-60_000 * math.log(1 - chance.random()))))
        for state, after in ends:
            heapq.heappush(self._due, (at_ms + after, state, recipient, key))
        self._states[_WORDS[ends[-1][0]] if ends else "pending"] += 1

    def _catch_up(self, at_ms: int) -> None:
        due = self._due
        while due and due[0][0] <= at_ms:
            self._move(*heapq.heappop(due))

    def _move(self, at_ms: int, state: int, recipient: int, key: int) -> None:
        protocol = self._protocols[recipient]
        word = "claim" if state == _ACKED and key % 5 == 0 else _WORDS[state]
        more = ',"mute":true' if protocol == self._wires.ackless and state == _OFFERED else _EVIDENCE.get(state, "")
        offset = self._writer.append(
            at_ms,
            (
                f'{{"event":"{word}",{self._told[recipient]}[[{key},{key}]],"at_ms":{at_ms},'
                f'"session":"s{recipient}","protocol":"{protocol}"{more}}}'
            ).encode(),
        )
        self._writer.keep("step", (recipient + 1, state, key, key, offset))

    def _move_range(self, state: int, recipient: int, keys: list[int]) -> None:
        """Write one event for many deliveries, as when a member drains its inbox."""
        first, last = keys[0], keys[-1]
        word, protocol = _WORDS[state], self._protocols[recipient]
        self._catch_up(self._now_ms)
        offset = self._writer.append(
            self._now_ms,
            (
                f'{{"event":"{word}","member":"{self._names[recipient]}","number":{recipient + 1},'
                f'"keys":[[{first},{last}]],"at_ms":{self._now_ms},"session":"s{recipient}","protocol":"{protocol}"}}'
            ).encode(),
        )
        self._writer.keep("step", (recipient + 1, state, first, last, offset))
        if state == _ACKED:
            self._states["ack"] += len(keys)

    def _objective(self) -> None:
        """Write one objective from start to end, within the last moments of a chunk."""
        serial = sum(self._statuses.values()) + 1
        chance = self._chance
        assignee, originator = chance.randrange(3, len(self._names)), 3
        objective_id = f"obj-{serial:06d}"
        self._activity.objectives.append(objective_id)
        status = chance.choice(("done", "done", "done", "cancelled", "blocked", "active"))
        what: list[tuple[str, dict[str, Any]]] = [
            (
                "active",
                {"kind": "assigned", "title": f"Job {serial}", "outcome": "done", "assignee": self._names[assignee]},
            )
        ]
        if status == "blocked" or chance.random() < 0.4:
            what.append(("blocked", {"kind": "blocked", "reason": "waiting"}))
            if status != "blocked":
                what.append(("active", {"kind": "unblocked"}))
        if status == "done":
            what.append((status, {"kind": "completed", "result": "merged"}))
        elif status == "cancelled":
            what.append((status, {"kind": "cancelled"}))
        self._statuses[status] += 1
        self._tell(serial, objective_id, (assignee, originator), what)

    def _tell(
        self, serial: int, objective_id: str, parties: tuple[int, int], what: list[tuple[str, dict[str, Any]]]
    ) -> None:
        names, created_ms = self._names, self._now_ms
        assignee, originator = parties
        packed = json.dumps([assignee + 1, originator + 1], separators=(",", ":"))
        row: tuple[Any, ...] = ()
        for status, happening in what:
            at_ms = self._now_ms
            actor = names[originator if happening["kind"] == "assigned" else assignee]
            told = _event(**happening)
            stands = _event(
                id=objective_id, title=f"Job {serial}", outcome="done", assignee=names[assignee],
                originator=names[originator], created_at_ms=created_ms, updated_at_ms=at_ms,
                **({} if status == "active" else {"status": status}),
            )  # fmt: skip
            self._catch_up(at_ms)
            event = _event(
                event="objective", id=objective_id, kind=happening["kind"], by=actor, status=status,
                assignee=names[assignee], digest=seal(told, b"", objective_id, actor, at_ms),
                state=seal(stands, packed.encode(), objective_id),
            )  # fmt: skip
            offset = self._writer.append(at_ms, event)
            self._writer.keep("objective_event", (offset, serial, at_ms, actor, told))
            row = (serial, objective_id, offset, status, assignee + 1, packed, stands)
            self._now_ms += self._chance.randrange(1_000, 120_000)
        self._writer.keep("objective", row)

    def _finish(self) -> None:
        """Write all steps that are due, and after a day the late ones."""
        self._catch_up(2**62)
        self._now_ms = max(self._now_ms, self._writer.at_ms) + _LATE_MS
        for code in ("loop_detected", "unauthorized"):
            told = _event(event="refuse", code=code, speaker=self._names[3], protocol=_NATIVE, what="a send", count=3)
            self._writer.append(self._now_ms, told)
        for name in self.answers.loops:
            self._writer.append(self._now_ms, _event(event="pause", thread=name, message="m"))
        alone = _LATE_ALONE if len(self._late) > _LATE_MANY else 0
        for nth, key in enumerate(self._late):
            if nth < alone:
                # In a large log, each of the first late acknowledgements comes alone, within the usual traffic.
                self._chunk(_MESSAGES_BETWEEN)
                self._catch_up(2**62)
                self._now_ms = max(self._now_ms, self._writer.at_ms)
            self._move(self._now_ms, _ACKED, _LAGGARD, key)
        self._states["ack"] += len(self._late)
        self.answers.late_acks = len(self._late)


def _event(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate a home, and print its known answers."""
    parser = argparse.ArgumentParser(prog="bench.synth", description="Make a home with the log of a busy team.")
    parser.add_argument("--out", type=Path, required=True, metavar="HOME", help="the home to make; it must not exist")
    parser.add_argument("--events", type=int, default=100_000, metavar="N", help="about how many events (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed makes the same log")
    given = parser.parse_args(arguments)
    if (given.out / "tieline.db").exists():
        parser.error(f"{given.out} is a home already: name a folder that does not exist")
    answers = Generator(given.out.expanduser().absolute(), given.events, given.seed).run()
    print(msgspec.json.encode(answers).decode())


if __name__ == "__main__":
    main()
