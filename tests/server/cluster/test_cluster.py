"""Tests of several hubs of one team: one leads, the others serve by it, and one of them takes over if it fails."""

import asyncio
import json
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import msgspec
import psycopg
import pytest

from tests.cli.hub_process import run_cli
from tests.protocols.backchannel.spools import register_as_bch
from tests.server.cluster.team import TeamHub, team_of
from tests.server.hubs import bodies, take, until
from tests.stores.postgres_server import Server, database_url
from tieline.cli.cluster import ClusterStatus
from tieline.protocols import protocols
from tieline.protocols.backchannel.server import SPOOL_FOLDER
from tieline.server.config import load_config
from tieline.wire.puppet import Place

pytestmark = pytest.mark.slow


def terms(url: str) -> list[int]:
    """Return the terms of the rows of the log, in the order of the log."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT term FROM tieline.log ORDER BY log_offset")]


async def test_members_at_different_hubs_of_a_team_reach_each_other(folder: Path) -> None:
    async with team_of(folder, database_url(folder), 3) as team:
        await team.add_members("ada", "bob")
        first, second, third = team.hubs
        assert (await first.until_role("leader"))["term"] == 1
        for hub in (second, third):
            assert (await hub.until_role("follower"))["leader"].startswith(f"the hub of {first.home} on")
        bob = await team.join(third, "bob", receive=True)
        for number, hub in enumerate(team.hubs):
            await team.send(hub, "ada", "@bob", f"message {number}")
        assert bodies(await take(bob, 3, ack=True)) == ["message 0", "message 1", "message 2"]
        await bob.close()


async def test_a_follower_takes_over_when_the_leader_is_killed(folder: Path) -> None:
    url = database_url(folder)
    async with team_of(folder, url, 2) as team:
        await team.add_members("ada", "bob")
        first, second = team.hubs
        await team.send(second, "ada", "@bob", "before")
        first.kill()
        seconds = await team.send(second, "ada", "@bob", "after")
        sys.stdout.write(f"{seconds:.1f} s until the next accepted message\n")
        assert seconds < 8
        assert (await second.until_role("leader"))["term"] == 2
        bob = await team.join(second, "bob", receive=True)
        assert bodies(await take(bob, 2, ack=True)) == ["before", "after"]
        await bob.close()
        # The one that was killed comes back, and follows.
        await first.start()
        await first.until_role("follower")
        await team.send(first, "ada", "@bob", "by the one that came back")
    written = terms(url)
    assert written == sorted(written)
    assert set(written) == {1, 2}


async def test_a_leader_that_was_stopped_writes_nothing_when_it_goes_on_and_follows(folder: Path) -> None:
    url = database_url(folder)
    async with team_of(folder, url, 2) as team:
        await team.add_members("ada", "bob")
        first, second = team.hubs
        ada = await team.join(first, "ada")
        await ada.send("@bob", "before")
        os.kill(first.pid, signal.SIGSTOP)
        try:
            sending = asyncio.create_task(ada.send("@bob", "by the leader that was stopped"))
            await team.send(second, "ada", "@bob", "by the new leader")
        finally:
            os.kill(first.pid, signal.SIGCONT)
        (answer,) = await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(answer, Exception)
        await first.until_role("follower")
        await team.send(first, "ada", "@bob", "by the one that follows now")
        bob = await team.join(first, "bob", receive=True)
        assert bodies(await take(bob, 3, ack=True)) == ["before", "by the new leader", "by the one that follows now"]
        await bob.close()
        await ada.close()
        assert "this hub leads no more" in first.log.read_text()
        assert first.is_running()
    written = terms(url)
    assert written == sorted(written)


async def test_a_team_outlasts_its_database(folder: Path) -> None:
    """It is away for longer than a leader waits for it."""
    database = await asyncio.to_thread(Server, ("fsync=off", "shared_buffers=16MB"))
    try:
        async with team_of(folder, database.url, 2) as team:
            await team.add_members("ada")
            first, second = team.hubs
            await team.send(second, "ada", "@ada", "before")
            await asyncio.to_thread(database.stop)
            for hub in (first, second):
                said = await hub.until_role("follower", "failing")
                assert said["reasons"][0]["what"] == "the team"
            await asyncio.to_thread(database.start)
            for hub in (first, second):
                await team.send(hub, "ada", "@ada", f"after, at {hub.home.name}")
            async with await team.join(first, "ada") as ada:
                assert {one.body for one in await ada.history()} == {"before", "after, at hub1", "after, at hub2"}
    finally:
        await asyncio.to_thread(database.remove)


async def test_a_leader_that_is_told_to_stop_is_replaced_at_once(folder: Path) -> None:
    async with team_of(folder, database_url(folder), 2) as team:
        await team.add_members("ada")
        first, second = team.hubs
        assert await first.stop() == 0
        assert await team.send(second, "ada", "@ada", "after") < 5
        assert await second.stop() == 0
        assert "The hub has stopped" in second.log.read_text()


async def test_a_hub_with_the_key_of_another_team_is_refused(folder: Path) -> None:
    url = database_url(folder)
    async with team_of(folder, url, 1):
        stranger = TeamHub(folder / "stranger", url)
        with pytest.raises(AssertionError):
            await stranger.start()
        said = stranger.log.read_text()
        assert "has no key of the other hubs of the team" in said
        assert "copy the file 'key'" in said


async def test_hubs_without_an_address_for_others_are_still_refused(folder: Path) -> None:
    url = database_url(folder)
    async with team_of(folder, url, 1) as team:
        alone = TeamHub(folder / "alone", url)
        alone._arguments = ("--store", url)
        with pytest.raises(AssertionError):
            await alone.start()
        assert f"is in use by the hub of {team.hubs[0].home} on" in alone.log.read_text()
        await until(lambda: not alone.is_running())


async def test_a_person_sees_which_hub_leads_and_lets_another_one_lead(folder: Path) -> None:
    url = database_url(folder)
    env = {"TIELINE_STORE": url}
    async with team_of(folder, url, 2) as team:
        await team.add_members("ada")
        first, second = team.hubs
        status = await asyncio.to_thread(run_cli, second.home, "status", "--json")
        assert json.loads(status.stdout)["hub"]["role"] == "follower"
        shown = await asyncio.to_thread(run_cli, first.home, "cluster", "status", "--json", env=env)
        found = msgspec.json.decode(shown.stdout, type=ClusterStatus)
        assert found.address == first.address
        assert {one.address: one.role for one in found.hubs} == {first.address: "leader", second.address: "follower"}
        ada = await team.join(first, "ada")
        promoted = await asyncio.to_thread(run_cli, second.home, "cluster", "promote", "--json", env=env)
        assert promoted.returncode == 0, promoted.stderr
        assert json.loads(promoted.stdout)["address"] == second.address
        assert (await second.until_role("leader"))["term"] == 2
        await first.until_role("follower")
        assert await team.send(first, "ada", "@ada", "after") < 5
        await ada.close()
        doctor = await asyncio.to_thread(run_cli, first.home, "doctor", "--json", env=env)
        told = [one["what"] for one in json.loads(doctor.stdout)["checks"] if one["about"] == "cluster"]
        assert told == [f"it is a follower; {found_name(second)} leads, in term 2"]
        metrics = await asyncio.to_thread(read, f"{second.url}/metrics")
        assert "tieline_cluster_leader 1.0" in metrics
        assert "tieline_cluster_term 2.0" in metrics
        assert "tieline_cluster_leader 0.0" in await asyncio.to_thread(read, f"{first.url}/metrics")


def has_files(folder: Path) -> bool:
    """Return true if a folder has files."""
    return any(folder.iterdir())


def found_name(hub: TeamHub) -> str:
    """Return the name of a hub, as others tell it."""
    return f"the hub of {hub.home} on {socket.gethostname()} (process {hub.pid})"


def read(url: str) -> str:
    """Return what a page says."""
    with urlopen(url, timeout=5) as answer:
        return str(answer.read(), "utf-8")


async def test_each_hub_adopts_the_spool_of_its_own_machine_whatever_its_role(folder: Path) -> None:
    async with team_of(folder, database_url(folder), 2) as team:
        await team.add_members("ada")
        first, second = team.hubs
        for round_number, (leader, follower) in enumerate(((first, second), (second, first))):
            await leader.until_role("leader")
            await follower.until_role("follower")
            for hub in (leader, follower):
                name = f"{hub.home.name}-{round_number}"
                register_as_bch(hub.home / SPOOL_FOLDER, name)
                unread = hub.home / SPOOL_FOLDER / "spool" / name / "new"
                # The hub does not know the agent at once; then it is asked again.
                await team.send(first, "ada", f"@{name}", "into the spool")
                await until(partial(has_files, unread), seconds=20)
                assert "into the spool" in next(unread.iterdir()).read_text()
            first.kill()
            await second.until_role("leader")
            await first.start()


async def test_members_on_every_protocol_at_one_follower_reach_a_member_at_another_and_back(folder: Path) -> None:
    """The spool is a folder of its machine: each hub adopts its own."""
    async with team_of(folder, database_url(folder), 3) as team:
        named = {f"member-{number}": each for number, each in enumerate(protocols())}
        await team.add_members("bob", *named)
        _, second, third = team.hubs
        bob = await team.join(third, "bob", receive=True)
        config = load_config(second.home)
        for name, protocol in named.items():
            assert second.running is not None
            place = Place.at(second.running, name, team.tokens[name], config.protocols[protocol.name])
            puppet = protocol.puppet()(place)
            async with asyncio.timeout(20):
                await puppet.open()
                await puppet.say("@bob", f"by {protocol.name}")
                (delivery,) = await take(bob, 1, ack=True)
                # Clients of agent-channels have no name of their own.
                assert delivery.message.sender == name or protocol.name == "agent-channels"
                assert delivery.message.body == f"by {protocol.name}"
                await bob.send(f"@{name}", f"to {protocol.name}")
                heard = await puppet.hear()
                assert (heard.sender, heard.body) == ("bob", f"to {protocol.name}")
                await puppet.acknowledge(heard)
                await puppet.close()
        await bob.close()
