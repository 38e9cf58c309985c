"""Golden test of the command line: JSON output and exit codes of its commands, and `run.json`.

A golden test records a conversation as a text, and compares the text with the stored one.
"""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.cli.hub_process import environment
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.server.hubs import WAIT_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_CONFIGURATION = '[backchannel]\nroom_token = "the token of the room"\n'
_HOOK = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "."}
_JSON = ("{", "[")
_EVERYTHING = ("members.manage", "team.manage", "log.read", "activity.read", "objectives.create")


class Shell:
    """Test helper: runs commands of `tieline` in a separate process, and records their arguments and JSON output."""

    def __init__(self, there: Stage, process: asyncio.subprocess.Process) -> None:
        self.stage = there
        self._process = process

    async def run(self, *argv: str, stdin: str = "", settled: bool = True, **env: str) -> Any:
        """Run a command and record its exit code and JSON. Return its decoded JSON output, or `None`.

        With `settled`, wait first until the hub is idle, and move the clock. `env` are further environment variables.
        """
        if settled:
            await self.stage.turn()
        done = await self.end(*argv, stdin=stdin, **env)
        # Sentences for people are nobody's wire.
        lines = [text for text in (done["out"], done["err"]) if text.startswith(_JSON) or "--hook" in argv]
        self.stage.recorder.heard("$", f"exit {done['exit']}", *filter(None, lines))
        return json.loads(done["out"]) if done["out"].startswith(_JSON) else None

    async def end(self, *argv: str, stdin: str = "", **env: str) -> Any:
        """Run a command to its end, with any exit code. Return its exit code, output and error output."""
        variables = (f"{name}={value}" for name, value in env.items())
        self.stage.recorder.said("$", " ".join([*variables, "tieline", *(_quoted(word) for word in argv)]))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "stdin": stdin, "env": env}).encode() + b"\n")
        async with asyncio.timeout(2 * WAIT_SECONDS):
            done = json.loads(await self._process.stdout.readline())
        return {name: value.strip("\n") if isinstance(value, str) else value for name, value in done.items()}


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word or not word else word


@contextlib.asynccontextmanager
async def shell(there: Stage, folder: Path) -> AsyncIterator[Shell]:
    """Start the process that runs commands, in a folder outside of any repository, and yield it."""
    env = environment(there.there.home, {"PYTHONPATH": str(_ROOT)})
    command = (sys.executable, "-m", "tests.golden.shell")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env, cwd=folder, limit=2**24)
    try:
        yield Shell(there, process)
    finally:
        process.kill()
        await process.communicate()


async def play(folder: Path, recorder: Recorder) -> None:
    """Run every command that prints JSON, and record the conversation."""
    recorder.know(str(folder), "folder")
    recorder.expect("pid", r'"pid": ?(\d+)')
    recorder.expect("invite", r"bch1-([A-Za-z0-9_-]+)")
    recorder.expect("peerbus", r"ws://(127\.0\.0\.1:\d+)")
    options = {"peerbus_listen": "127.0.0.1:0"}
    async with stage(folder, recorder, _CONFIGURATION, **options) as there, shell(there, folder) as typed:
        await there.there.add("ada", permissions=_EVERYTHING)
        await there.there.add("bob")
        recorder.section("run.json")
        recorder.heard("run.json", (there.there.home / "run.json").read_text())
        recorder.section("members")
        await _members(typed)
        recorder.section("messages")
        await _messages(typed)
        recorder.section("channels and pauses")
        await _channels(typed)
        recorder.section("objectives")
        await _objectives(typed)
        recorder.section("the hub")
        await _hub(typed)
        recorder.section("failures")
        await _failures(typed)
        recorder.section("a spool without a hub")
        await _spool(typed, folder / "spool")
        recorder.section("no hub runs")
        await there.there.hub.stop()
        await typed.run("members", "--json", settled=False)
        await typed.run("audit", "verify", "--json", settled=False)
        await typed.run("objectives", "list", "--as", "ada", "--json", settled=False)


async def _members(typed: Shell) -> None:
    await typed.run("member", "add", "cid", "--kind", "script", "--permission", "log.read", "--json")
    await typed.run("member", "kind", "cid", "agent", "--json")
    await typed.run("member", "alias", "bob", "robert", "--json")
    await typed.run("member", "reach", "bob", "--way", "push=60", "--way", "notify", "--notify", "ada", "--json")
    await typed.run("member", "reach", "bob", "--clear", "--json")
    await typed.run("member", "rotate", "cid", "--json")
    await typed.run("member", "list", "--json")
    await typed.run("member", "remove", "cid", "--json")
    await typed.run("members", "--json")
    await typed.run("whoami", "--as", "ada", "--json")


