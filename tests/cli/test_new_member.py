"""Tests that a command creates the member as which it acts, if the name is new.

This works only on the hub's machine. No other command creates members in passing.
"""

import json
import os
import subprocess

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until

pytestmark = pytest.mark.slow


def made(name: str) -> str:
    """Return the line that says that a command made a member."""
    return f"tieline: {name} is a new member now, an agent; for a person: 'tieline member kind {name} human'.\n"


def test_send_and_inbox_make_a_new_name_and_say_so_in_one_line(hub: HubProcess, bob: str) -> None:
    sent = hub.cli("send", f"@{bob}", "hello", "--as", "quentin", "--json")
    assert (sent.returncode, sent.stderr) == (0, made("quentin"))
    assert json.loads(sent.stdout)["recipients"] == 1
    assert hub.cli("send", f"@{bob}", "again", "--as", "quentin").stderr == ""
    shown = hub.cli("inbox", "--json", env={"TIELINE_AGENT": "zoe"})
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "[]\n", made("zoe"))
    assert {"quentin", "zoe"} <= hub.member_names()
    # The command that the line names.
    assert hub.cli("member", "kind", "quentin", "human").returncode == 0


def test_a_name_like_another_one_is_pointed_out(hub: HubProcess) -> None:
    hub.add_members("rosalind")
    done = hub.cli("inbox", "--as", "rosalnid")
    assert done.returncode == 0
    assert "rosalnid human'. Did you mean rosalind? 'tieline member remove rosalnid'" in done.stderr


def test_names_that_no_member_may_have_are_refused(hub: HubProcess) -> None:
    before = hub.member_names()
    for command in (("inbox", "--as=Operator"), ("run", "--as=a/b", "true")):
        assert hub.cli(*command).returncode == 3, command
    assert hub.member_names() == before


def test_a_name_that_differs_only_in_case_and_an_alias_are_refused(hub: HubProcess, bob: str) -> None:
    hub.cli("member", "alias", bob, f"also-{bob}")
    before = hub.member_names()
    for name, why in ((bob.upper(), "is taken by"), (f"ALSO-{bob}", "is an alias of")):
        done = hub.cli("send", f"@{bob}", "hello", "--as", name)
        assert (done.returncode, why in done.stderr) == (3, True)
    assert hub.member_names() == before


def test_only_the_key_of_the_home_makes_names(hub: HubProcess, bob: str) -> None:
    token = json.loads(hub.cli("member", "rotate", bob, "--json").stdout)["token"]
    before = hub.member_names()
    assert hub.cli("inbox", "--as", "stranger", env={"TIELINE_TOKEN": token}).returncode == 3
    assert hub.cli("inbox", "--as", "stranger", "--url", hub.running.http).returncode == 3
    assert hub.member_names() == before


def test_other_commands_make_no_names(hub: HubProcess) -> None:
    before = hub.member_names()
    assert hub.cli("drain", "--as", "stranger").returncode == 3
    assert hub.cli("drain", "--hook", "codex", "--as", "stranger", stdin="{}").returncode == 0
    assert hub.member_names() == before


def test_many_at_once_make_one_member(hub: HubProcess, bob: str) -> None:
    started = [
        subprocess.Popen(
            [str(TIELINE), "send", f"@{bob}", "hello", "--as", "zzyzx"],
            env=environment(hub.home),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 2, said
    assert "".join(said) == made("zzyzx")


def test_run_and_mcp_make_a_new_name_but_never_again_in_the_same_run(hub: HubProcess) -> None:
    done = hub.cli("run", "--as", "runner", "--", "true")
    assert (done.returncode, done.stderr) == (0, made("runner"))
    read, write = os.pipe()
    with subprocess.Popen(
        [str(TIELINE), "mcp", "--as", "toolbox"],
        env=environment(hub.home),
        stdin=read,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(read)
        wait_until(lambda: "toolbox" in hub.member_names(), "the new member")
        wait_until(lambda: hub.session_count("toolbox") == 1, "its session")
        assert hub.cli("member", "remove", "toolbox").returncode == 0
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        assert lines[0] == made("toolbox")
        assert "toolbox was removed" in lines[1]
        assert "toolbox" not in hub.member_names()
        os.close(write)
        assert process.wait(60) == 0
