"""Tests of `tieline connect` and `disconnect`, with a real hub.

Scripts that only print a version stand for the agent programs.
"""

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, run_cli, wait_until
from tests.cli.terminal import at_terminal_of

pytestmark = pytest.mark.slow

CLAUDE_FILES = (".claude.json", ".claude/settings.json")


class User:
    """A user of this machine for tests, with a home folder and a folder of installed programs."""

    def __init__(self, folder: Path, hub: HubProcess) -> None:
        self.home = folder / "user"
        self.home.mkdir()
        self.programs = folder / "programs"
        self.programs.mkdir()
        self._hub = hub
        self.install("claude", "2.1.197 (Claude Code)")

    def install(self, name: str, version: str = "1.0") -> None:
        """Install a script that only prints a version, under the name of a program."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\necho '{version}'\n", encoding="utf-8")
        path.chmod(0o700)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of this user.

        PATH has the folder of the installed programs and the system's folders.
        """
        return {"HOME": str(self.home), "PATH": f"{self.programs}:/usr/bin:/bin"}

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `tieline` as this user, with the additional environment variables `more`.

        Return the exit code and output.
        """
        return run_cli(self._hub.home, *words, env={**self.variables, **more})

    def json(self, *words: str, **more: str) -> Any:
        """Run `tieline` as this user. Return its JSON output."""
        done = self.run(*words, "--json", **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @property
    def files(self) -> dict[str, bytes]:
        """All files in the user's home, with their contents.

        For a link, the contents of the file to which it points.
        """
        return {str(path.relative_to(self.home)): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}

    def write(self, name: str, content: bytes) -> Path:
        """Write a settings file into the user's home. Return its path."""
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    return User(tmp_path, hub)


def test_without_a_yes_nothing_is_changed(user: User, hub: HubProcess) -> None:
    before = hub.member_names()
    done = user.run("connect", "claude-code", "--as", "nobody-yet")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "member nobody-yet (a new member)" in done.stdout
    assert done.stdout.count('+        "mcp",') == 1
    assert done.stdout.count("drain --hook claude-code --as nobody-yet") == 5
    assert '+      "mcp__tieline"' in done.stdout
    changed, added, allowed = done.stdout.splitlines()[-3:]
    assert changed == f"Changed: {user.home}/.claude.json, {user.home}/.claude/settings.json."
    assert added.startswith("Added: hooks, which show claude-code the messages for nobody-yet; an MCP server")
    assert allowed.startswith("Allowed: claude-code may use these tools without asking you.")
    assert "Allowed: nothing." in user.run("connect", "claude-code", "--ask", "--dry-run").stdout
    looked = user.run("connect", "claude-code", "--as", "nobody-yet", "--dry-run")
    assert (looked.returncode, "Nothing is changed." in looked.stdout) == (0, True)
    assert user.run("connect", "claude-code", "--json").returncode == 2
    assert (user.files, hub.member_names()) == ({}, before)


def test_connecting_proves_the_connection_and_disconnecting_restores_every_byte(
    user: User, hub: HubProcess, alice: str
) -> None:
    real = user.write("dotfiles", b'{\r\n\t"numStartups": 3,\r\n\t"mcpServers": {"docs": {"command": "docs"}}\r\n}')
    link = user.home / ".claude.json"
    link.symlink_to(real)
    user.write(".claude/settings.json", b'{\n  // Mine.\n  "model": "opus" }')
    before = user.files
    hub.add_members("claude-of-anna")
    (told,) = hub.send(alice, "@claude-of-anna", "hello")
    done = user.run("connect", "claude-code", "--yes", "--as", "claude-of-anna")
    assert (done.returncode, done.stderr) == (0, "")
    assert "proved: the hook shows a message to claude-of-anna" in done.stdout
    assert "proved: the MCP server starts with 9 tools and answers the message as claude-of-anna" in done.stdout
    assert "not proved: that the program itself" in done.stdout
    assert "claude-code: messages come at turn boundaries" in done.stdout
    assert 'send @claude-of-anna "Who are you?" --as me' in done.stdout
    # The canary is gone, and what really waits was not touched.
    assert not [name for name in hub.member_names() if "canary" in name]
    assert hub.states(alice, told)["claude-of-anna"] in ("pending", "offered")
    assert [
        item["message"]["id"] for item in json.loads(hub.cli("inbox", "--as", "claude-of-anna", "--json").stdout)
    ] == [told]
    # The test message and its answer are newer than the message, and only asked for they are shown.
    history = ("history", "--as", "claude-of-anna", "--json")
    assert [one["id"] for one in json.loads(hub.cli(*history, "--limit", "1").stdout)] == [told]
    assert len(json.loads(hub.cli(*history, "--canaries").stdout)) == 3
    assert list((hub.home / "run" / "hooks").iterdir()) == []
    # Again, there is nothing to do; the name is remembered.
    after = user.files
    (again,) = user.json("connect", "claude-code", "--dry-run")["programs"]
    assert (again["member"], [file["changed"] for file in again["files"]]) == ("claude-of-anna", [False, False])
    assert user.files == after
    undone = user.json("disconnect", "claude-code")
    assert undone["applied"]
    assert [file["exact"] for file in undone["files"]] == [True, True]
    assert (user.files, link.is_symlink()) == (before, True)
    assert "is not connected" in user.run("disconnect", "claude-code").stdout