async def _messages(typed: Shell) -> None:
    more = ("--urgent", "--title", "T", "--thread", "t-1", "--ref", "r", "--level", "warning", "--data", '{"k":1}')
    sent = (await typed.run("send", "@bob", "hello bob", *more, "--as", "ada", "--json"))["id"]
    await typed.run("send", "@bob", "-", "--as", "ada", "--json", stdin="from stdin\n")
    await typed.run("send", "*", "to everybody", "--as", "ada", "--json")
    for program in ("claude-code", "codex", "gemini"):
        await typed.run("drain", program, "--hook", "--as", "bob", stdin=json.dumps(_HOOK))
        await typed.run("send", "@bob", f"to {program}", "--as", "ada", "--json")
    await typed.run("inbox", "--json", TIELINE_AGENT="bob")
    await typed.run("inbox", "--digest", "--as", "bob", "--json")
    await typed.run("receipts", sent, "--as", "ada", "--json")
    await typed.run("take", sent, "--as", "bob", "--json")
    await typed.run("take", sent, "--as", "bob", "--json")
    await typed.run("history", "--as", "bob", "--limit", "1", "--json")
    await typed.run("history", "ada", "--as", "bob", "--json")
    await typed.run("search", "hello", "--as", "ada", "--from", "ada", "--in", "@bob", "--since", "2h", "--json")
    waiting = await typed.run("inbox", "--as", "bob", "--json")
    await typed.run("discard", waiting[0]["message"]["id"], "--because", "not mine", "--as", "bob", "--json")
    await typed.run("drain", "--as", "bob", "--json")
    await typed.run("send", "@bob", "seen?", "--wait-for", "seen", "--timeout", "1", "--as", "ada", "--json")


async def _channels(typed: Shell) -> None:
    await typed.run("sub", "builds", "--as", "bob", "--json")
    await typed.run("channels", "--as", "bob", "--json")
    await typed.run("unsub", "#builds", "--as", "bob", "--json")
    await typed.run("pause", "@ada+@bob", "--json")
    await typed.run("pause", "--json")
    await typed.run("resume", "@ada+@bob", "--json")
    await typed.run("allow", "@ada+@bob", "--for", "1h", "--json")


async def _objectives(typed: Shell) -> None:
    make = ("objectives", "create", "Port", "it", "--outcome", "It runs", "--assignee", "bob", "--as", "ada", "--json")
    made = (await typed.run(*make))["id"]
    await typed.run("objectives", "block", made, "no", "key", "--as", "bob", "--json")
    await typed.run("objectives", "unblock", made, "--as", "bob", "--json")
    await typed.run("objectives", "discuss", made, "in", "the", "thread", "--as", "bob", "--json")
    await typed.run("objectives", "list", "--as", "bob", "--json")
    await typed.run("objectives", "complete", made, "it", "runs", "--as", "bob", "--json")
    await typed.run("objectives", "view", made, "--as", "bob", "--json")
    await typed.run("objectives", "list", "--all", "--as", "ada", "--json")


async def _hub(typed: Shell) -> None:
    await typed.run("login", "ada", "--json")
    await typed.run("invite", "--json")
    await typed.run("audit", "verify", "--json")
    await typed.run("audit", "checkpoint", "--json")
    # The findings differ on each machine.
    found = json.loads((await typed.end("doctor", "--json"))["out"])
    typed.stage.recorder.heard("$", *(f"{key}: {type(value).__name__}" for key, value in found.items()))


async def _spool(typed: Shell, root: Path) -> None:
    here = ("--spool", str(root), "--json")
    await typed.run("inbox", "--as", "bob", *here)
    await typed.run("sub", "builds", "--as", "bob", *here)
    more = ("--urgent", "--scope", "github.com/x/y", "--thread", "t-1", "--ref", "r")
    sent = await typed.run("send", "@bob", "hello bob", *more, "--as", "ada", *here)
    await typed.run("inbox", "--as", "bob", *here)
    await typed.run("take", sent["id"], "--as", "bob", *here)
    await typed.run("send", "#builds", "to a channel", "--as", "ada", *here)
    await typed.run("drain", "--as", "bob", *here)
    await typed.run("members", *here)
    await typed.run("channels", *here)
    await typed.run("whoami", "--as", "bob", *here)
    await typed.run("send", "@nobody", "x", "--as", "ada", *here)


async def _failures(typed: Shell) -> None:
    await typed.run("send", "@nobody", "x", "--as", "ada", "--json")
    await typed.run("send", "@bob", "--as", "ada", "--json")
    await typed.run("send", "@bob", "x", "--as", "not a name", "--json")
    await typed.run("whoami", "--token", "tie_wrong", "--json")
    await typed.run("receipts", "none", "--as", "ada", "--json")
    await typed.run("objectives", "view", "obj-0", "--as", "ada", "--json")
    await typed.run("inbox", "--no-such-option")
    await typed.run("no-such-command")
