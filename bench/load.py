"""A client process: puts one load on one server and prints what it took. `python -m bench.load PLAN`."""

import asyncio
import random
import resource
import sys
import time
from contextlib import AsyncExitStack
from importlib import import_module
from statistics import median

import msgspec
import uvloop

from bench.machine import read_cpu
from bench.metrics import BATCHES, COMMITS, read_figures
from bench.plan import Plan, Result
from bench.traffic import Times, Traffic

CLIENTS = {
    "sdk": "hub_load",
    "lean": "hub_load",
    "redis": "redis_load",
    "nats": "nats_load",
    "ac7": "http_load",
    "backchannel": "http_load",
    "channels": "channels_load",
    "peerbus": "peerbus_load",
    "relay": "relay_load",
}
"""Modules of the clients. A module is imported only when it is used, because some packages are not for tests."""
REST_SECONDS = 0.2
"""Wait after the last acknowledgement, which the hub still commits: four times the hub's limit for that."""
PAUSE_SECONDS_MAX = 0.01
ONE_SECONDS_MAX = 30.0


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """The traffic that a plan describes."""
    module = import_module(f"bench.{CLIENTS[plan.client]}")
    traffic: Traffic = await module.open_traffic(plan, stack)
    return traffic


async def _pass_on(traffic: Traffic, plan: Plan, count: int) -> list[Times]:
    """Send messages as fast as the window allows, or one at a time with pauses, as people and agents do."""
    if not plan.single:
        await traffic.run(count)
        return [Times(0.0, 0.0)]
    chance = random.Random(count)
    times = []
    for _ in range(count):
        async with asyncio.timeout(ONE_SECONDS_MAX):
            times.append(await traffic.one())
        await asyncio.sleep(chance.random() * PAUSE_SECONDS_MAX)
    return times


async def run(plan: Plan) -> Result:
    """Put the load on the server and measure."""
    assert plan.messages % plan.senders == plan.warm_up % plan.senders == 0, "every sender sends as many"
    async with AsyncExitStack() as stack:
        traffic = await open_traffic(plan, stack)
        await traffic.prepare(plan.warm_up + plan.messages)
        await _pass_on(traffic, plan, plan.warm_up)
        await asyncio.sleep(REST_SECONDS)
        figures_before = read_figures(plan.http)
        server_before = read_cpu(plan.server_pid)
        client_before = _own_cpu()
        started = time.perf_counter()
        times = await _pass_on(traffic, plan, plan.messages)
        seconds = time.perf_counter() - started
        client_cpu = _own_cpu() - client_before
        await asyncio.sleep(REST_SECONDS)
        server = read_cpu(plan.server_pid).since(server_before)
        figures = read_figures(plan.http)
        await traffic.check()
    batches, commits = (figures.get(name, 0.0) - figures_before.get(name, 0.0) for name in (BATCHES, COMMITS))
    answered = median(one.answered for one in times)
    delivered = median(one.delivered for one in times)
    counts = plan.messages, plan.messages * plan.copies
    return Result(seconds, *counts, server, client_cpu, batches, commits, answered, delivered)


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    result = uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.buffer.write(msgspec.json.encode(result))