def test_disconnecting_from_the_hub_of_a_home(user: User, hub: HubProcess, tmp_path: Path) -> None:
    user.json("connect", "claude-code", "--yes", "--as", "homely")
    other = user.run("disconnect", "claude-code", "--home", str(tmp_path))
    assert (other.returncode, other.stdout) == (1, "")
    assert f"claude-code is connected to the hub at {hub.home}" in other.stderr
    done = user.run("disconnect", "claude-code", "--home", str(hub.home))
    assert "If claude-code runs now, it keeps its hooks until you start it again." in done.stdout
    assert user.files == {}
    assert "is not connected" in user.run("disconnect", "claude-code", "--home", str(tmp_path)).stdout


def test_disconnecting_ends_a_server_whose_program_stays(user: User, hub: HubProcess) -> None:
    user.json("connect", "claude-code", "--yes", "--as", "stays")
    entry = json.loads(user.files[".claude.json"])["mcpServers"]["tieline"]
    words = [entry["command"], *entry["args"]]
    env, pipe = environment(hub.home, user.variables), subprocess.PIPE
    with subprocess.Popen(words, env=env, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as server:
        try:
            wait_until(lambda: hub.session_count("stays") == 1, "the session of the server")
            user.json("disconnect", "claude-code")
            assert server.wait(DEADLINE_SECONDS) == 0
            assert hub.session_count("stays") == 0
            assert server.stderr is not None
            assert b"'tieline disconnect' ended the connection" in server.stderr.read()
        finally:
            server.kill()


def test_without_a_name_all_installed_programs_are_connected(user: User, hub: HubProcess) -> None:
    user.install("codex")
    user.install("gemini")
    done = user.json("connect", "--dry-run")
    assert [each["program"] for each in done["programs"]] == ["claude-code", "codex", "gemini"]
    assert [each["member"] for each in done["programs"]] == ["claude", "codex", "gemini"]
    assert user.run("connect", "--as", "one").returncode == 2
    user.programs.joinpath("claude").unlink()
    user.programs.joinpath("gemini").unlink()
    (codex,) = user.json("connect", "--yes")["programs"]
    assert (codex["program"], len(codex["proved"]), "/hooks" in codex["advice"]) == ("codex", 2, True)
    # Nothing wakes an idle codex, so the wait for it might not end.
    assert "--wait-for" not in codex["next"][1]
    assert "codex" in hub.member_names()
    assert set(user.files) == {
        ".codex/config.toml",
        ".codex/hooks.json",
        ".codex/.config.toml.before-tieline",
        ".codex/.hooks.json.before-tieline",
    }
    user.json("disconnect", "codex")
    assert list(user.home.iterdir()) == []


def test_a_program_that_is_not_installed_is_refused(user: User) -> None:
    user.programs.joinpath("claude").unlink()
    for words in (("connect", "codex", "--yes"), ("connect", "--yes")):
        done = user.run(*words)
        assert (done.returncode, "installed" in done.stderr) == (1, True)
    assert user.files == {}


def test_without_a_hub_nothing_is_changed(user: User, tmp_path: Path) -> None:
    done = user.run("connect", "claude-code", "--yes", TIELINE_HOME=str(tmp_path / "no-hub"))
    assert (done.returncode, "serve" in done.stderr) == (4, True)
    url = user.run("connect", "claude-code", "--yes", "--url", "http://127.0.0.1:9", TIELINE_TOKEN="x")
    assert url.returncode == 4
    assert user.files == {}
    # Disconnecting needs no hub.
    assert user.run("disconnect", "claude-code", TIELINE_HOME=str(tmp_path / "no-hub")).returncode == 0


def test_names_that_no_member_may_have_are_refused_before_a_file_is_written(user: User, bob: str) -> None:
    for name, why in (("operator", "kept for the hub"), (bob.upper(), "is taken by")):
        done = user.run("connect", "claude-code", "--yes", "--as", name)
        assert (done.returncode, why in done.stderr, user.files) == (3, True, {})


@pytest.mark.parametrize("content", [b"\xff", b'{"mcpServers": {"tieline": {"command": "other"}}}'])
def test_settings_that_cannot_be_changed_are_left_alone(user: User, hub: HubProcess, content: bytes) -> None:
    user.write(".claude.json", content)
    done = user.run("connect", "claude-code", "--yes", "--as", "never-made")
    assert (done.returncode, "is not changed" in done.stderr) == (1, True)
    assert user.files == {".claude.json": content}
    assert "never-made" not in hub.member_names()


def test_a_read_only_file_stays_and_so_does_everything_else(user: User, hub: HubProcess) -> None:
    user.write(".claude/settings.json", b"{}").chmod(0o444)
    done = user.run("connect", "claude-code", "--yes", "--as", "never-made")
    assert (done.returncode, "read-only" in done.stderr) == (1, True)
    assert user.files == {".claude/settings.json": b"{}"}
    assert "never-made" not in hub.member_names()


def test_other_folders_of_settings(user: User, tmp_path: Path) -> None:
    config = tmp_path / "config"
    (named,) = user.json("connect", "claude-code", "--dry-run", "--config-home", str(config))["programs"]
    (done,) = user.json("connect", "claude-code", "--dry-run", CLAUDE_CONFIG_DIR=str(config))["programs"]
    assert done["files"] == named["files"]
    assert [file["path"] for file in done["files"]] == [str(config / ".claude.json"), str(config / "settings.json")]


def test_at_a_remote_hub_the_token_is_in_a_file_for_its_owner_alone(user: User, hub: HubProcess, bob: str) -> None:
    token = json.loads(hub.cli("member", "rotate", bob, "--json").stdout)["token"]
    words = ("connect", "claude-code", "--yes", "--url", hub.running.http)
    (done,) = user.json(*words, TIELINE_TOKEN=token)["programs"]
    assert (done["member"], done["problems"], len(done["proved"])) == (bob, [], 2)
    assert token not in json.dumps(done)
    kept = user.home / ".claude" / ".tieline-token"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == (token, 0o600)
    others = {name: content for name, content in user.files.items() if not name.endswith(kept.name)}
    assert not [name for name, content in others.items() if token.encode() in content]
    settings = json.loads(others[".claude.json"])["mcpServers"]["tieline"]
    record = user.home / ".claude.json.before-tieline"
    assert settings["args"][-4:] == [str(kept), "--no-push", "--while", str(record)]
    # A wrong token, or a token that others could read, is refused.
    assert user.run(*words, TIELINE_TOKEN="wrong").returncode == 3
    inbox = ("inbox", "--url", hub.running.http, "--token-file", str(kept))
    assert user.run(*inbox).returncode == 0
    kept.chmod(0o640)
    assert "other users" in user.run(*inbox).stderr
    user.json("disconnect", "claude-code")
    assert list(user.home.iterdir()) == []


def test_a_person_is_asked(user: User, hub: HubProcess) -> None:
    words = (str(TIELINE), "connect", "claude-code", "--as", "asked")
    for answer, code in (("n\n", 0), ("\x03", 130), ("y\n", 0)):
        assert user.files == {}
        with at_terminal_of(*words, env=environment(hub.home, user.variables)) as person:
            person.sees("Make this change?")
            person.type(answer)
            assert person.leaves() == code
            assert (b"Nothing is changed." in person.everything()) is (answer == "n\n")
    assert set(CLAUDE_FILES) <= set(user.files)


def test_a_connection_that_does_not_work_is_told(user: User) -> None:
    assert user.run("hooks", "install", "claude-code", "--apply", "--as", "broken").returncode == 0
    # With this variable our MCP server looks for a runner. Claude Code hands its whole environment on.
    done = user.run("connect", "claude-code", "--yes", "--as", "broken", AC7_RUNNER_SOCKET=str(user.home / "none"))
    assert done.returncode == 1
    assert "proved: the hook shows a message to broken" in done.stdout
    assert "failed: the MCP server does not answer: tieline: " in done.stderr
    refused = user.run("hooks", "install", "claude-code", "--undo")
    assert (refused.returncode, "tieline disconnect" in refused.stderr) == (3, True)
    # Another program has written the file, and takes an older state for the current one: the connection is mended.
    path = user.home / ".claude" / "settings.json"
    path.write_text(path.read_text().replace("--as broken", "--as gone-away").replace("{", '{ "theirs": 1,', 1))
    mended = user.run("connect", "claude-code", "--yes", "--ask")
    assert (mended.returncode, "--as broken" in path.read_text(), "mcp__tieline" in path.read_text()) == (
        0,
        True,
        False,
    )
    done = user.run("disconnect", "claude-code")
    assert json.loads(path.read_bytes()) == {"theirs": 1}


def test_a_hook_of_a_connection_is_silent_in_a_run_of_another_member(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "for bob alone")
    words = ("drain", "--hook", "claude-code", "--as", bob, "--tools")
    run = {"TIELINE_RUN_FOLDER": str(hub.home / "run"), "TIELINE_AGENT": alice}
    assert hub.cli(*words, stdin="{}", env=run).stdout == ""
    shown = hub.cli(*words, stdin="{}").stdout
    assert "for bob alone" in shown
    assert "Your tieline tools answer" in shown
