"""Test helpers for a conversation with an agent program: alice asks, the program answers as bob.

The hub shows what happened to the messages.
"""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cli.hub_process import HubProcess, wait_until
from tests.cli.terminal import Person
from tests.programs.installed import ProgramHome
from tests.programs.model import Asked, Line, ScriptedModel

QUESTION = r'<channel [^<]* msg_id="(?P<id>[^"]+)"[^<]*>\s*(?P<body>QUESTION[^<]*?)\s*</channel>'
LATE_SECONDS = 10.0
"""Delay of an MCP server that is longer than Claude Code's own waits in one-shot mode, which are 5 and 2 seconds."""
ANSWER = Line(QUESTION, call=("send", {"to": "@alice", "body": "ANSWER to {body}", "reply_to": "{id}"}))
"""Line of the scripted model: it answers each question with Tieline's tool `send`."""


class Interrupted(ScriptedModel):
    """Scripted model during whose first answer something happens: it calls `happen`."""

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__()
        self._happen = happen

    def answer(self, *request: Any) -> Any:
        """Answer as the script says. Call `happen` before the first answer."""
        if not self.asked:
            self._happen()
        return super().answer(*request)


def shown(model: ScriptedModel, body: str) -> list[Asked]:
    """Return the requests in which the model got a message with this body, in its frame (the tags around a message).

    A request that has the frame twice is in the list twice. Gemini CLI escapes the frames of hooks.
    """
    frame = re.compile(rf"{re.escape(body)}\n?(?:<|&lt;)/channel")
    return [one for one in model.asked for _ in frame.findall(one.new)]


def prompt(person: Person, model: ScriptedModel, text: str) -> None:
    """Type a prompt, wait until it is on the screen, and press Enter. Wait until the model gets the prompt.

    If Enter comes too early, the program takes it as a part of the text.
    """
    person.type(text)
    person.sees(text.rpartition(" ")[2])
    person.type("\r")
    wait_until(lambda: model.told(text), f"a turn with {text!r}")


def run_once(command: Sequence[str], home: ProgramHome, variables: dict[str, str]) -> str:
    """Run a program in its one-shot mode, in the home's project. It must succeed. Return its stderr."""
    done = subprocess.run(
        command,
        env=variables,
        cwd=home.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def with_late_server(home: ProgramHome, variables: dict[str, str], seconds: float) -> dict[str, str]:
    """Return environment variables with which every `tieline mcp` of a program starts late, as on a busy machine.

    `seconds` is the delay.
    """
    home.write("late/sitecustomize.py", f"import sys, time\nif 'mcp' in sys.orig_argv:\n    time.sleep({seconds})\n")
    before = variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, (str(home.folder / "late"), before)))}


def bodies(hub: HubProcess, name: str) -> list[str]:
    """Return the bodies of the messages in the inbox of the member `name`."""
    return [item["message"]["body"] for item in json.loads(hub.cli("inbox", "--as", name, "--json").stdout)]


def is_answered(hub: HubProcess, message_id: str, answer: str) -> bool:
    """True if bob has sent `answer` to alice, and her message to him is acknowledged."""
    return answer in bodies(hub, "alice") and hub.states("alice", message_id)["bob"] == "acked"


def evidence(hub: HubProcess, message_id: str) -> str:
    """Return the evidence that bob has seen a message of alice."""
    (receipt,) = json.loads(hub.cli("receipts", message_id, "--as", "alice", "--json").stdout)
    (seen,) = [step for step in receipt["steps"] if step["state"] == "seen"]
    return str(seen["evidence"])


def descendants(pid: int) -> set[int]:
    """Return the ids of the processes that a process started, directly or indirectly."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == pid:
                child = int(path.parent.name)
                found |= {child} | descendants(child)
    return found


def command(pid: int) -> str:
    """Return the command line of a process. It is empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
