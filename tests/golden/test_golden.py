"""Tests that every protocol of the hub sends the same bytes as in its recorded transcript.

After an intended change, `TIELINE_GOLDEN=write .venv/bin/pytest tests/golden` writes the transcripts anew. `git diff`
then shows the effect of the change on the protocols.
"""

import difflib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.golden import (
    ac7,
    ac7_activity,
    ac7_files,
    ac7_login,
    ac7_team,
    agent_channels,
    agent_relay,
    api,
    backchannel,
    cli,
    console,
    mcp,
    mcp_http,
    native,
    native_team,
    peerbus,
    spool,
)
from tests.golden.documents import documents, written
from tests.golden.recorder import Clock, Recorder
from tests.protocols.peerbus.peers import CARRIERS

TRANSCRIPTS = Path(__file__).with_name("transcripts")
VARIABLE = "TIELINE_GOLDEN"

pytestmark = pytest.mark.slow

Script = Callable[[Path, Recorder], Awaitable[None]]

SCRIPTS: dict[str, Script] = {
    "native": native.play,
    "native_team": native_team.play,
    "native_stream": api.play_stream,
    "api": api.play,
    "agent_channels": agent_channels.play,
    "agent_relay": agent_relay.play,
    "backchannel": backchannel.play,
    "spool": spool.play,
    "peerbus": peerbus.play,
    "peerbus_doors": peerbus.play_doors,
    "ac7": ac7.play,
    "ac7_team": ac7_team.play,
    "ac7_activity": ac7_activity.play,
    "ac7_files": ac7_files.play,
    "ac7_login": ac7_login.play,
    "console": console.play,
    **mcp.SETS,
    "mcp_pushed": mcp.play_pushed,
    "mcp_newer": mcp.play_newer,
    "mcp_http": mcp_http.play,
    "cli": cli.play,
}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Fixture: a recorder with an empty transcript, and a clock that only the test moves."""
    clock = Clock()
    clock.install(monkeypatch)
    return Recorder(clock)


def compare(name: str, text: str) -> None:
    """Compare a text with the stored one of this name, or store it if `TIELINE_GOLDEN` is `write`."""
    path = TRANSCRIPTS / name
    if os.environ.get(VARIABLE) == "write":
        path.write_text(text, encoding="utf-8")
        return
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != before:
        lines = difflib.unified_diff(
            before.split("\n"), text.split("\n"), f"{name} as it was", f"{name} now", lineterm=""
        )
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.parametrize("wire", SCRIPTS)
async def test_a_wire_says_what_it_said(wire: str, folder: Path, recorder: Recorder) -> None:
    try:
        await SCRIPTS[wire](folder, recorder)
    except Exception as error:
        error.add_note(f"the end of its transcript:\n{recorder.text[-3000:]}")
        raise
    compare(f"{wire}.txt", recorder.text)


@pytest.mark.parametrize("carrier", CARRIERS[1:])
async def test_peerbus_says_the_same_over_every_carrier(carrier: str, folder: Path, recorder: Recorder) -> None:
    await peerbus.play(folder, recorder, carrier)
    compare("peerbus.txt", recorder.text)


async def test_the_documents_say_what_they_said(folder: Path, recorder: Recorder) -> None:
    found = await documents(folder, recorder)
    for name, document in found.items():
        compare(f"{name}.json", written(document))
    compare("documents.txt", recorder.text)
