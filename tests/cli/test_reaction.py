"""Tests of commands that run for each message (`watch --exec`): no text of a message is ever run as code."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, wait_until
from tieline.cli.failure import Exit, Failure
from tieline.cli.reaction import Reaction, filled, variables, words_of
from tieline.client import Message as Shown

HOSTILE = "$(touch owned) `touch owned` ; touch owned # \" ' \\ {{from}} \n touch owned"
TEMPLATES = ("id", "from", "to", "body", "scope", "thread")


def hostile() -> Shown:
    """Return a message with the same hostile text in all its fields."""
    return Shown(HOSTILE, 0, HOSTILE, HOSTILE, HOSTILE, 0, "backchannel", scope=HOSTILE, thread=HOSTILE)


def run(command: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command for the hostile message. Return its output."""
    environment = {**os.environ, "PWD": str(folder)}
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert asyncio.run(Reaction(command).run(hostile(), environment)) == 0
    finally:
        os.chdir(before)
    assert list(folder.iterdir()) == []
    return capfd.readouterr().out


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "command", ["printf %s {{x}}", 'printf %s "{{x}}"', "printf '%s' '{{x}}'", "printf -- %s {{x}}"]
)
def test_a_template_is_one_word_in_which_nothing_is_code(
    command: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(command.replace("{{x}}", f"{{{{{name}}}}}"), tmp_path, capfd) == HOSTILE


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_variable_is_text_to_a_shell(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = f'x="$TIELINE_{name.upper()}"; if true; then printf %s "$x"; fi'
    assert run(command, tmp_path, capfd) == HOSTILE


def test_a_script_gets_a_message_as_its_arguments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "handle.py"
    script.write_text("import sys; sys.stdout.write('|'.join(sys.argv[1:]))")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(f"{sys.executable} {script} --level 1 title={{{{from}}}} {{{{body}}}}", empty, capfd) == (
        f"--level|1|title={HOSTILE}|{HOSTILE}"
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("printf a\\ b 'c d' \"e \\\"f\\\" \\g\" '' {{id}}", ["printf", "a b", "c d", 'e "f" \\g', "", "i"]),
        ("printf @{{from}}:{{to}} x'y'{{id}}\"z\"", ["printf", "@eve:@bob", "xyiz"]),
        ("  printf\t{{scope}} a#b c~d {other}", ["printf", "", "a#b", "c~d", "{other}"]),
    ],
)
def test_words_are_split_and_unquoted_as_a_shell_does(command: str, words: list[str]) -> None:
    message = Shown("i", 0, "eve", "@bob", "b", 0, "backchannel")
    assert filled(words_of(command), variables(message)) == words


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "command",
    [
        "eval {{x}}",
        "eval echo {{x}}",
        ". {{x}}",
        "sh -c {{x}}",
        'sh -c "echo {{x}}"',
        "sh -c 'echo {{x}}'",
        "/bin/sh -c {{x}}",
        "bash -ec {{x}}",
        "bash -x script {{x}}",
        "env sh -c {{x}}",
        "env -i A=b nice -n 5 bash -c {{x}}",
        "timeout 5 sh {{x}}",
        "xargs sh -c {{x}}",
        "busybox sh -c {{x}}",
        "python3 -c {{x}}",
        "python3.11 -c {{x}}",
        "perl -e {{x}}",
        "awk {{x}}",
        "sed s/a/{{x}}/",
        "ssh host echo {{x}}",
        "sqlite3 file {{x}}",
        "tmux send-keys {{x}}",
        "{{x}}",
        "{{x}} now",
        "./{{x}}",
        "A={{x}} printf b",
        "A=b printf {{x}}",
        "if true; then printf {{x}}; fi",
        "printf {{x}} | sh",
        "printf {{x}} > file",
        "printf {{x}} && true",
        "printf $(echo {{x}})",
        "printf `echo {{x}}`",
        'printf "$(echo a)" {{x}}',
        "printf $HOME {{x}}",
        "printf * {{x}}",
        "printf ~ {{x}}",
        "printf a # {{x}}",
        "printf a\nprintf {{x}}",
        'printf "a {{x}}"',
        'printf " {{x}} {{x}}"',
        "printf 'a {{x}}",
        "no-such-program {{x}}",
        "printf -v {{x}}",
        "printf -v{{x}}",
        "printf --{{x}}",
        "printf --eval={{x}}",
        "printf -- -c {{x}}",
        "git -c {{x}} x",
        "find . -exec {{x}}",
        "env {{x}}",
        "env -S {{x}}",
        "env -- printf %s {{x}}",
        "/usr/bin/env A=b {{x}}",
        "timeout 5 {{x}}",
        "flock file {{x}}",
        "nice {{x}}",
        "nohup {{x}}",
        "setsid {{x}}",
        "printf a xargs {{x}}",
        "chroot / {{x}}",
        "make {{x}}",
        f"{TIELINE} run {{{{x}}}}",
    ],
)
def test_a_command_that_could_run_a_message_as_code_is_refused(command: str, name: str) -> None:
    with pytest.raises(Failure) as error:
        Reaction(command.replace("{{x}}", f"{{{{{name}}}}}"))
    assert error.value.code is Exit.USAGE


