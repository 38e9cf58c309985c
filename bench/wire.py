"""One wire: the same loads through the same client on the hub and on a peer, interleaved, with ratios and goals."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import processes
from bench.context import Context
from bench.plan import Plan, Result
from bench.processes import Server, run_client
from bench.report import Goal, Report, Table, Wanted, spread

HUB, PEER = "tieline", "peer"
CLIENT_SECONDS_MAX = 180.0
RATE, ANSWERED, DELIVERED = "per s", "answered us", "delivered us"
CPU, CPU_DELIVERY = "cpu us", "delivery cpu us"


class Load(Struct, frozen=True, kw_only=True):
    """A shape of traffic; `messages` is the count of a full run."""

    name: str
    messages: int
    senders: int = 1
    recipients: int = 1
    fan_out: bool = False
    single: bool = False
    port: str = ""
    window: int = 256
    wanted: dict[str, Wanted] = {}
    """Goals for the ratios Tieline ÷ peer, by figure."""
    cpu_wanted: Wanted | None = None
    """Goal for the hub's processor time, in µs a message."""


class Wire(Struct, frozen=True, kw_only=True):
    """A protocol, its loads, and the server beside which it is measured."""

    name: str
    client: str
    loads: tuple[Load, ...]
    peer: Callable[[Path], AbstractContextManager[Server]]
    peer_name: str
    """Short name in tables; it says so if the peer is a stand-in."""
    note: str
    settings: str = ""
    """The hub's `tieline.toml`."""

    def hub(self, folder: Path, *, tree: Path = processes.ROOT, python: str = "") -> AbstractContextManager[Server]:
        """A hub for the loads of this wire, with the code of a checkout."""
        extra = {"python": python} if python else {}
        return processes.hub(folder, "sqlite", settings=self.settings, tree=tree, **extra)


def put(client: str, load: Load, server: Server, messages: int, name: str) -> Result:
    """Put a load on a server, from a client process of its own."""
    plan = Plan(
        client=client,
        server_pid=server.pid,
        home=str(server.home),
        http=server.http,
        address=server.address,
        port=load.port,
        senders=load.senders,
        recipients=load.recipients,
        fan_out=load.fan_out,
        single=load.single,
        window=load.window,
        messages=messages // load.senders * load.senders,
        # A tenth, rounded so that every sender sends the same number.
        warm_up=max(1, messages // 10 // load.senders) * load.senders,
        name=name,
    )
    return msgspec.json.decode(run_client("bench.load", plan, CLIENT_SECONDS_MAX), type=Result)


def figures(load: Load, result: Result) -> dict[str, float]:
    """The figures of one load on one server."""
    found = {CPU: 1e6 * result.server.total / result.messages}
    if load.fan_out:
        found[CPU_DELIVERY] = 1e6 * result.server.total / result.deliveries
    if load.single:
        return found | {ANSWERED: 1e6 * result.answered, DELIVERED: 1e6 * result.delivered}
    return found | {RATE: result.deliveries / result.seconds}


def cpu_figure(load: Load) -> str:
    """The figure for the processor time: per delivery for a fan-out, otherwise per message."""
    return CPU_DELIVERY if load.fan_out else CPU


def series(load: Load, target: str, figure: str) -> str:
    """Name of a series of figures."""
    return f"{load.name} | {target} | {figure}"


def measure(context: Context, wire: Wire) -> Report:
    """Put every load on the hub and on the peer, in random order, in every round."""
    report = Report(wire.name)
    for number in context.rounds():
        with ExitStack() as stack:
            servers = {
                HUB: stack.enter_context(wire.hub(context.folder)),
                PEER: stack.enter_context(wire.peer(context.folder)),
            }
            for load_number, load in enumerate(wire.loads):
                for target in context.chance.sample(list(servers), len(servers)):
                    messages = context.scaled(load.messages)
                    result = put(wire.client, load, servers[target], messages, f"b{number}-{load_number}")
                    for figure, value in figures(load, result).items():
                        report.add(series(load, target, figure), value)
    for load in wire.loads:
        measured = [RATE] if not load.single else [ANSWERED, DELIVERED]
        ratios = {
            f"{figure} ÷ peer": report.ratios(series(load, HUB, figure), series(load, PEER, figure))
            for figure in measured
        }
        report.remember(load.name, series(load, HUB, cpu_figure(load)), ratios)
    report.tables.append(table(report, wire.name, wire.peer_name, wire.loads))
    report.notes.append(wire.note)
    report.goals += goals(report, wire.peer_name, wire.loads)
    return report


def table(report: Report, name: str, peer_name: str, loads: tuple[Load, ...]) -> Table:
    """Every figure of the hub and of the peer, with its ratio and the goal for it."""
    titles = {
        RATE: "a second",
        ANSWERED: "p50 µs until answered",
        DELIVERED: "p50 µs until delivered",
        CPU: "server CPU µs a message",
        CPU_DELIVERY: "server CPU µs a delivery",
    }
    found = Table(
        f"{name}: Tieline beside {peer_name}", ["load", "figure", "Tieline", "peer", "Tieline ÷ peer", "goal"]
    )
    for load in loads:
        for figure, title in titles.items():
            ours, theirs = series(load, HUB, figure), series(load, PEER, figure)
            if not report.median(ours):
                continue
            ratios = report.ratios(ours, theirs)
            wanted = load.wanted.get(figure)
            goal = "" if wanted is None else f"{wanted.text}: {wanted.verdict(ratios)}"
            if figure == CPU and load.cpu_wanted is not None:
                goal = f"{load.cpu_wanted.text} µs: {load.cpu_wanted.verdict(report.samples[ours])}"
            row = [report.spread(ours, "{:,.1f}"), report.spread(theirs, "{:,.1f}"), spread(ratios, "{:.2f}"), goal]
            found.rows.append([load.name, title, *row])
    return found


def goals(report: Report, peer_name: str, loads: tuple[Load, ...]) -> list[Goal]:
    """The goals of all loads, for the last table."""
    ratios = [
        wanted.goal(
            f"{report.name}, {load.name}, {figure} ÷ {peer_name}",
            report.ratios(series(load, HUB, figure), series(load, PEER, figure)),
        )
        for load in loads
        for figure, wanted in load.wanted.items()
    ]
    costs = [
        load.cpu_wanted.goal(
            f"{report.name}, {load.name}, hub CPU µs a message",
            report.samples.get(series(load, HUB, CPU), []),
            "{:.0f}",
        )
        for load in loads
        if load.cpu_wanted is not None
    ]
    return ratios + costs
