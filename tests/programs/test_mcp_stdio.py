"""Tests of the real agent programs with Tieline's MCP server on stdin and stdout, and of the time they wait for it."""

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, environment
from tests.programs.conversation import ANSWER, is_answered, run_once, shown, with_late_server
from tests.programs.installed import ProgramHome, claude_code, codex
from tests.programs.model import Line, ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LOOK = Line("look around", call=("drain", {}))
"""Line of the scripted model: it takes its messages with the tool `drain`."""
LATE_SECONDS = 6.0
"""Delay of an MCP server that is longer than the programs wait for it in their one-shot modes."""


def offered(model: ScriptedModel) -> bool:
    """Return true if the program offered Tieline's tools to the model in its first turn."""
    (first,) = model.told("look around")[:1]
    return any("tieline" in tool for tool in first.tools)


@pytest.mark.parametrize("options", [(), ("--no-push",)])
def test_claude_code_drains_and_answers(options: tuple[str, ...], hub: HubProcess, home: ProgramHome) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER, LOOK) as model:
        variables = environment(hub.home, {**claude_code(home, model), "MCP_CONNECTION_NONBLOCKING": "0"})
        program = variables["CLAUDE_PATH"]
        run_once(
            [program, "mcp", "add", "tieline", "--", str(TIELINE), "mcp", "--as", "bob", *options], home, variables
        )
        run_once([program, "-p", "look around", "--allowedTools", "mcp__tieline"], home, variables)
        assert is_answered(hub, asked, "ANSWER to QUESTION")
        assert len(shown(model, "QUESTION")) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_one_shot_mode_of_claude_code_waits_for_a_late_server_only_if_it_is_told_to(
    waits: bool, hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel() as model:
        variables = with_late_server(home, environment(hub.home, claude_code(home, model)), LATE_SECONDS)
        program = variables["CLAUDE_PATH"]
        run_once([program, "mcp", "add", "tieline", "--", str(TIELINE), "mcp", "--as", "bob"], home, variables)
        if waits:
            variables |= {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
        run_once([program, "-p", "look around", "--allowedTools", "mcp__tieline"], home, variables)
        assert offered(model) is waits


@pytest.mark.parametrize("required", [False, True])
def test_one_shot_mode_of_codex_waits_for_a_late_server_only_if_it_is_required(
    required: bool, hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel() as model:
        variables = with_late_server(home, environment(hub.home, codex(home, model)), LATE_SECONDS)
        done = hub.cli("connect", "codex", "--as", "bob", "--yes", env=codex(home, model))
        assert done.returncode == 0, done.stderr
        # Codex passes few variables on to a server.
        late = f'mcp_servers.tieline.env={{PYTHONPATH="{variables["PYTHONPATH"]}"}}'
        words = [variables["CODEX_PATH"], "exec", "--skip-git-repo-check", "-c", late]
        words += ["-c", "mcp_servers.tieline.required=true"] if required else []
        run_once([*words, "look around"], home, variables)
        assert offered(model) is required
