"""Tests of `tieline run claude-code` with a real hub, and a stand-in (a script) in place of Claude Code."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.agents.runs import PATH, STANDINS, StandIn, activity, is_alive, stand_in
from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, wait_until
from tests.cli.terminal import at_terminal
from tieline.agents.claude_code import command_of, settings_of, shows_pushes, without_settings
from tieline.client import Complete


@pytest.fixture
def claude(hub: HubProcess, bob: str, folder: Path) -> Iterator[StandIn]:
    with stand_in(hub, bob, "claude-code", folder, args=("--model", "x")) as run:
        # Its MCP server has answered twice: it is there, and it has tools.
        run.wait_for("heard", 2)
        yield run


def pushed(run: StandIn) -> list[dict[str, Any]]:
    """Return the parameters of the channel notifications (pushed messages) that the stand-in received."""
    heard = [note["message"] for note in run.notes("heard")]
    return [one["params"] for one in heard if one.get("method") == "notifications/claude/channel"]


def test_flags_that_take_many_values_swallow_nothing_of_the_users() -> None:
    config, settings = Path("/c"), Path("/s")
    channel = "--dangerously-load-development-channels=server:tieline"
    assert command_of("claude", ["fix it"], config=config, settings=settings, push=True) == [
        *("claude", "--mcp-config=/c", "--settings=/s", channel, "fix it")
    ]
    assert command_of("claude", ["-p", "hi"], config=config, settings=settings, push=False) == [
        *("claude", "--mcp-config=/c", "--settings=/s", "-p", "hi")
    ]


@pytest.mark.parametrize("given", [["--settings", '{"model": "opus"}'], ['--settings={"model": "opus"}']])
def test_the_users_settings_stay_beside_ours(given: list[str]) -> None:
    rest, users = without_settings(["--model", "x", *given, "fix it"])
    assert rest == ["--model", "x", "fix it"]
    assert users is not None
    made = json.loads(settings_of(users, wake=True, ask=False))
    assert made["model"] == "opus"
    assert made["permissions"] == {"allow": ["mcp__tieline"]}
    waits = [hook for event in ("SessionStart", "Stop") for group in made["hooks"][event] for hook in group["hooks"]]
    assert [hook["command"].endswith(" --wait") for hook in waits] == [True, False, True]
    assert [hook.get("asyncRewake") for hook in waits] == [True, None, True]
    asked = json.loads(settings_of('{"permissions": {"deny": ["Bash"]}}', wake=False, ask=True))
    assert asked["permissions"] == {"deny": ["Bash"]}
    assert "asyncRewake" not in json.dumps(asked)


def test_where_nobody_could_be_asked_about_channels_nothing_is_pushed() -> None:
    assert shows_pushes(["--model", "x"])
    assert not shows_pushes(["--model", "x", "-p", "hi"])


@pytest.mark.slow
def test_a_message_is_pushed_an_answer_is_evidence_and_the_end_leaves_nothing(
    hub: HubProcess, bob: str, claude: StandIn
) -> None:
    (started,) = claude.notes("started")
    assert (started["argv"][-2:], started["mode"]) == (["--model", "x"], 0o600)
    (quiet,) = hub.send("alice", f"@{bob}", "hello </channel>")
    wait_until(lambda: pushed(claude), "a push")
    (params,) = pushed(claude)
    assert params["content"] == "hello &lt;/channel>"
    assert (params["meta"]["from"], params["meta"]["msg_id"]) == ("alice", quiet)
    assert hub.states("alice", quiet)[bob] == "offered"
    (asked,) = hub.send("alice", f"@{bob}", "TOOL")
    wait_until(lambda: hub.states("alice", asked)[bob] == "acked", "an answer")
    # The transcript has both messages and an answer of the model behind them, and the hooks show neither again.
    wait_until(lambda: hub.states("alice", quiet)[bob] == "seen", "the transcript as evidence")
    assert "hello" not in "".join(note["output"] for note in claude.notes("hook"))
    hub.send("alice", f"@{bob}", "EXIT")
    assert claude.process.wait(DEADLINE_SECONDS) == 0
    claude.leaves_nothing()


@pytest.mark.slow
def test_where_nothing_is_pushed_hooks_of_this_run_show_what_waits(hub: HubProcess, bob: str, folder: Path) -> None:
    (waiting,) = hub.send("alice", f"@{bob}", "hello")
    with stand_in(hub, bob, "claude-code", folder, "--no-push") as run:
        begin, prompt, stop = run.wait_for("hook", 3)
        assert [hook["event"] for hook in (begin, prompt, stop)] == ["SessionStart", "UserPromptSubmit", "Stop"]
        said = json.loads(begin["output"])
        assert "hello" in said["hookSpecificOutput"]["additionalContext"]
        assert "your tieline tools" in said["hookSpecificOutput"]["additionalContext"].lower()
        assert "systemMessage" not in said
        assert (prompt["output"], stop["output"]) == ("", ""), "nothing is shown twice"
        wait_until(lambda: hub.states("alice", waiting)[bob] == "seen", "the model's answer as evidence")
        run.wait_for("heard", 2)
        assert not pushed(run)
        assert run.signal(signal.SIGTERM) != 0
        run.leaves_nothing()
        assert run.process.stderr is not None
        assert "messages come at turn boundaries; this version cannot be woken" in run.process.stderr.read()


@pytest.mark.slow
def test_where_pushes_are_off_hooks_show_them_once_and_say_so(hub: HubProcess, bob: str, folder: Path) -> None:
    with stand_in(hub, bob, "claude-code", folder, STANDIN_CHANNELS="off") as run:
        run.wait_for("heard", 2)
        (lost,) = hub.send("alice", f"@{bob}", "hello")
        wait_until(lambda: pushed(run), "a push")
        assert hub.states("alice", lost)[bob] == "offered"
        # The next message makes the program take a turn. A message that was pushed just now is left to the push.
        wait_until(lambda: time.time() - run.notes("heard")[-1]["at"] > 0.6, "the time of a push")
        hub.send("alice", f"@{bob}", "TOOL")
        wait_until(lambda: hub.states("alice", lost)[bob] == "seen", "the model's answer as evidence")
        shown = [note["output"] for note in run.notes("hook") if "hello" in note["output"]]
        assert len(shown) == 1
        assert "pushes are off" in json.loads(shown[0])["systemMessage"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_runner_is_ended(
    hub: HubProcess, bob: str, claude: StandIn, number: signal.Signals
) -> None:
    code = claude.signal(number)
    assert code == -number if number is signal.SIGKILL else code != 0
    claude.leaves_nothing()
    wait_until(lambda: hub.session_count(bob) == 0, "the end of the session")


@pytest.mark.slow
def test_a_crash_of_the_program_leaves_nothing_and_is_our_exit_code(claude: StandIn) -> None:
    claude.crash()
    assert claude.process.wait(DEADLINE_SECONDS) == 128 + signal.SIGSEGV
    claude.leaves_nothing()


@pytest.mark.slow
def test_a_program_that_will_not_end_is_killed_with_the_runner(hub: HubProcess, bob: str, folder: Path) -> None:
    stubborn = folder / "stubborn"
    stubborn.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\n'
        f"trap '' TERM INT\necho $$ > {folder}/pid\nwhile :; do sleep 0.1; done\n",
        encoding="utf-8",
    )
    stubborn.chmod(0o700)
    with subprocess.Popen(
        [str(TIELINE), "run", "--as", bob, "claude-code"],
        env=environment(hub.home, {"CLAUDE_PATH": str(stubborn)}),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "the program")
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGKILL
    wait_until(lambda: not is_alive(int((folder / "pid").read_text())), "its end")


@pytest.mark.slow
def test_the_program_has_the_terminal(hub: HubProcess, bob: str, folder: Path) -> None:
    log = folder / "log"
    env = {"STANDIN_LOG": str(log), "CLAUDE_PATH": str(STANDINS / "claude"), "PATH": PATH}
    with at_terminal(hub.home, "--as", bob, "claude-code", env=env) as person:
        wait_until(lambda: log.exists() and log.read_text().count("heard") >= 2, "the program")
        assert json.loads(log.read_text().splitlines()[0])["terminal"] is True
        # The terminal's signal reaches both processes. It ends the program, and the program's end ends `tieline`.
        person.type("\x03")
        assert person.leaves() == 128 + signal.SIGINT


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_program_leaves_the_terminal_as_it_was(
    hub: HubProcess, bob: str, folder: Path, number: signal.Signals
) -> None:
    program = folder / "program"
    program.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\ntrap '' TERM\nstty raw -echo\nexec sleep 60\n", encoding="utf-8"
    )
    program.chmod(0o700)
    with at_terminal(hub.home, "--as", bob, "claude-code", env={"CLAUDE_PATH": str(program)}) as person:
        before = person.attributes()
        wait_until(lambda: person.is_raw, "a raw terminal")
        person.process.send_signal(number)
        person.leaves()
        wait_until(lambda: person.attributes() == before, "the terminal as it was")


@pytest.mark.slow
def test_a_program_that_stops_stops_the_run_and_both_go_on_together(hub: HubProcess, bob: str, folder: Path) -> None:
    program = folder / "program"
    program.write_text("#!/bin/sh\nkill -STOP $$\necho back\nexit 7\n", encoding="utf-8")
    program.chmod(0o700)
    with at_terminal(hub.home, "--as", bob, "claude-code", env={"CLAUDE_PATH": str(program)}) as person:
        stat = Path(f"/proc/{person.process.pid}/stat")
        wait_until(lambda: stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T", "a stop")
        os.killpg(person.process.pid, signal.SIGCONT)
        person.sees("back")
        assert person.leaves() == 7


@pytest.mark.slow
def test_objectives_are_marked_in_the_activity_and_refresh_the_tools(
    hub: HubProcess, bob: str, claude: StandIn
) -> None:
    async def give(title: str) -> str:
        async with await hub.connect("alice") as alice, await hub.connect() as operator:
            await operator.update_member("alice", permissions=("objectives.create",))
            return (await alice.create_objective(title, "it works", bob)).id

    async def complete(objective: str) -> None:
        async with await hub.connect(bob) as client:
            await client.change_objective(objective, Complete("it does"))

    def marks() -> list[tuple[str, str, str | None]]:
        rows = [row.event for row in reversed(activity(hub, bob)) if row.kind.startswith("objective")]
        return [(row["kind"], row["objectiveId"], row.get("result")) for row in rows]

    first, second = asyncio.run(give("build it")), asyncio.run(give("test it"))
    wait_until(lambda: len(marks()) == 2, "marks of the opening")
    asyncio.run(complete(first))
    wait_until(lambda: ("objective_close", first, "done") in marks(), "a mark of the end")
    changed = [note for note in claude.notes("heard") if "list_changed" in str(note["message"].get("method"))]
    assert changed
    hub.send("alice", f"@{bob}", "EXIT")
    assert claude.process.wait(DEADLINE_SECONDS) == 0
    assert marks()[-1] == ("objective_close", second, "runner_shutdown")


@pytest.mark.slow
def test_what_the_program_reports_is_in_the_activity_log(hub: HubProcess, bob: str, claude: StandIn) -> None:
    hub.send("alice", f"@{bob}", "REPORT")
    claude.wait_for("reported")
    wait_until(lambda: activity(hub, bob), "an upload")
    (row,) = activity(hub, bob)
    assert (row.kind, row.event["entry"]["response"]["usage"]["outputTokens"]) == ("llm_exchange", 4)


class Api(BaseHTTPRequestHandler):
    """Test double for Anthropic's Messages API.

    It answers every request with the same message, which contains a secret.
    """

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/messages"
        body = json.dumps(
            {
                "type": "message",
                "id": "msg_1",
                "model": "m",
                "content": [{"type": "text", "text": "my key is sk-ant-secretsecretsecret"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 7},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, so that the server writes no request log to the test's output."""


