"""Tests of a hub whose store is in PostgreSQL: all that it keeps is in the database, and its home may be lost."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import psycopg
import pytest

from tests.cli.hub_process import run_cli
from tests.faults.processes import HubProcess
from tests.server.hubs import ALONE, HubHarness, bodies, running_hub, take, until
from tests.stores.postgres_server import database_url, programs, server
from tieline.client import Disconnected, HubRefused, connect
from tieline.contract.permission import LOG_READ
from tieline.server.config import ConfigError
from tieline.server.storage import DatabaseStorage, public_url, remove_data, schema_of
from tieline.wire.home import CONFIG_FILE, KEY_FILE
from tieline.wire.room import ROOM_FILE

pytestmark = pytest.mark.slow


async def put_file(there: HubHarness, name: str, data: bytes) -> None:
    def put() -> None:
        headers = {"authorization": f"Bearer {there.tokens[name]}", "content-type": "text/plain"}
        urlopen(Request(f"{there.running.http}/fs/write?path=/{name}/a.txt", data, headers), timeout=10).close()

    await asyncio.to_thread(put)


async def get(there: HubHarness, path: str, name: str) -> bytes:
    def read() -> bytes:
        headers = {"authorization": f"Bearer {there.tokens[name]}"}
        with urlopen(Request(f"{there.running.http}{path}", headers=headers), timeout=10) as answer:
            data: bytes = answer.read()
            return data

    return await asyncio.to_thread(read)


async def test_all_that_a_hub_keeps_is_in_the_database_and_another_home_goes_on_with_it(folder: Path) -> None:
    home, url = folder / "one", database_url(folder)
    home.mkdir()
    options = {**ALONE, "ac7": True, "store": url}
    async with running_hub(home, **options) as there:
        await there.add("ada", "bob", permissions=(LOG_READ,))
        ada = await there.join("ada")
        await ada.send("@bob", "remember the violet")
        await put_file(there, "ada", b"the bytes")
        tokens = there.tokens
        assert [path.name for path in home.rglob("*.db*")] == []
        assert there.running.store == public_url(url)
    # Another machine has the key and the settings, and nothing else.
    other = folder / "two"
    other.mkdir(mode=0o700)
    for name in (KEY_FILE, CONFIG_FILE):
        shutil.copy2(home / name, other)
    shutil.rmtree(home)
    async with running_hub(other, **options) as there:
        there.tokens = tokens
        bob = await there.join("bob", receive=True)
        assert bodies(await take(bob, 1, ack=True)) == ["remember the violet"]
        ada = await there.join("ada")
        assert [message.body for message in await ada.search("violet")] == ["remember the violet"]
        assert [message.body for message in await ada.history()] == ["remember the violet"]
        assert await get(there, "/fs/read/ada/a.txt", "ada") == b"the bytes"
        lines = (await get(there, "/api/log/main?from=0", "ada")).splitlines()
        assert "send" in {json.loads(json.loads(line)["event"])["event"] for line in lines}


async def test_a_second_hub_is_refused_and_told_which_hub_is_the_first(folder: Path) -> None:
    url = database_url(folder)
    async with running_hub(folder / "one", store=url, **ALONE):
        done = await asyncio.to_thread(
            run_cli, folder / "two", "serve", "--http", "127.0.0.1:0", "--store", url, env={"TIELINE_STORE": ""}
        )
    assert done.returncode == 1
    assert f"is in use by the hub of {folder / 'one'} on" in done.stderr
    assert "stop that hub first" in done.stderr


async def test_a_hub_that_was_stopped_while_another_took_over_says_so_and_ends(folder: Path) -> None:
    url = database_url(folder)
    first = HubProcess(folder / "one", arguments=["--store", url, "--log-level", "error"])
    try:
        running = await first.start()
        async with await connect(home=first.home) as operator:
            ada = await operator.add_member("ada", permissions=())
            async with await connect(home=first.home, token=ada.token) as client:
                await client.send("@ada", "before")
                os.kill(running.pid, signal.SIGSTOP)
                async with running_hub(folder / "two", store=url, **ALONE) as there:
                    os.kill(running.pid, signal.SIGCONT)
                    with pytest.raises((HubRefused, Disconnected)) as refused:
                        await client.send("@ada", "after")
                    assert "store failed" not in str(refused.value)
                    await until(lambda: not first.is_running())
                    operator_there = await there.operator()
                    assert [message.body for message in await operator_there.history()] == ["before"]
    finally:
        first.kill()
    said = first.log.read_text()
    assert "this hub leads no more" in said
    assert f"was taken over by the hub of {folder / 'two'} on" in said
    assert "Traceback" not in said


async def test_a_redaction_says_that_the_database_keeps_old_rows(folder: Path) -> None:
    async with running_hub(folder, store=database_url(folder), **ALONE) as there:
        await there.add("ada", "bob")
        ada = await there.join("ada")
        sent = await ada.send("@bob", "the password is violet")
        done = await asyncio.to_thread(run_cli, folder, "redact", sent.id, "--reason", "a password")
        assert done.returncode == 0, done.stderr
        assert f"cannot look into {there.running.store}" in done.stdout
        assert "VACUUM FULL" in done.stdout
        assert [message.body for message in await ada.history()] == ["redacted by operator: a password"]


async def test_members_are_managed_without_a_hub_too(folder: Path) -> None:
    url = database_url(folder)
    async with running_hub(folder, store=url, **ALONE) as there:
        await there.add("ada")
    done = await asyncio.to_thread(run_cli, folder, "member", "add", "bob", env={"TIELINE_STORE": url})
    assert done.returncode == 0, done.stderr
    async with running_hub(folder, store=url, **ALONE) as there:
        operator = await there.operator()
        assert {one.name for one in await operator.members()} >= {"ada", "bob"}


def test_the_data_of_a_removed_room_leave_the_database(tmp_path: Path) -> None:
    url, home = database_url(tmp_path), tmp_path / ("a" * 32)
    home.mkdir()
    (home / ROOM_FILE).write_text("{}")
    assert schema_of(tmp_path) == "tieline"
    storage = DatabaseStorage(url, home)
    storage.open_store().close()
    with psycopg.connect(url, autocommit=True) as admin:
        there = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s"
        assert admin.execute(there, (f"tieline_{home.name}",)).fetchone() == (1,)
        remove_data(url, home)
        assert admin.execute(there, (f"tieline_{home.name}",)).fetchone() == (0,)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite", "sqlite"),
        ("postgresql://ada:secret@db.example:5433/team?sslpassword=secret", "postgresql://db.example:5433/team"),
        ("postgres:///team?host=/run/postgresql", "postgres:///team"),
    ],
)
def test_people_see_the_url_of_a_store_without_its_password(url: str, shown: str) -> None:
    assert public_url(url) == shown


async def test_the_hub_runs_no_pipeline_on_a_store_that_it_cannot_read(folder: Path) -> None:
    with pytest.raises(ConfigError, match="tieline pipeline run --hub URL"):
        async with running_hub(folder, store=database_url(folder), pipeline="1h", **ALONE):
            raise AssertionError("it started")


def found_by_doctor(folder: Path, url: str, *options: str) -> list[tuple[str, str, str]]:
    done = run_cli(folder, "doctor", "--json", *options, env={"TIELINE_STORE": url})
    return [(one["about"], one["grade"], one["what"]) for one in json.loads(done.stdout)["checks"]]


async def test_audit_and_doctor_read_the_database_without_a_hub(folder: Path) -> None:
    url = database_url(folder)
    async with running_hub(folder, store=url, **ALONE) as there:
        await there.add("ada", "bob")
        ada, bob = await there.join("ada"), await there.join("bob", receive=True)
        await ada.send("@bob", "to be kept")
        await take(bob, 1, ack=True)
    env = {"TIELINE_STORE": url}
    done = await asyncio.to_thread(run_cli, folder, "audit", "verify", "--json", env=env)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["messages"] == 1
    done = await asyncio.to_thread(run_cli, folder, "audit", "export", env=env)
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == list(range(report["rows"]))
    looked = await asyncio.to_thread(found_by_doctor, folder, url, "--deep")
    assert [one for one in looked if one[1] == "wrong"] == []
    told = [what for about, _, what in looked if about in ("store", "audit", "log")]
    assert any("answers" in what and "schema main" in what for what in told)
    assert f"the chain is intact: {report['rows']} rows, 1 messages" in told
    assert any("no hub has the lease; the last term was" in what for what in told)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("UPDATE tieline.log SET term = 0 WHERE log_offset = 1")
        looked = await asyncio.to_thread(found_by_doctor, folder, url)
        assert "row 1 of the log is of term 0, which was over" in [
            what for _, grade, what in looked if grade == "wrong"
        ]
        admin.execute("UPDATE tieline.log SET term = 1, at_ms = at_ms + 1 WHERE log_offset = 1")
    done = await asyncio.to_thread(run_cli, folder, "audit", "verify", env=env)
    assert done.returncode == 1
    assert "the audit chain is broken at row 1" in done.stderr
    looked = await asyncio.to_thread(found_by_doctor, folder, url)
    assert [what for about, grade, what in looked if (about, grade) == ("audit", "wrong")] == [
        "the chain is broken at row 1: its hash does not follow from the row before it"
    ]


async def test_the_doctor_says_what_is_wrong_with_a_database(folder: Path) -> None:
    url = database_url(folder)
    done = await asyncio.to_thread(run_cli, folder, "member", "add", "ada", env={"TIELINE_STORE": url})
    assert done.returncode == 0, done.stderr
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("UPDATE tieline.schema_version SET version = 99 WHERE part = 'main'")
        assert any(
            grade == "wrong" and "has schema main 99, and this program knows" in what
            for _, grade, what in await asyncio.to_thread(found_by_doctor, folder, url)
        )
        admin.execute("DROP SCHEMA tieline CASCADE")
    looked = await asyncio.to_thread(found_by_doctor, folder, url)
    assert [what for about, grade, what in looked if (about, grade) == ("store", "wrong")] == [
        f"no hub ever kept anything in the database {url.rpartition('/')[2]} at 127.0.0.1:{server().port}"
    ]


async def test_a_dump_of_the_database_is_a_backup(folder: Path) -> None:
    url = database_url(folder)
    async with running_hub(folder, store=url, **ALONE) as there:
        await there.add("ada", "bob")
        ada = await there.join("ada")
        await ada.send("@bob", "before the dump")
        # The hub runs meanwhile.
        dump = ["pg_dump", "--format", "custom", "--schema", "tieline*", "--file", str(folder / "hub.dump"), url]
        await asyncio.to_thread(run_program, *dump)
        await ada.send("@bob", "after the dump")
    restored = database_url(folder / "restored")
    run_program("pg_restore", "--no-owner", "--dbname", restored, str(folder / "hub.dump"))
    with psycopg.connect(restored, autocommit=True) as admin:
        for table in ("log_state", "activity_state"):
            admin.execute(f"UPDATE tieline.{table} SET epoch = md5(random()::text)".encode())
    done = await asyncio.to_thread(run_cli, folder, "audit", "verify", env={"TIELINE_STORE": restored})
    assert done.returncode == 0, done.stderr
    async with running_hub(folder, store=restored, **ALONE) as there:
        operator = await there.operator()
        assert [one.body for one in await operator.history()] == ["before the dump"]
        assert len((await operator.readers()).logs[0].epoch) == 32


def run_program(name: str, *arguments: str) -> None:
    """Run a program of PostgreSQL."""
    done = subprocess.run([str(programs() / name), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
