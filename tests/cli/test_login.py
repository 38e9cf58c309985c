"""Tests of the command that prints a login link for the console."""

import getpass
import json
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.console.login import PATH
from tieline.contract.permission import OWNER_PERMISSIONS

pytestmark = pytest.mark.slow


def test_the_owner_whose_first_link_expired_gets_in_by_login_and_may_do_everything() -> None:
    owner = getpass.getuser()
    with HubProcess() as hub:
        unknown = hub.cli("login", "nobody-at-all")
        assert unknown.returncode == 3
        assert hub.cli("login", owner, env={"TIELINE_AGENT": owner}).returncode == 0, "a name of the environment asks"
        printed = hub.cli("login", owner, "--json")
        assert printed.returncode == 0, printed.stderr
        token = json.loads(printed.stdout)["url"].rpartition("/")[2]
        entered = httpx.post(hub.running.http + PATH, json={"token": token})
        assert (entered.json()["member"], entered.json()["kind"]) == (owner, "human")
        assert set(entered.json()["permissions"]) == set(OWNER_PERMISSIONS)
        names = [member["name"] for member in json.loads(hub.cli("member", "list", "--json").stdout)]
        assert names == [owner]


def test_without_a_name_it_is_the_person_who_started_the_hub() -> None:
    with HubProcess() as hub:
        printed = hub.cli("login")
        assert printed.returncode == 0, printed.stderr
        assert f"logs {getpass.getuser()} in" in printed.stdout
        assert f"{getpass.getuser()} is the person who started the hub" in printed.stdout
        assert f"{getpass.getuser()} is a new member now, a person with all permissions" in printed.stderr
        assert hub.cli("login").stderr == "", "it is a member already"
        hub.add_members("bob")
        as_bob = hub.cli("login", "--as", "bob").stdout
        assert "logs bob in" in as_bob
        assert "started the hub" not in as_bob
        assert "logs bob in" in hub.cli("login", env={"TIELINE_AGENT": "bob"}).stdout


def test_without_a_hub_it_says_so_and_makes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for made in (False, True):
        if made:
            home.mkdir()
        done = run_cli(home, "login")
        assert (done.returncode, done.stdout) == (4, "")
        assert "no hub is running" in done.stderr
        assert not home.exists() or not list(home.iterdir()), "no configuration either"
