"""Test helper: the code blocks of the documentation, and a terminal that runs its shell blocks in a scratch home.

A comment in the line before a block is its mark:

- `not run: REASON` – the block is not run here. The reason often names what runs it.
- `fresh: PART` – `make fresh` runs it, on a bare Debian.
- `background` – a hub, which goes on while later blocks of the page run.
- `elsewhere` – another machine: the block has a home of its own.
- `output` – no command: the output of the block before it. Numbers and the width of columns may differ.

In a command, `N` is the number that the last `send` of the page printed.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "src" / "tieline" / "agents" / "SKILL.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("PROTOCOL.md")),
]
"""Every document that has commands or examples."""

SECONDS_MAX = 60

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("fence")) + 1,
            found["language"],
            found["mark"] or "",
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
        )
        for found in _BLOCK.finditer(text)
    ]


def is_shell(block: Block) -> bool:
    """Return true if a block has commands that a reader types."""
    return block.language == "sh"


class Terminal:
    """A person's terminal in an empty home, in which the blocks of one page are run one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hubs: list[subprocess.Popen[str]] = []
        self._printed = ""
        self._sent = "N"
        # A page writes .venv/bin/tieline for a clone, and tieline for an installed program.
        (folder / ".venv").symlink_to(sys.prefix)

    def run(self, block: Block) -> None:
        """Run a block, or compare the output that it shows with that of the block before it."""
        if block.mark == "output":
            assert _shape(self._printed) == _shape(block.text), f"{block.place}: {self._printed}"
        elif block.mark.startswith("background"):
            self._start(block)
        else:
            self._printed = self._run(block)

    def _start(self, block: Block) -> None:
        """Start a hub, and wait until it is ready. It takes any free port of this machine."""
        command = block.text.strip().replace("make run", ".venv/bin/tieline serve")
        command = re.sub(r"--http \S+", "--http 127.0.0.1:0", command)
        hub = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment("home"),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._hubs.append(hub)
        assert hub.stdout is not None
        assert "is running as process" in next(hub.stdout, ""), f"{block.place}: the hub does not start"

    def _run(self, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", re.sub(r"\breceipts N\b", f"receipts {self._sent}", block.text)],
            check=False,
            cwd=self._folder,
            env=self._environment("elsewhere" if block.mark == "elsewhere" else "home"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{block.place}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        self._sent = next(iter(re.findall(r"^(\d+)  accepted", done.stdout, re.MULTILINE)[-1:]), self._sent)
        return done.stdout

    def _environment(self, home: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TIELINE_", "XDG_"))}
        path = os.pathsep.join((str(self._folder / ".venv" / "bin"), os.environ["PATH"]))
        (self._folder / home).mkdir(exist_ok=True)
        return own | {
            "HOME": str(self._folder / home),
            "PATH": path,
            "TIELINE_HTTP": "127.0.0.1:0",
            "USER": "maria",
            "LOGNAME": "maria",
        }

    def close(self) -> Iterator[str]:
        """Stop all hubs as Ctrl-C does. Yield a complaint about each that does not end cleanly."""
        for hub in self._hubs:
            hub.send_signal(signal.SIGINT)
        for hub in self._hubs:
            try:
                hub.communicate(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                hub.kill()
                hub.communicate()
            if hub.returncode:
                yield f"a hub ended with exit code {hub.returncode}"


def _shape(text: str) -> list[list[str]]:
    """Return the words of each line, with every number as 0."""
    return [re.sub(r"\d+", "0", line).split() for line in text.splitlines()]