@pytest.mark.slow
def test_a_traced_exchange_is_in_the_activity_log_without_its_secrets(hub: HubProcess, bob: str, folder: Path) -> None:
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{api.server_port}"
        with stand_in(hub, bob, "claude-code", folder, "--trace", ANTHROPIC_BASE_URL=base) as run:
            run.wait_for("heard", 2)
            hub.send("alice", f"@{bob}", "API")
            (called,) = run.wait_for("api")
            assert json.loads(called["body"])["id"] == "msg_1"
            wait_until(lambda: activity(hub, bob), "an upload")
            (row,) = activity(hub, bob)
    finally:
        api.shutdown()
        api.server_close()
    entry = row.event["entry"]
    assert entry["request"]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert entry["response"]["usage"]["inputTokens"] == 10
    assert "secretsecret" not in json.dumps(row.event)


@pytest.mark.slow
def test_options_of_the_runners_are_not_for_other_programs(hub: HubProcess, bob: str) -> None:
    for args in (
        ["--trace", "--", "true"],
        ["--approve", "claude-code"],
        ["--inject", "codex"],
        ["--no-push", "codex"],
    ):
        done = hub.cli("run", "--as", bob, *args)
        assert done.returncode == 2, done
    # Behind `--` it is a program like any other.
    path = f"{STANDINS}{os.pathsep}{PATH}"
    done = hub.cli("run", "--as", bob, "--", "codex", env={"PATH": path, "STANDIN_LOG": os.devnull})
    assert done.returncode == 1
    assert "IndexError" in done.stdout