@pytest.mark.slow
def test_a_watch_with_such_a_command_takes_nothing(hub: HubProcess, alice: str, bob: str, tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    hub.send(alice, f"@{bob}", f"touch {owned}")
    for command in ("eval {{body}}", "sh -c {{body}}"):
        done = hub.cli("watch", "--as", bob, "--exec", command)
        assert done.returncode == Exit.USAGE
        assert "TIELINE_BODY" in done.stderr
    assert not owned.exists()
    assert f"touch {owned}" in hub.cli("inbox", "--as", bob).stdout


@pytest.mark.parametrize(
    ("command", "body", "runs"),
    [
        ("printf {{body}}", "-x", False),
        ("printf {{body}}", "--", False),
        ("printf {{body}}", "--checkpoint-action=exec=touch owned", False),
        ("printf {{scope}}{{body}}", "-x", False),
        ("printf {{body}} --", "-x", False),
        ("printf {{body}} {{body}}", "--", False),
        ("printf -- {{body}}", "-x", True),
        ("printf a -- %s {{from}} {{body}}", "-x", True),
        ("printf @{{body}}", "-x", True),
        ("printf {{body}}", "a -x", True),
        ("printf -u critical {{from}} {{body}}", "yes", True),
        ('printf "$TIELINE_BODY"', "-x", True),
    ],
)
def test_a_message_becomes_no_option_of_a_program(command: str, body: str, runs: bool) -> None:
    objection = Reaction(command).objection(Shown("i", 0, "eve", "@bob", body, 0, "backchannel"))
    assert (objection is None) is runs
    if objection is not None:
        assert "$TIELINE_" in objection
        assert " -- " in objection


@pytest.mark.slow
def test_a_message_that_would_be_an_option_stays_unread_and_the_next_one_is_handled(
    hub: HubProcess, alice: str, bob: str
) -> None:
    option, text = hub.send(alice, f"@{bob}", "--help", "text")
    with hub.cli_running("watch", "--as", bob, "--exec", "printf {{body}}") as watcher:
        wait_until(lambda: hub.states(alice, text)[bob] == "acked", "the message behind it to be taken")
        assert watcher.stderr is not None
        warning = watcher.stderr.readline()
    assert f" {hub.number(alice, option)}, " in warning
    assert "stays unread" in warning
    assert "write -- before {{body}}" in warning
    assert '"$TIELINE_BODY"' in warning
    assert "--help" in hub.cli("inbox", "--as", bob).stdout
    assert hub.states(alice, option)[bob] != "acked"


def test_a_program_that_cannot_be_started_is_a_failed_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere/at/all\n")
    program.chmod(0o700)
    assert asyncio.run(Reaction(f"{program} {{{{body}}}}").run(hostile(), dict(os.environ))) == 126
    assert "cannot be started" in capfd.readouterr().err


def test_a_command_has_each_part_of_a_message_under_both_names() -> None:
    message = Shown("id", 0, "eve", "@bob", "x\0y", 0, "backchannel", scope="s", thread="t")
    for prefix in ("TIELINE_", "BCH_"):
        found = {name.removeprefix(prefix): value for name, value in variables(message).items() if prefix in name}
        assert found == {
            "ID": "id",
            "FROM": "eve",
            "TO": "@bob",
            "BODY": "xy",
            "PRIORITY": "normal",
            "SCOPE": "s",
            "THREAD": "t",
        }
