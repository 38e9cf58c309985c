"""Tests of completion, in the shells themselves: a person types the beginning of a name, and the key Tab."""

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, environment, run_cli, wait_until
from tests.cli.terminal import Person, at_terminal_of

START = {
    "bash": ("--noprofile", "--rcfile", "{rc}", "-i"),
    "zsh": ("-d", "-i"),
    "fish": ("--no-config", "-i", "-C", "source {rc}"),
}
BEFORE = {
    "bash": "PS1='ready> '; bind 'set enable-bracketed-paste off'\n",
    "zsh": "PS1='ready> '; autoload -U compinit; compinit -D\n",
    "fish": "function fish_prompt; echo -n 'ready> '; end\n",
}
LOADER = Path("/usr/share/bash-completion/bash_completion")
"""The script of the package bash-completion, which the help names."""
SHELLS = [pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"no {name}")) for name in START]


# Stands for `tieline`: knows these names, and shows the words of any other call.
STAND_IN = """#!/bin/sh
[ "$1" = complete-words ] || { printf '<%s>' "$@"; echo; exit; }
for last; do :; done
case $last in
    *obj:*) echo 'obj:3' ;;
    *+@*) echo '@ada+@maria' ;;
    --as=*) echo '--as=maria' ;;
    *'#'*) echo '#general' ;;
    *@*) echo '@maria' ;;
    *) echo 'maria' ;;
esac
"""


@contextmanager
def shell(name: str, home: Path, folder: Path, programs: Path = TIELINE.parent) -> Iterator[Person]:
    """Start a shell with completion on a new terminal. Yield the person at the terminal.

    The shell finds `tieline` in the folder `programs`.
    """
    script = run_cli(home, "completion", name).stdout
    rc = folder / (".zshrc" if name == "zsh" else "rc")
    rc.write_text(f"{BEFORE[name]}{script}")
    path = f"{programs}:{os.environ['PATH']}"
    env = environment(home, {"PATH": path, "HOME": str(folder), "ZDOTDIR": str(folder), "TERM": "xterm"})
    arguments = [word.format(rc=shlex.quote(str(rc)) if name == "fish" else rc) for word in START[name]]
    with at_terminal_of(shutil.which(name) or name, *arguments, env=env, cwd=folder) as person:
        person.sees("ready> ")
        yield person


def ask(person: Person, keys: str, answer: str) -> None:
    """Type a line, and wait for a text on the screen and the next prompt. A shell may drop keys before its prompt."""
    person.type(f"{keys}\r")
    person.sees(answer)
    wait_until(lambda: b"ready> " in person.seen.rpartition(answer.encode())[2], "the next prompt")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_completes_commands_options_and_names(name: str, hub: HubProcess, bob: str, tmp_path: Path) -> None:
    user = f"{name}-user"
    hub.cli("member", "add", user)
    hub.cli("sub", f"{name}-talk", "--as", bob)
    with shell(name, hub.home, tmp_path) as person:
        # Each line is run as it was completed, so the answer of the hub shows that the names are right.
        ask(person, f"tieline hist\t'#{name}-t\t--as {name}-u\t", "No messages yet.")
        ask(person, f"tieline send @{name}-u\t'one two' --as={bob}", "accepted for 1 recipient")
        person.type("exit\r")
        assert person.leaves() == 0


