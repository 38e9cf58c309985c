"""A hub as `tieline serve` starts it, with a profiler around it when asked: `python -m bench.hub_main --home DIR`.

With `TIELINE_BENCH_PROFILE=FILE` the event loop and the broker's thread are each profiled by cProfile, into
`FILE-STORE-PID.loop` and `FILE-STORE-PID.broker`. A profiled hub is several times slower: read its shares, not its
times.
"""

import argparse
import cProfile
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from tieline.server.hub import Options, RunningHub
from tieline.server.local_hub import LocalHub
from tieline.server.runtime import raise_file_limit, spare_collector, stop_signals

PROFILE_VARIABLE = "TIELINE_BENCH_PROFILE"


def _profile_broker(path: Path) -> None:
    """Let every local hub made from now on run its thread inside a profiler."""
    run: Callable[[LocalHub], None] = LocalHub._run

    def profiled(local_hub: LocalHub) -> None:
        profiler = cProfile.Profile()
        try:
            profiler.runcall(run, local_hub)
        finally:
            profiler.dump_stats(path)

    setattr(LocalHub, "_run", profiled)  # noqa: B010 - mypy forbids assigning to a method, with reason


async def serve(hub: RunningHub) -> int:
    """Run a hub until a signal comes; returns its exit code."""
    asked = stop_signals()
    await hub.start()
    spare_collector()
    try:
        return await hub.wait(asked)
    finally:
        await hub.stop()


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="bench.hub_main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--http", default="127.0.0.1:0")
    parser.add_argument("--store", default="sqlite")
    arguments = parser.parse_args()
    raise_file_limit()
    options = Options(home=arguments.home, http=arguments.http, store=arguments.store)
    profile = os.environ.get(PROFILE_VARIABLE)
    if profile is None:
        return uvloop.run(serve(RunningHub(options)))
    profile = f"{profile}-{arguments.store.replace(':', '-')}-{os.getpid()}"
    _profile_broker(Path(f"{profile}.broker"))
    profiler = cProfile.Profile()
    try:
        return profiler.runcall(uvloop.run, serve(RunningHub(options)))
    finally:
        profiler.dump_stats(f"{profile}.loop")


if __name__ == "__main__":
    sys.exit(main())
