"""A message to Claude Code, idle or at work: from `send` to the request of its model, beside a turn of its own.

At work, the agent runs a tool that ends as soon as the message is accepted.
"""

import contextlib
import os
import time
from collections.abc import Iterator

from bench.context import Context
from bench.report import Goal, Report, Table
from tests.cli.hub_process import HubProcess, wait_until
from tests.cli.terminal import Person, at_terminal
from tests.programs.conversation import command, descendants
from tests.programs.installed import CLAUDE_CODE, ProgramHome, claude_code, program_home
from tests.programs.model import Line, ScriptedModel

OWN, WOKEN, AT_WORK = "prompt typed", "message sent, idle", "message sent, at work"
WORK = Line("work(?P<number>[0-9]+)", call=("Bash", {"command": "while [ ! -e go{number} ]; do sleep 0.02; done"}))
LIMIT_SECONDS = 2.0
SESSIONS_IDLE = 2
"""Sessions of the member while its program is idle: the run's own, and that of the hook that waits."""


@contextlib.contextmanager
def _program(hub: HubProcess, home: ProgramHome, model: ScriptedModel) -> Iterator[Person]:
    variables = claude_code(home, model)
    home.write("project/.claude/settings.json", {"permissions": {"allow": ["Bash"]}})
    with at_terminal(hub.home, "--as", "bob", "claude-code", env=variables, cwd=home.project) as person:
        person.sees("shortcuts")
        yield person


def _wait_for_idle(hub: HubProcess, person: Person) -> None:
    def is_idle() -> bool:
        hooks = [line for line in map(command, descendants(person.process.pid)) if "drain --hook" in line]
        # A hook of the turn that ends has a session, too.
        return bool(hooks) and all("--wait" in line for line in hooks) and hub.session_count("bob") == SESSIONS_IDLE

    wait_until(is_idle, "a hook that waits, alone")


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


def _turn_at_work(hub: HubProcess, home: ProgramHome, person: Person, model: ScriptedModel, number: int) -> float:
    _own_turn(person, model, f"work{number}")
    begun = time.monotonic()
    text = f"note{number}"
    hub.send("alice", "@bob", text)
    (home.project / f"go{number}").touch()
    wait_until(lambda: model.told(text), "the message after the tool")
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
    with HubProcess() as hub, program_home() as home, ScriptedModel(WORK) as model:
        hub.add_members("alice", "bob")
        with _program(hub, home, model) as person:
            # The first turn of each kind does not count: the program loads code, and learns that pushes are off.
            for number in (0, *(1 + each for each in context.rounds())):
                _wait_for_idle(hub, person)
                own = _own_turn(person, model, f"prompt{number}")
                _wait_for_idle(hub, person)
                woken = _woken_turn(hub, model, f"message{number}")
                _wait_for_idle(hub, person)
                at_work = _turn_at_work(hub, home, person, model, number)
                if number:
                    report.add(OWN, own)
                    report.add(WOKEN, woken)
                    report.add(AT_WORK, at_work)
    table = Table("wake: seconds until the model is asked", ["turn", "seconds", "÷ own turn"])
    form = "{:.2f}"
    table.rows.append([OWN, report.spread(OWN, form), "1"])
    for turn in (WOKEN, AT_WORK):
        ratios = Report("", samples={turn: report.ratios(turn, OWN)})
        table.rows.append([turn, report.spread(turn, form), ratios.spread(turn, "{:.1f}")])
    report.tables.append(table)
    middle = report.median(WOKEN)
    assert middle is not None, "at least one round was measured"
    report.goals.append(Goal(goal, f"≤ {LIMIT_SECONDS:g}", f"{middle:.2f}", middle <= LIMIT_SECONDS))
    report.notes.append(
        f"Includes a new session of the sender. {os.cpu_count()} cores serve the program, hub and model."
    )
    return report
