"""The generator's activity log: exchanges with models and markers of objectives, some reported twice or late."""

import json
import random
from collections import Counter
from collections.abc import Sequence

from bench.home_writer import HomeWriter

_MODELS = ("claude-opus-4-5", "claude-sonnet-4-5", "gpt-5.2", "local-mistral")
_DUPLICATE_SHARE = 0.01
_LATE_SHARE = 0.005
_FAILED_SHARE = 0.02
_HTTP_SHARE = 0.1
_MARKER_SHARE = 0.03
_OWN = {0: '"scope":"acme/cli",', 1: '"thread":"own",'}
"""Scope or thread that a model call itself names, for two of forty numbers of tokens."""
_LATE_MS = 30 * 3_600_000


class ActivityMaker:
    """Generates the activity log of one home."""

    def __init__(self, writer: HomeWriter, names: Sequence[str], chance: random.Random) -> None:
        self._writer = writer
        self._names = names
        self._chance = chance
        self.end = 0
        self.counts: Counter[str] = Counter()
        """Counts of `exchanges`, `duplicates` and `late` events, and of `input` and `output` tokens by model."""
        # The objective that each member says it works on.
        self._focus: dict[int, str] = {}
        self.objectives: list[str] = []
        """Objectives that exist by now."""

    def fill(self, start_ms: int, end_ms: int, count: int) -> None:
        """Generate `count` events between two times."""
        chance = self._chance
        step = max(1, (end_ms - start_ms) // max(1, count))
        last: tuple[int, str, int, bytes] | None = None
        for index in range(count):
            at_ms = start_ms + index * step
            draw = chance.random()
            if last is not None and draw < _DUPLICATE_SHARE:
                self.counts["duplicates"] += last[1] == "llm_exchange"
                self._keep(at_ms, *last)
                continue
            number = int(chance.random() * len(self._names)) + 1
            if draw < _DUPLICATE_SHARE + _MARKER_SHARE and self.objectives:
                self._mark(at_ms, number)
            elif draw < _DUPLICATE_SHARE + _MARKER_SHARE + _HTTP_SHARE:
                event = {"kind": "opaque_http", "ts": at_ms, "duration": 12, "entry": {"method": "GET", "url": "/"}}
                self._keep(at_ms, number, "opaque_http", at_ms, json.dumps(event).encode())
            else:
                late = draw > 1 - _LATE_SHARE
                self.counts["late"] += late
                last = self._exchange(at_ms, number, at_ms - _LATE_MS if late else at_ms - 1500)

    def _exchange(self, at_ms: int, number: int, ts_ms: int) -> tuple[int, str, int, bytes]:
        chance = self._chance
        model = _MODELS[int(chance.random() * len(_MODELS))]
        tokens, told = 200 + int(chance.random() * 19_800), 20 + int(chance.random() * 1_980)
        lasted = 300 + int(chance.random() * 8_700)
        failed = chance.random() < _FAILED_SHARE
        own = _OWN.get(tokens % 40, "")
        event = (
            f'{{"kind":"llm_exchange",{own}"ts":{ts_ms},"duration":{lasted},"entry":{{"kind":"anthropic_messages",'
            f'"startedAt":{ts_ms},"endedAt":{ts_ms + lasted},"request":{{"model":"{model}","messages":[]}},'
            f'"response":{{"model":"{model}","usage":{{"inputTokens":{tokens},"outputTokens":{told},'
            f'"cacheReadInputTokens":{tokens // 2},"cacheCreationInputTokens":null}},'
            f'"status":{529 if failed else 200},"error":{chr(34) + "overloaded" + chr(34) if failed else "null"}}}}}}}'
        ).encode()
        self.counts["exchanges"] += 1
        self.counts[f"input {model}"] += tokens
        self.counts[f"output {model}"] += told
        self._keep(at_ms, number, "llm_exchange", ts_ms, event)
        return number, "llm_exchange", ts_ms, event

    def _mark(self, at_ms: int, number: int) -> None:
        known = self._focus.pop(number, None)
        kind = "objective_open" if known is None else "objective_close"
        objective = known or self._chance.choice(self.objectives)
        if known is None:
            self._focus[number] = objective
        event = {"kind": kind, "ts": at_ms, "objectiveId": objective}
        self._keep(at_ms, number, kind, at_ms, json.dumps(event).encode())

    def _keep(self, at_ms: int, number: int, kind: str, ts_ms: int, event: bytes) -> None:
        self._writer.keep("activity", (self.end, at_ms, number, kind, ts_ms, event))
        self.end += 1
