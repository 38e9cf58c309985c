"""Tests of `tieline store copy`: everything is in the copy, both ways, and nothing is lost or replaced by it."""

import asyncio
import contextlib
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.cli.hub_process import TIELINE, environment, run_cli
from tests.conformance.store.writer import Writer
from tests.faults.processes import SOAK
from tests.server.hubs import ALONE, bodies, running_hub, take
from tests.server.test_postgres_hub import get, put_file
from tests.stores.postgres_server import database_url
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Content, Kind
from tieline.contract.target import to_member
from tieline.core import audit
from tieline.core.broker import Broker
from tieline.core.store import ActivityEntry
from tieline.server.config import load_config
from tieline.server.home import Home
from tieline.server.room import open_broker
from tieline.server.storage import DatabaseStorage, HomeStorage, Storage
from tieline.services.login_sessions import LOGINS_FILE
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.tables import DERIVED, TABLES
from tieline.wire.home import CONFIG_FILE, KEY_FILE, write_private
from tieline.wire.room import ROOM_FILE, ROOMS_FOLDER

pytestmark = pytest.mark.slow


def copied(source: str, target: str) -> dict[str, int]:
    """Copy a store. The result of the command has `peak` beside its own fields: MiB of its memory at its highest."""
    # `run_cli` has a time limit, and a long test copies a large store.
    command = [str(TIELINE), "store", "copy", source, target, "--json"]
    kilobytes = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(Path("/nowhere"))
    ) as process:
        # What the system says of ended children is the maximum of all that this process ever had.
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            kilobytes = max([kilobytes, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
            time.sleep(0.02)
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    found: dict[str, int] = json.loads(output)
    return found | {"peak": kilobytes >> 10}


def refusal(source: str, target: str) -> str:
    done = run_cli(Path("/nowhere"), "store", "copy", source, target)
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


def audited(storage: Storage) -> audit.AuditReport:
    with contextlib.closing(storage.open_inspection()) as inspection:
        return audit.verify(inspection)


def dump(storage: Storage) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    with contextlib.closing(storage.open_tables(writes=False)) as tables:
        return {table.name: list(tables.rows(table)) for table in TABLES}


_OPTIONS = {**ALONE, "ac7": True}
_ROOM = "0123456789abcdef0123456789abcdef"


async def lived_in(home: Path) -> dict[str, str]:
    """Let a hub in `home` be used, so that its tables have rows. Return the tokens of its members."""
    async with running_hub(home, **_OPTIONS) as there:
        await there.add("ada", "bob", "gone", permissions=("objectives.create",))
        ada, bob = await there.join("ada"), await there.join("bob", receive=True)
        await ada.subscribe("dev")
        await ada.send("@bob", "remember the violet", wire_id="a\x00b")
        assert bodies(await take(bob, 1, ack=True)) == ["remember the violet"]
        await bob.close()
        await ada.send("@bob", "wäiting \U0001f98a")
        await ada.create_objective("Ship", "it is shipped", assignee="bob")
        await (await there.operator()).remove_member("gone")
        await put_file(there, "ada", b"the bytes" * 100_000)
        tokens = there.tokens
    # What other doors bring.
    with contextlib.closing(SqliteActivity(home)) as activity:
        start = activity.restore()
        activity.append([ActivityEntry(start, 5, 1, "llm", 4, b'{"kind":"llm"}')])
        activity.commit()
    write_private(home / LOGINS_FILE, b'{"sessions": []}')
    room = home / ROOMS_FOLDER / _ROOM
    room.mkdir(parents=True, mode=0o700)
    (room / ROOM_FILE).write_text(json.dumps({"token": "0" * 64}))
    writer = Writer(lambda: SqliteStore(room, synchronous="OFF"))
    SqliteActivity(room).close()
    writer.accept(wire_id="in a room")
    writer.store.commit()
    writer.store.close()
    return tokens


def settings_of(home: Path, other: Path) -> None:
    """Copy what a hub on another machine needs, and nothing else."""
    other.mkdir(mode=0o700)
    for name in (KEY_FILE, CONFIG_FILE):
        shutil.copy2(home / name, other)
    for room in (home / ROOMS_FOLDER).iterdir():
        (other / ROOMS_FOLDER / room.name).mkdir(parents=True, mode=0o700)
        shutil.copy2(room / ROOM_FILE, other / ROOMS_FOLDER / room.name)


async def test_a_hub_moves_to_a_database_and_back_with_everything(folder: Path) -> None:
    home, other, url = folder / "one", folder / "two", database_url(folder)
    home.mkdir(mode=0o700)
    tokens = await lived_in(home)
    there = await asyncio.to_thread(copied, f"sqlite:{home}", url)
    assert (there["rooms"], there["messages"], there["activity_rows"], there["files"]) == (1, 4, 1, 1)
    settings_of(home, other)
    back = await asyncio.to_thread(copied, url, f"sqlite:{other}")
    # Both copies have the same; the time and the memory of a copy are its own.
    own = {"seconds": 0, "peak": 0}
    assert back | own == there | own
    for name in (".", f"{ROOMS_FOLDER}/{_ROOM}"):
        before, after = HomeStorage(home / name, "FULL"), HomeStorage(other / name, "FULL")
        between = DatabaseStorage(url, home / name)
        rows = dump(before)
        assert dump(between) == dump(after) == rows
        report = audited(before)
        assert audited(between) == audited(after) == report
        # No hub wrote the room, so its messages have no seals.
        assert report.intact == (name == "."), report.findings
        assert before.logins().read() == between.logins().read() == after.logins().read()
    assert {name for name, rows in dump(HomeStorage(home, "FULL")).items() if rows} >= _USED
    # A hub goes on with each of both.
    for path, store in ((home, url), (other, "sqlite")):
        async with running_hub(path, **_OPTIONS, store=store) as again:
            again.tokens = tokens
            bob = await again.join("bob", receive=True)
            assert "wäiting \U0001f98a" in bodies(await take(bob, 1, ack=True))
            ada = await again.join("ada")
            assert [one.body for one in await ada.search("violet")] == ["remember the violet"]
            assert (await ada.send("@bob", "remember the violet", wire_id="a\x00b")).duplicate
            assert [one.title for one in (await ada.objectives()).objectives] == ["Ship"]
            assert await get(again, "/fs/read/ada/a.txt", "ada") == b"the bytes" * 100_000


_USED = {"member", "token", "image", "channel", "channel_member", "objective", "message", "step", "log"}


async def test_a_copy_refuses_what_it_would_replace_and_what_a_hub_uses(folder: Path) -> None:
    home, url = folder / "one", database_url(folder)
    assert "no hub ever kept anything in" in refusal(url, f"sqlite:{folder / 'new'}")
    assert "there is no home" in refusal(f"sqlite:{folder / 'none'}", url)
    assert "one store is sqlite:HOME" in refusal(f"sqlite:{home}", f"sqlite:{folder / 'two'}")
    async with running_hub(home, **ALONE) as there:
        await there.add("ada")
        assert "another hub holds" in await asyncio.to_thread(refusal, f"sqlite:{home}", url)
    copied(f"sqlite:{home}", url)
    assert "is not empty: it has files.db" in refusal(url, f"sqlite:{home}")
    assert "is not empty: it has member" in refusal(f"sqlite:{home}", url)
    async with running_hub(folder / "two", **ALONE, store=url):
        said = await asyncio.to_thread(refusal, url, f"sqlite:{folder / 'three'}")
    assert f"is in use by the hub of {folder / 'two'}" in said


def test_a_copy_that_fails_leaves_a_store_that_is_empty(tmp_path: Path) -> None:
    home, url = tmp_path / "one", database_url(tmp_path)
    home.mkdir(mode=0o700)
    writer = Writer(lambda: SqliteStore(home, synchronous="OFF"))
    writer.accept(wire_id="w")
    writer.store.commit()
    writer.store.close()
    with contextlib.closing(apsw.Connection(str(home / "tieline.db"))) as damaged:
        damaged.pragma("ignore_check_constraints", True)
        damaged.execute("UPDATE log SET hash = x'00' WHERE offset = 0")
    assert "refused a batch" in refusal(f"sqlite:{home}", url)
    with contextlib.closing(apsw.Connection(str(home / "tieline.db"))) as damaged:
        damaged.execute("UPDATE log SET hash = zeroblob(32) WHERE offset = 0")
    assert copied(f"sqlite:{home}", url)["messages"] == 1
    with psycopg.connect(url, autocommit=True) as admin:
        # A room that this home does not know would be left behind.
        admin.execute(f"CREATE SCHEMA tieline_{_ROOM}".encode())
    assert "has 1 rooms that" in refusal(url, f"sqlite:{tmp_path / 'two'}")


def test_the_copy_knows_every_column_of_both_stores(tmp_path: Path) -> None:
    writer = Writer(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    writer.store.close()
    SqliteActivity(tmp_path).close()
    HomeStorage(tmp_path, "OFF").open_catalogue().close()
    url = database_url(tmp_path)
    DatabaseStorage(url, tmp_path).open_tables(writes=True).close()
    known = {table.name: {column.name for column in table.columns} for table in TABLES}
    beside = {"schema_version", "writer", "lease", "term", "cluster", "hub", "blob", "document"}
    with psycopg.connect(url) as admin:
        rows = admin.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'tieline'"
        ).fetchall()
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    # Terms are those of one database.
    found["log"].discard("term")
    assert {name: found[name] - {"single"} for name in found.keys() - beside - DERIVED} == known
    renamed = {"offset": "log_offset"}
    for file, part in (("tieline.db", "main"), ("activity.db", "activity"), ("files.db", "files")):
        with contextlib.closing(apsw.Connection(str(tmp_path / file))) as database:
            names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            asked = "SELECT name FROM pragma_table_info(?)"
            columns = {
                name: {renamed.get(row[0], row[0]) for row in database.execute(asked, (name,))} - {"only"}
                for name in names
                if name not in DERIVED
            }
        if part == "activity":
            columns = {name if name == part else f"activity_{name}": each for name, each in columns.items()}
            columns["activity_state"] = columns.pop("activity_log_state")
        assert columns == {table.name: known[table.name] for table in TABLES if table.part == part}


_BATCH = 1000


def fill(home: Path, messages: int) -> None:
    """Let the broker itself accept so many messages. Every second one is acknowledged, the others wait."""
    locked = Home(home)
    broker = open_broker(locked, load_config(home))
    try:
        operator = attached(broker, locked, None)
        broker.handle([c.AddMember(operator, name=MemberName(name)) for name in ("ada", "bob", "cy")])
        sessions = {name: attached(broker, locked, name) for name in ("ada", "bob", "cy")}
        for start in range(0, messages, _BATCH):
            said = [
                c.Send(sessions["ada"], content=numbered(number), wire_id=f"w{number}")
                for number in range(start, start + _BATCH)
            ]
            replies = broker.handle(said).replies
            assert all(isinstance(reply, r.Accepted) for reply in replies), replies[:2]
            broker.handle([c.Advance(sessions["bob"], ranges=((start // 2, (start + _BATCH) // 2),))])
            broker.commit()
    finally:
        broker.close()
        locked.release()


def numbered(number: int) -> Content:
    return Content(to_member(MemberName("bob" if number % 2 else "cy")), f"message {number}", kind=Kind.EVENT)


def attached(broker: Broker, home: Home, name: str | None) -> SessionId:
    """Open a session of a member, or of the operator."""
    member = None if name is None else MemberName(name)
    command = c.Attach(protocol="tieline", credential=ByHomeKey(home.key()), member=member)
    (reply,) = broker.handle([command]).replies
    assert isinstance(reply, r.Attached), reply
    return reply.session


@pytest.mark.timeout(3600)
def test_the_memory_of_a_copy_does_not_grow_with_the_store(tmp_path: Path) -> None:
    messages = 1_000_000 if SOAK else 5_000
    home, other, url = tmp_path / "one", tmp_path / "two", database_url(tmp_path)
    home.mkdir(mode=0o700)
    fill(home, messages)
    for source, target in ((f"sqlite:{home}", url), (url, f"sqlite:{other}")):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        found = copied(source, target)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, cpu = time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        where = "to PostgreSQL" if target == url else "to SQLite"
        counts = f"{messages} messages {where}: {found['rows']} rows"
        sys.stdout.write(f"{counts}, {seconds:.0f} s, {cpu:.0f} s CPU, {found['peak']} MiB\n")
        assert found["messages"] == messages
        assert 0 < found["peak"] < 200
    report = audited(DatabaseStorage(url, home))
    assert report.intact, report.findings
    assert audited(HomeStorage(home, "FULL")) == audited(HomeStorage(other, "FULL")) == report
