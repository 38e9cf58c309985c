"""Waking an idle Claude Code: from `send` to the request of its model, beside a turn of the program's own."""

import contextlib
import os
import time
from collections.abc import Iterator

from bench.context import Context
from bench.report import Goal, Report, Table
from tests.cli.hub_process import HubProcess, wait_until
from tests.cli.terminal import Person, at_terminal
from tests.programs.installed import CLAUDE_CODE, ProgramHome, claude_code, program_home
from tests.programs.model import ScriptedModel

OWN, WOKEN = "prompt typed", "message sent"
LIMIT_SECONDS = 2.0
SESSIONS_IDLE = 2
"""Sessions of the member while its program is idle: the run's own, and that of the hook that waits."""


@contextlib.contextmanager
def _program(hub: HubProcess, home: ProgramHome, model: ScriptedModel) -> Iterator[Person]:
    variables = claude_code(home, model)
    with at_terminal(hub.home, "--as", "bob", "claude-code", env=variables, cwd=home.project) as person:
        person.sees("shortcuts")
        yield person


def _wait_for_idle(hub: HubProcess) -> None:
    wait_until(lambda: hub.session_count("bob") >= SESSIONS_IDLE, "a hook that waits")


def _own_turn(person: Person, model: ScriptedModel, text: str) -> float:
    person.type(text)
    person.sees(text)
    begun = time.monotonic()
    person.type("\r")
    wait_until(lambda: model.told(text), "the program's own turn")
    return model.told(text)[0].at - begun


def _woken_turn(hub: HubProcess, model: ScriptedModel, text: str) -> float:
    begun = time.monotonic()
    hub.send("alice", "@bob", text)
    wait_until(lambda: model.told(text), "a turn for the message")
    return model.told(text)[0].at - begun


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("wake")
    goal = "wake of an idle Claude Code, s"
    if not CLAUDE_CODE.exists():
        report.goals.append(Goal(goal, f"≤ {LIMIT_SECONDS:g}", "–", None))
        report.notes.append(
            "wake: Claude Code is not installed ('make programs' installs it), so nothing was measured."
        )
        return report
    with HubProcess() as hub, program_home() as home, ScriptedModel() as model:
        hub.add_members("alice", "bob")
        with _program(hub, home, model) as person:
            # The first turn of each kind does not count: the program loads code, and learns that pushes are off.
            for number in (-1, *context.rounds()):
                _wait_for_idle(hub)
                own = _own_turn(person, model, f"prompt{number}")
                _wait_for_idle(hub)
                woken = _woken_turn(hub, model, f"message{number}")
                if number >= 0:
                    report.add(OWN, own)
                    report.add(WOKEN, woken)
    table = Table("wake: seconds until the model is asked", ["turn", "seconds", "÷ own turn"])
    form = "{:.2f}"
    table.rows.append([OWN, report.spread(OWN, form), "1"])
    ratios = Report("", samples={WOKEN: report.ratios(WOKEN, OWN)})
    table.rows.append([WOKEN, report.spread(WOKEN, form), ratios.spread(WOKEN, "{:.1f}")])
    report.tables.append(table)
    middle = report.median(WOKEN)
    assert middle is not None, "at least one round was measured"
    report.goals.append(Goal(goal, f"≤ {LIMIT_SECONDS:g}", f"{middle:.2f}", middle <= LIMIT_SECONDS))
    report.notes.append(
        f"Includes a new session of the sender. {os.cpu_count()} cores serve the program, hub and model."
    )
    return report