def test_the_example_puts_the_script_where_bash_finds_it(tmp_path: Path) -> None:
    line = next(line for line in run_cli(tmp_path, "completion", "--help").stdout.splitlines() if "mkdir" in line)
    env = environment(tmp_path, {"PATH": f"{TIELINE.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)})
    subprocess.run(["bash", "-c", line.strip()], check=True, env=env)
    put = tmp_path / ".local" / "share" / "bash-completion" / "completions" / "tieline"
    assert put.read_text() == run_cli(tmp_path, "completion", "bash").stdout
    if LOADER.exists():
        load = f". {LOADER}; _completion_loader tieline; complete -p tieline"
        done = subprocess.run(["bash", "-c", load], check=False, env=env, capture_output=True, text=True)
        assert "-F _tieline tieline" in done.stdout


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_keeps_the_sign_before_a_name(name: str, tmp_path: Path) -> None:
    program = tmp_path / "tieline"
    program.write_text(STAND_IN)
    program.chmod(0o700)
    with shell(name, tmp_path / "home", tmp_path, programs=tmp_path) as person:
        cases = (
            ("@ma\t", "@maria"),
            ("@\t", "@maria"),
            ("ma\t", "maria"),
            ("'@ma\t", "@maria"),
            ("'#ge\t", "#general"),
            ("\\#ge\t", "#general"),
            ("obj:\t", "obj:3"),
            ("--as=ma\t", "--as=maria"),
            ("@ada+@m\t", "@ada+@maria"),
        )
        for number, (typed, word) in enumerate(cases):
            ask(person, f"tieline {number} {typed}", f"<{number}><{word}>")


@pytest.mark.slow
def test_every_id_and_name_of_a_command_is_completed(hub: HubProcess, alice: str, bob: str) -> None:
    thread = f"{os.urandom(4).hex()}-0000-4000-8000-00000000000a"
    sent, other = (
        hub.cli("send", f"@{to}", "x", "--thread", thread, "--as", by).stdout.split()[0]
        for by, to in ((alice, bob), (bob, alice))
    )
    asyncio.run(_set_reader(hub, f"reader-of-{alice}"))

    def words(*line: str) -> list[str]:
        return [one.split("\t")[0] for one in hub.cli("complete-words", "--", *line).stdout.splitlines()]

    assert words("receipts", "--as", alice, "") == words("reply", "--as", alice, "") == [other, sent]
    assert words("take", "--as", alice, "") == [other]
    assert words("send", "--as", alice, "--supersedes", "") == [sent]
    assert words("send", "--as", alice, "--reply-to", other) == [other]
    assert words("send", "--as", alice, "--thread", "") == [thread[:8]]
    assert words("pause", f"thread:{thread[:6]}") == [f"thread:{thread[:8]}"]
    assert words("resume", f"@{alice}+@{bob}") == [f"@{alice}+@{bob}"]
    assert f"@{alice}+@{bob}" in words("allow", f"@{alice}+")
    assert sent in words("redact", sent)
    assert words("log", "forget", f"reader-of-{alice}") == [f"reader-of-{alice}"]
    for line in (("connect", "codex", "--as"), ("hooks", "install", "--as"), ("member", "reach", bob, "--notify")):
        assert words(*line, alice) == [alice], line


async def _set_reader(hub: HubProcess, name: str) -> None:
    """Make a reader of the log."""
    async with await hub.connect() as client:
        await client.advance_reader(name, 0)


@pytest.mark.slow
def test_objectives_and_messages_are_completed_for_the_member(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("member", "add", f"maker-{alice}", "--permission", "objectives.create")
    made = hub.cli("objectives", "create", "Work", "--outcome", "O", "--assignee", bob, "--as", f"maker-{alice}")
    number = made.stdout.split()[0]
    # Other tests have objectives at the same hub, and the key of the home shows all of them.
    shown = hub.cli("complete-words", "--", "objectives", "view", "--as", bob, "").stdout
    assert f"{number}\tWork" in shown.splitlines()
    waiting = hub.cli("inbox", "--brief", "--as", bob).stdout.split()[0]
    assert hub.cli("complete-words", "--", "take", "--as", bob, "").stdout.startswith(f"{waiting}\t")
    assert hub.cli("complete-words", "--", "take", "--as", "nobody-at-all", "").stdout == ""
    assert hub.cli("complete-words", "--", "discard", "--as", bob, "").stdout.startswith(f"{waiting}\t")
    assert hub.cli("complete-words", "--", "hooks", "install", "--as", bob).stdout.split()[0] == bob
    assert hub.cli("complete-words", "--", "receipts", "--as", f"maker-{alice}", "").stdout.startswith(f"{waiting}\t")
