"""Makes the table in docs/reaching.md, which shows the abilities of agent programs as the tests prove them.

A test says by `@pytest.mark.proves(ROW, busy="…")` which cells it proves, with their text. `make programs` compares the
table of the passed tests with the document; `TIELINE_PROGRAMS=update make programs` writes it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.programs.installed import version

PAGE = Path(__file__).parents[2] / "docs" / "reaching.md"

_START, _END = "<!-- programs -->\n", "<!-- /programs -->"
_UNPROVED = "–"


class Row(NamedTuple):
    """A row of the table: an agent program with its npm package, and the way in which it is connected."""

    program: str
    package: str
    way: str


CLAUDE_CODE = Row("Claude Code", "@anthropic-ai/claude-code-linux-x64", "`tieline run`")
CLAUDE_CODE_HOOKS = Row("Claude Code", "@anthropic-ai/claude-code-linux-x64", "installed hooks, `tieline mcp`")
CODEX = Row("Codex", "@openai/codex", "`tieline run`")
CODEX_HOOKS = Row("Codex", "@openai/codex", "`tieline connect`, with trust in the hooks")
GEMINI = Row("Gemini CLI", "@google/gemini-cli", "installed hooks, `tieline mcp`")
ROWS = (CLAUDE_CODE, CLAUDE_CODE_HOOKS, CODEX, CODEX_HOOKS, GEMINI)

COLUMNS = {
    "busy": "message while busy",
    "idle": "message while idle",
    "restart": "after a restart of the hub",
    "answer": "answer by tool",
    "seen": "evidence of `seen`",
    "once": "shown once",
}

Proof = tuple[Row, dict[str, str]]
"""Cells of one row that one test proves: the row, and the text of each cell by column."""


def heads() -> list[str]:
    """Return the first cells of each row: the program, its version in the lock file, and the way."""
    return [f"| {row.program} | {version(row.package)} | {row.way} |" for row in ROWS]


def filled(page: str, proofs: Iterable[Proof]) -> str:
    """Return the text of the document `page` with the table made from these proofs."""
    cells: dict[tuple[Row, str], str] = {}
    for row, proved in proofs:
        for column, text in proved.items():
            assert cells.setdefault((row, column), text) == text, f"two tests disagree about {column!r} of {row}"
    lines = [["program", "version", "way", *COLUMNS.values()], ["---"] * (3 + len(COLUMNS))]
    table = [f"| {' | '.join(line)} |" for line in lines]
    table += [
        f"{head} {' | '.join(cells.get((row, column), _UNPROVED) for column in COLUMNS)} |"
        for row, head in zip(ROWS, heads(), strict=True)
    ]
    before, start, rest = page.partition(_START)
    _, end, after = rest.partition(_END)
    assert end, "the page has no place for the table"
    return "\n".join([f"{before}{start}{table[0]}", *table[1:], f"{end}{after}"])
