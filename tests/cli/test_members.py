"""Tests of the commands for members, while the hub runs and while it does not run."""

import json
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tests.cli.place import Place
from tieline.cli.short_ids import short_objective
from tieline.client import connect
from tieline.protocols.backchannel.invite import Invite, encode_invite
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

pytestmark = pytest.mark.slow

_OBJECTIVE = ("objectives", "create", "a report", "--outcome", "it is printed")


def test_members_are_made_listed_and_removed_while_the_hub_is_down(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = run_cli(home, "member", "add", "alice", "--kind", "human", "--permission", "log.read", "--json")
    assert made.returncode == 0
    token = json.loads(made.stdout)["token"]
    again = run_cli(home, "member", "add", "alice")
    assert again.returncode == 3
    assert "alice is a member already" in again.stderr
    assert "tieline member kind alice KIND" in again.stderr
    error = json.loads(run_cli(home, "member", "add", "alice", "--json").stderr.splitlines()[-1])["error"]
    assert error["code"] == "name_taken"
    assert "'ALICE' is taken by 'alice'" in run_cli(home, "member", "add", "ALICE").stderr
    assert run_cli(home, "member", "add", "bob").returncode == 0
    rotated = run_cli(home, "member", "rotate", "alice", "--json")
    assert json.loads(rotated.stdout)["token"] != token
    assert run_cli(home, "member", "remove", "bob").returncode == 0
    (alice,) = json.loads(run_cli(home, "member", "list", "--json").stdout)
    assert (alice["name"], alice["kind"], alice["permissions"]) == ("alice", "human", ["log.read"])
    assert not (home / "run.json").exists()


def test_a_member_made_while_the_hub_was_down_is_there_when_it_is_up(tmp_path: Path) -> None:
    with HubProcess() as hub:
        assert hub.stop() == 0
        token = json.loads(hub.cli("member", "add", "carol", "--json").stdout)["token"]
        hub.start()
        who = hub.cli("whoami", "--url", hub.running.http, "--json", env={"TIELINE_TOKEN": token})
        assert json.loads(who.stdout)["member"] == "carol"


def test_a_new_member_is_told_its_token_once_and_where_to_put_it(hub: HubProcess) -> None:
    # The member named by the environment is the one to be made, so it cannot be the one who asks.
    done = hub.cli("member", "add", "dora", env={"TIELINE_AGENT": "dora", "TIELINE_TOKEN": "not-yet-valid-at-all"})
    assert done.returncode == 0
    assert "tie_" in done.stdout
    assert "TIELINE_TOKEN" in done.stdout
    listed = hub.cli("members")
    assert "dora" in listed.stdout
    assert "tie_" not in listed.stdout
    assert {"name", "kind", "permissions", "sessions", "backlog", "created_at_ms", "last_seen_ms"} == set(
        json.loads(hub.cli("members", "--json").stdout)[0]
    )


async def test_several_sessions_of_one_protocol_are_counted(hub: HubProcess, alice: str) -> None:
    async with await connect(home=hub.home, member=alice), await connect(home=hub.home, member=alice):
        listed = hub.cli("members").stdout
    (line,) = (line for line in listed.splitlines() if line.split()[0] == alice)
    assert " tieline ×2 " in line


@pytest.mark.parametrize("is_up", [True, False])
def test_a_removed_member_is_kept_out_with_the_room_token_that_it_may_know(tmp_path: Path, is_up: bool) -> None:
    with HubProcess() as hub:
        hub.add_members("bob", "carol", "dora")
        room = load_config(hub.home).of(BackchannelSettings).room_token
        if not is_up:
            assert hub.stop() == 0
        said = json.loads(hub.cli("member", "remove", "bob", "--json").stdout)
        assert said == {"member": "bob", "removed": True, "room_token_works": True, "open_objectives": []}
        said = json.loads(hub.cli("member", "remove", "carol", "--rotate-room", "--json").stdout)
        assert (said["removed"], said["room_token_works"]) == (True, False)
        assert said["room_token"] != room
        told = hub.cli("member", "remove", "dora", "--rotate-room")
        assert "The hub has a new room token" in told.stdout
        if not is_up:
            hub.start()
        newest = told.stdout.split("token: ")[1].split()[0]
        for token, code in ((room, 3), (said["room_token"], 3), (newest, 0)):
            invite = encode_invite(Invite(hub.running.http, token, None, ()))
            joined = Place(tmp_path / str(code)).run("join", invite, "--as", "erik")
            assert joined.returncode == code
            assert ("this invitation is not valid any more" in joined.stderr) == (code != 0)
            assert "room token" not in joined.stderr


@pytest.mark.parametrize("is_up", [True, False])
def test_removing_a_member_names_its_open_objectives(is_up: bool) -> None:
    with HubProcess() as hub:
        hub.add_members("bob", "carol")
        hub.cli("member", "add", "alice", "--permission", "objectives.create", "--permission", "objectives.cancel")
        made = [
            json.loads(hub.cli(*_OBJECTIVE, "--assignee", name, "--as", "alice", "--json").stdout)["id"]
            for name in ("bob", "bob", "carol")
        ]
        ended, left, others = made
        assert hub.cli("objectives", "cancel", ended, "--as", "alice").returncode == 0
        if not is_up:
            assert hub.stop() == 0
        told = hub.cli("member", "remove", "bob")
        assert told.returncode == 0
        assert f"still assigned to bob: {short_objective(left)}.\n" in told.stderr
        assert "tieline objectives reassign ID NAME" in told.stderr
        assert json.loads(hub.cli("member", "remove", "carol", "--json").stdout)["open_objectives"] == [others]
        assert "objectives" not in hub.cli("member", "remove", "alice").stderr


@pytest.mark.parametrize("is_up", [True, False])
def test_removing_a_member_counts_its_messages_and_names_its_empty_channels(is_up: bool) -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        hub.send("alice", "@bob", "one", "two")
        for name, channel in (("bob", "lonely"), ("bob", "shared"), ("alice", "shared")):
            assert hub.cli("sub", channel, "--as", name).returncode == 0
        if not is_up:
            assert hub.stop() == 0
        told = hub.cli("member", "remove", "bob").stdout
        assert "2 messages that waited for it are not delivered any more.\n" in told
        assert "#lonely is no channel any more" in told
        assert "#shared" not in told
        assert "'tieline invite rotate' replaces it" in told
        told = hub.cli("member", "remove", "alice").stdout
        assert "not delivered" not in told
        assert "#shared is no channel any more" in told


def test_a_rotated_token_replaces_the_old_one(hub: HubProcess, alice: str) -> None:
    chosen = "a-token-of-my-own-choice"
    assert hub.cli("member", "add", f"{alice}-2", "--token", chosen).returncode == 0
    assert hub.cli("whoami", "--token", chosen).stdout.startswith(f"{alice}-2, ")
    fresh = json.loads(hub.cli("member", "rotate", f"{alice}-2", "--json").stdout)["token"]
    refused = hub.cli("whoami", "--token", chosen)
    assert refused.returncode == 3
    assert "revoked" in refused.stderr
    assert hub.cli("whoami", "--token", fresh).returncode == 0


def test_tokens_are_listed_and_revoked_without_being_shown(hub: HubProcess, alice: str) -> None:
    (first,) = json.loads(hub.cli("member", "tokens", alice, "--json").stdout)
    listed = hub.cli("member", "tokens", alice)
    short = listed.stdout.splitlines()[1].split()[0]
    assert first["id"].endswith(short)
    assert "tie_" not in listed.stdout
    assert json.loads(hub.cli("member", "tokens", alice, "--revoke", short, "--json").stdout) == []
    assert hub.cli("member", "tokens", alice, "--revoke", first["id"]).returncode == 3


def test_a_removed_member_is_unknown(hub: HubProcess, alice: str) -> None:
    assert hub.cli("member", "remove", alice).returncode == 0
    assert hub.cli("drain", "--as", alice).returncode == 3
    assert hub.cli("member", "remove", alice).returncode == 3


def test_an_unknown_name_is_refused_with_the_nearest_ones(hub: HubProcess, alice: str) -> None:
    done = hub.cli("whoami", "--as", alice[:-1] + "x")
    assert (done.returncode, done.stdout) == (3, "")
    assert "did you mean" in done.stderr
    assert alice.split("-", maxsplit=1)[0] in done.stderr


def test_the_operator_is_nobody(hub: HubProcess) -> None:
    done = hub.cli("whoami")
    assert done.returncode == 0
    assert "operator" in done.stdout


def test_a_program_is_told_in_json_what_changed_and_what_was_refused(hub: HubProcess, alice: str) -> None:
    channel = f"dev-{alice}"
    done = [
        hub.cli("sub", f"#{channel}", "--as", alice, "--json"),
        hub.cli("unsub", channel, "--as", alice, "--json"),
        hub.cli("member", "remove", alice, "--json"),
    ]
    assert [json.loads(one.stdout) for one in done] == [
        {"member": alice, "channel": channel, "subscribed": True},
        {"member": alice, "channel": channel, "subscribed": False},
        {"member": alice, "removed": True, "room_token_works": True, "open_objectives": []},
    ]
    refused = hub.cli("member", "remove", alice, "--json")
    assert (refused.returncode, refused.stdout) == (3, "")
    error = json.loads(refused.stderr)["error"]
    assert (error["exit"], error["code"]) == (3, "unknown_member")
    assert alice in error["message"]


def test_channels_are_joined_listed_and_left(hub: HubProcess, alice: str) -> None:
    channel = f"dev-{alice}"
    assert hub.cli("sub", f"#{channel}", "--as", alice).returncode == 0
    listed = {view["name"]: view["subscribers"] for view in json.loads(hub.cli("channels", "--json").stdout)}
    assert listed[channel] == [alice]
    assert f"#{channel}" in hub.cli("channels").stdout
    assert hub.cli("unsub", channel, env={"TIELINE_AGENT": alice}).returncode == 0
    assert channel not in hub.cli("channels").stdout
