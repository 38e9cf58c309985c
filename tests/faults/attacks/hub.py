"""Process: a hub like `tieline serve` that measures how long a callback or a command blocks it: `… HOME FILE`.

The hub is the unchanged product on its usual event loop; only the callbacks of the loop are wrapped. Processor time of
the thread is measured, so that other work of the machine does not matter. On SIGUSR1 the hub writes the longest times
since the last signal to FILE, and measures anew.
"""

import asyncio
import functools
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from tieline.contract.command import Command
from tieline.core.broker import Broker
from tieline.core.outcome import Outcome
from tieline.server.hub import Options, RunningHub
from tieline.server.local_hub import LocalHub
from tieline.server.runtime import raise_file_limit, spare_collector, stop_signals

LOOP, COMMAND, BATCH, COLLECTOR = "loop", "command", "batch", "collector"
"""Kinds of measured work. LOOP: one callback of the event loop. COMMAND: one command of the broker. BATCH: all commands
that the broker handles together, with their commit. COLLECTOR: one pass of the garbage collector, which is also part of
the work that it interrupts."""

_ADDRESSES_MAX = 4 * 1024**3

_ENTRIES = (
    *("connection_made", "data_received", "buffer_updated", "eof_received", "connection_lost"),
    *("pause_writing", "resume_writing"),
)


class Holds:
    """Test helper: records the longest processor time of each kind of work, with the name of the work."""

    def __init__(self) -> None:
        self._longest: dict[str, tuple[float, str]] = {}
        self._collecting = 0.0

    def timed(self, kind: str, work: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """Return a wrapper of `work` that measures its time as this kind. `name` returns the name of the work."""

        @functools.wraps(work, updated=())
        def watched(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return work(*args, **kwargs)
            finally:
                self._note(kind, time.thread_time() - started, name, *args)

        return watched

    def collect(self, phase: str, about: dict[str, int]) -> None:
        """Measure one pass of the garbage collector. Python calls this before (`start`) and after each pass."""
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._note(COLLECTOR, time.thread_time() - self._collecting, lambda: f"generation {about['generation']}")

    def _note(self, kind: str, spent: float, name: Callable[..., str], *args: Any) -> None:
        if spent > self._longest.get(kind, (0.0, ""))[0]:
            self._longest[kind] = (spent, name(*args))

    def take(self) -> dict[str, tuple[float, str]]:
        """Return the longest times by kind of work, and forget them."""
        found, self._longest = self._longest, {}
        return found


HOLDS = Holds()


def _named(work: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that returns the name of a callback. It is called only for the longest callback."""

    def name(*_: Any) -> str:
        inner = getattr(work, "__self__", None)
        if isinstance(inner, asyncio.Task):
            return getattr(inner.get_coro(), "__qualname__", repr(inner))
        return getattr(work, "__qualname__", None) or repr(work)

    return name


class WatchedLoop(uvloop.Loop):
    """Test double: the hub's usual event loop, which also measures the callbacks that run on it."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_soon(HOLDS.timed(LOOP, callback, _named(callback)), *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_soon_threadsafe(HOLDS.timed(LOOP, callback, _named(callback)), *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_later(delay, HOLDS.timed(LOOP, callback, _named(callback)), *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_at(when, HOLDS.timed(LOOP, callback, _named(callback)), *args, context=context)


def _protocols(kind: type[Any] = asyncio.BaseProtocol) -> Iterator[type[Any]]:
    for below in kind.__subclasses__():
        yield below
        yield from _protocols(below)


def watch_protocols() -> None:
    """Measure the methods of asyncio protocols that transports call, in all classes that are loaded by now."""
    for kind in set(_protocols()):
        for entry in _ENTRIES:
            work = kind.__dict__.get(entry)
            if work is not None and not hasattr(work, "__wrapped__"):
                setattr(kind, entry, HOLDS.timed(LOOP, work, _named(work)))


def watch_broker() -> None:
    """Measure each command and each batch of the broker."""
    load, decide = Broker._load, LocalHub._decide

    def load_and_watch(broker: Broker, *kept: Any) -> None:
        load(broker, *kept)
        broker._rules = {
            kind: HOLDS.timed(COMMAND, rule, lambda _, command: type(command).__name__)
            for kind, rule in broker._rules.items()
        }

    def decide_all(hub: LocalHub, commands: Sequence[Command], retries: int = 1) -> Iterator[Outcome]:
        return iter(list(decide(hub, commands, retries)))

    watched = HOLDS.timed(BATCH, decide_all, lambda _, commands, *__: f"{len(commands)} commands")
    for owner, entry, work in ((Broker, "_load", load_and_watch), (LocalHub, "_decide", watched)):
        setattr(owner, entry, work)


async def _serve(options: Options, report: Path) -> int:
    asked = stop_signals()
    hub = RunningHub(options)

    def tell() -> None:
        beside = report.with_suffix(".new")
        beside.write_text(json.dumps(HOLDS.take()))
        beside.replace(report)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    watch_protocols()
    await hub.start()
    # Some are loaded only when a port is opened.
    watch_protocols()
    spare_collector()
    try:
        return await hub.wait(asked)
    finally:
        await hub.stop()


def main() -> int:
    """Run the hub until a signal ends it. Return the exit code."""
    home, report = map(Path, sys.argv[1:])
    raise_file_limit()
    os.environ.pop("TIELINE_HOME", None)
    # If a bound does not hold, the machine shall not pay for it.
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MAX, _ADDRESSES_MAX))
    watch_broker()
    gc.callbacks.append(HOLDS.collect)
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        return runner.run(_serve(Options(home=home, http="127.0.0.1:0"), report))


if __name__ == "__main__":
    sys.exit(main())
