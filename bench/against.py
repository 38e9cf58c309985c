"""Processor time per message of this tree beside another commit, interleaved: `python -m bench.against REF`.

It checks REF out to a temporary worktree. The hubs of both trees run at once and take the same loads in random order,
from the clients of this tree. REF's hub uses this environment if both trees have the same lock of dependencies,
otherwise one that is made from its own lock. The exit code is 1 if the processor time of any load grew by more than a
tenth, also when the loads that seem to have grown are measured for as many rounds again.
"""

import argparse
import contextlib
import filecmp
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from bench import ac7, backchannel, channels, durable, fanout, peerbus, processes, relay
from bench.__main__ import DEFAULT_FOLDER
from bench.context import Context
from bench.processes import PEERS, ROOT, BenchError, Server, temporary_home
from bench.report import Report, Table, Wanted, show, spread
from bench.wire import Load, cpu_figure, figures, put

GROWTH_MAX = 1.1
_SINGLE = Load(name="one at a time", messages=200, single=True)
_LOCK = Path("requirements") / "run.lock"
_HERE, _THERE = "now", "before"


class Subject(Struct, frozen=True):
    """Loads for one kind of hub."""

    name: str
    client: str
    loads: tuple[Load, ...]
    settings: str = ""


class Tree(Struct, frozen=True):
    """A checkout, and the interpreter that has what its hub needs."""

    folder: Path
    python: str

    def hub(self, context: Context, subject: Subject) -> AbstractContextManager[Server]:
        """A hub with the code of this checkout."""
        return processes.hub(context.folder, "sqlite", settings=subject.settings, tree=self.folder, python=self.python)


def subjects() -> list[Subject]:
    """Every load of every wire; agent-relay only if its SDK is installed."""
    wires = [ac7.WIRE, backchannel.WIRE, channels.WIRE, peerbus.WIRE]
    if (PEERS / "node_modules").exists():
        wires.append(relay.WIRE)
    own = (durable.ONE.load, durable.EIGHT.load, fanout.SDK.load, _SINGLE)
    return [
        Subject("native", "sdk", own),
        *(Subject(wire.name, wire.client, wire.loads, wire.settings) for wire in wires),
    ]


@contextlib.contextmanager
def checked_out(ref: str, folder: Path) -> Iterator[Tree]:
    """A temporary worktree of a commit."""
    with temporary_home(folder) as home:
        tree = home / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), ref)
        try:
            yield Tree(tree, _python_for(tree, home / "venv"))
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def _python_for(tree: Path, venv: Path) -> str:
    """This interpreter if it has the same packages, otherwise one in an environment made from the tree's lock."""
    if filecmp.cmp(ROOT / _LOCK, tree / _LOCK, shallow=False):
        return sys.executable
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--require-hashes"]
    subprocess.run([*install, "-r", str(tree / _LOCK)], check=True)
    return str(python)


def compare(
    context: Context, trees: dict[str, Tree], chosen: Sequence[Subject], report: Report, told: Callable[[str], None]
) -> None:
    """Put every load on the hubs of both trees, in random order, in every round."""
    for number in context.rounds():
        for subject in chosen:
            with ExitStack() as stack:
                hubs = {name: stack.enter_context(tree.hub(context, subject)) for name, tree in trees.items()}
                for index, load in enumerate(subject.loads):
                    for name in context.chance.sample(list(hubs), len(hubs)):
                        messages = context.scaled(load.messages)
                        result = put(subject.client, load, hubs[name], messages, f"b{number}-{index}")
                        cpu = figures(load, result)[cpu_figure(load)]
                        report.add(f"{_title(subject, load)} | {name}", cpu)
        told(f"round {number + 1}; load average {os.getloadavg()[0]:.2f}")


def _title(subject: Subject, load: Load) -> str:
    return f"{subject.name}, {load.name}"


def judge(report: Report) -> tuple[Table, list[str]]:
    """The table of all loads, and the names of those that cost more than a tenth more."""
    limit = Wanted(most=GROWTH_MAX)
    table = Table("hub CPU µs a message, or a delivery of a fan-out", ["load", _THERE, _HERE, "now ÷ before", ""])
    grown = []
    for name in dict.fromkeys(series.rpartition(" | ")[0] for series in report.samples):
        before, now = f"{name} | {_THERE}", f"{name} | {_HERE}"
        ratios = report.ratios(now, before)
        if grew := limit.met(ratios) is False:
            grown.append(name)
        row = [report.spread(before, "{:.1f}"), report.spread(now, "{:.1f}"), spread(ratios, "{:.2f}")]
        table.rows.append([name, *row, "grew" if grew else ""])
    return table, grown


def only(chosen: Sequence[Subject], titles: Sequence[str]) -> list[Subject]:
    """The subjects with only the loads of these titles."""
    kept = [
        replace(subject, loads=tuple(load for load in subject.loads if _title(subject, load) in titles))
        for subject in chosen
    ]
    return [subject for subject in kept if subject.loads]


def main() -> int:
    """Compare this tree with the commit that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("names", nargs="*", metavar="NAME", help="native or protocols; default: all")
    parser.add_argument("--quick", action="store_true", help="3 rounds with smaller counts instead of 7")
    parser.add_argument("--rounds", type=int, help="as many rounds as this")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where homes are made; must be a real disk")
    parser.add_argument("--minutes", type=float, default=45.0, help="start no further round after this long")
    arguments = parser.parse_intermixed_args()  # names may follow options
    console = Console(width=None if sys.stdout.isatty() else 150)
    folder = arguments.dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    context = Context(folder, quick=arguments.quick, rounds=arguments.rounds, minutes_max=arguments.minutes)
    report = Report("against")
    told = partial(console.print, highlight=False)
    chosen = [subject for subject in subjects() if not arguments.names or subject.name in arguments.names]
    try:
        with checked_out(arguments.ref, folder) as there:
            trees = {_THERE: there, _HERE: Tree(ROOT, sys.executable)}
            compare(context, trees, chosen, report, told)
            if again := judge(report)[1]:
                # Among many loads, one seems to have grown by chance, on a machine that does other work too.
                told(f"once more: {'; '.join(again)}")
                compare(context, trees, only(chosen, again), report, told)
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 2
    table, grown = judge(report)
    report.tables.append(table)
    show(console, report)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
