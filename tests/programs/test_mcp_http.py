"""Tests of the real agent programs with the hub's MCP server over HTTP, without any local part of Tieline."""

import json

import pytest

from tests.cli.hub_process import HubProcess
from tests.programs.conversation import ANSWER, is_answered, run_once, shown
from tests.programs.installed import ProgramHome, claude_code, codex, gemini
from tests.programs.model import Line, ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LOOK = Line("look around", call=("drain", {"wait": 30}))
"""Line of the scripted model: it takes its messages with the tool `drain`."""


@pytest.fixture
def token(hub: HubProcess) -> str:
    """Fixture: a new token of bob."""
    return str(json.loads(hub.cli("member", "rotate", "bob", "--json").stdout)["token"])


def check(hub: HubProcess, model: ScriptedModel, asked: str) -> None:
    """Check that the model got alice's question once, and that the answer reached alice.

    `asked` is the question's id.
    """
    assert is_answered(hub, asked, "ANSWER to QUESTION")
    assert len(shown(model, "QUESTION")) == 1
    assert model.unknown == []


def test_claude_code_drains_and_answers(hub: HubProcess, home: ProgramHome, token: str) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER, LOOK) as model:
        # In one-shot mode Claude Code waits 2 s for MCP servers unless it is told to wait.
        waits = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
        variables = {**claude_code(home, model), **waits}
        program, url = variables["CLAUDE_PATH"], f"{hub.running.http}/mcp"
        header = f"Authorization: Bearer {token}"
        run_once([program, "mcp", "add", "--transport", "http", "tieline", url, "--header", header], home, variables)
        run_once([program, "-p", "look around", "--allowedTools", "mcp__tieline"], home, variables)
        check(hub, model, asked)


def test_codex_drains_and_answers(hub: HubProcess, home: ProgramHome, token: str) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER, LOOK) as model:
        variables = {**codex(home, model), "TIELINE_TOKEN": token}
        program, url = variables["CODEX_PATH"], f"{hub.running.http}/mcp"
        run_once(
            [program, "mcp", "add", "tieline", "--url", url, "--bearer-token-env-var", "TIELINE_TOKEN"], home, variables
        )
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        run_once([program, "exec", *options, "look around"], home, variables)
        check(hub, model, asked)


def test_gemini_drains_and_answers(hub: HubProcess, home: ProgramHome, token: str) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER, LOOK) as model:
        headers = {"Authorization": f"Bearer {token}"}
        server = {"httpUrl": f"{hub.running.http}/mcp", "headers": headers, "trust": True}
        program, variables = gemini(home, model, mcpServers={"tieline": server})
        run_once([*program, "-p", "look around"], home, variables)
        check(hub, model, asked)
