"""Growth: the hub's processor time for a message, with many messages stored, and with many members."""

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

from bench import processes
from bench.context import Context
from bench.machine import read_cpu
from bench.processes import BenchError, Server
from bench.report import Report, Table, Wanted, spread
from bench.rivals import DURABLE
from bench.wire import Load, put
from tieline.client import connect

_LOAD = Load(name="1→1", messages=10_000)
_FILLING = 250_000
"""Messages of one load that fills a hub. Several follow each other, because a client has a time limit."""
_WANTED = Wanted(most=1.1)
_PAIR = "pair"
"""The sender and the recipient of all rounds. A hub looks at the folders of all members after a new member."""
_IDLE = 0.02
"""Seconds of processor time that an idle hub uses in a second at most."""
_IDLE_SECONDS_MAX = 120.0

STORED = {"10,000 stored": 10_000, "1,000,000 stored": 1_000_000}
MEMBERS = {"10 members": 10, "1,000 members": 1_000, "10,000 members": 10_000}


def _fill(server: Server, messages: int) -> None:
    for number, start in enumerate(range(0, messages, _FILLING)):
        put("lean", _LOAD, server, min(_FILLING, messages - start), f"fill{number}")


async def _add_members(home: Path, members: int) -> None:
    async with await connect(home=home) as operator:
        for start in range(0, members, 100):
            names = (f"member-{number}" for number in range(start, min(start + 100, members)))
            await asyncio.gather(*(operator.add_member(name) for name in names))


def _wait_until_idle(server: Server) -> None:
    """Wait for what a hub does after many new members: their folders in the spool, their sockets, the search index."""
    deadline = time.monotonic() + _IDLE_SECONDS_MAX
    used = -_IDLE
    while (now := read_cpu(server.pid).total) - used > _IDLE:
        if time.monotonic() > deadline:
            raise BenchError(f"the hub was busy for {_IDLE_SECONDS_MAX:.0f} s after it was filled")
        used = now
        time.sleep(1)


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("growth")
    with ExitStack() as stack:
        hubs = {name: stack.enter_context(processes.hub(context.folder, DURABLE)) for name in (*STORED, *MEMBERS)}
        for name, messages in STORED.items():
            _fill(hubs[name], context.scaled(messages))
        for name, members in MEMBERS.items():
            asyncio.run(_add_members(hubs[name].home, members))
        for hub in hubs.values():
            put("sdk", _LOAD, hub, 1_000, _PAIR)
            _wait_until_idle(hub)
        for _ in context.rounds():
            names = list(hubs)
            context.chance.shuffle(names)
            for name in names:
                result = put("sdk", _LOAD, hubs[name], context.scaled(_LOAD.messages), _PAIR)
                report.add(name, 1e6 * result.server.total / result.messages)
    table = Table("growth: hub CPU of a message", ["hub", "CPU µs a message", "÷ the smallest", "goal"])
    for group in (STORED, MEMBERS):
        smallest, *larger = group
        table.rows.append([smallest, report.spread(smallest, "{:.1f}"), "1", ""])
        for name in larger:
            ratios = report.ratios(name, smallest)
            goal = f"{_WANTED.text}: {_WANTED.verdict(ratios)}"
            table.rows.append([name, report.spread(name, "{:.1f}"), spread(ratios, "{:.2f}"), goal])
            report.goals.append(_WANTED.goal(f"hub CPU a message, {name} ÷ {smallest}", ratios))
    report.tables.append(table)
    report.notes.append(
        "Each hub is idle before the first round. Each round adds messages. A quick run fills a quarter."
    )
    return report
