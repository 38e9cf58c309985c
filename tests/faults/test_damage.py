"""Tests with damaged files: a hub reports the damage and the remedy in one sentence, and uses the intact files."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest
from structlog.testing import capture_logs

from tests.cli.hub_process import TIELINE, environment, run_cli, wait_until
from tests.faults.disks import fill, small_disk
from tests.faults.test_full_disk import health
from tests.server.hubs import WAIT_SECONDS, HubHarness, bodies, running_hub, take
from tieline.cli.doctor_home import look_at_process
from tieline.client import HubRefused, Message
from tieline.contract.refusal import Code
from tieline.wire.home import RUN_FILE

pytestmark = [pytest.mark.slow]

_PAGE = 4096


async def write(home: Path, count: int) -> None:
    """Start a hub in this home, send `count` messages, and stop it."""
    async with running_hub(home) as there:
        await there.add("alice", "bob")
        alice = await there.join("alice")
        await asyncio.gather(*(alice.send("@bob", f"number {number} " + "x" * 500) for number in range(count)))


def leaf_pages(path: Path) -> list[int]:
    """Return the numbers of the pages of a database file that contain messages."""
    data = path.read_bytes()
    starts = range(_PAGE, len(data), _PAGE)
    return [
        start // _PAGE for start in starts if data[start] == 0x0D and b'"body":"number ' in data[start : start + _PAGE]
    ]


def damage(path: Path, page: int) -> None:
    """Overwrite the first 64 bytes of a page of a database file."""
    with path.open("r+b") as file:
        file.seek(page * _PAGE)
        file.write(b"\xff" * 64)


def root_page(home: Path, table: str) -> int:
    connection = apsw.Connection(str(home / "tieline.db"))
    try:
        return int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get) - 1
    finally:
        connection.close()


def break_header(home: Path) -> None:
    damage(home / "tieline.db", 0)


def break_members(home: Path) -> None:
    damage(home / "tieline.db", root_page(home, "member"))


def break_snapshot(home: Path) -> None:
    connection = apsw.Connection(str(home / "tieline.db"))
    connection.execute("UPDATE image SET streams = CAST('no streams' AS BLOB)")
    connection.close()


def lose_messages(home: Path) -> None:
    (home / "tieline.db").unlink()


def empty_messages(home: Path) -> None:
    os.truncate(home / "tieline.db", 0)


def empty_messages_alone(home: Path) -> None:
    empty_messages(home)
    for name in ("activity.db", "files.db", "search.db"):
        (home / name).unlink()


def break_activity(home: Path) -> None:
    damage(home / "activity.db", 0)


@pytest.mark.parametrize(
    ("break_it", "what", "do"),
    [
        (break_header, "tieline.db is damaged", "backup"),
        (break_members, "tieline.db is damaged", "backup"),
        (break_snapshot, "tieline.db is damaged", "backup"),
        (lose_messages, "tieline.db is missing", "backup"),
        (empty_messages, "tieline.db is empty", "backup"),
        (empty_messages_alone, "tieline.db is empty", "backup"),
        (break_activity, "activity.db is damaged", "move activity.db* away"),
    ],
)
async def test_a_hub_that_cannot_start_says_in_one_sentence_why_and_what_to_do(
    folder: Path, break_it: Callable[[Path], None], what: str, do: str
) -> None:
    home = folder / "h"
    await write(home, 20)
    break_it(home)
    before = sorted(path.name for path in home.iterdir())
    ended = await asyncio.to_thread(run_cli, home, "serve", "--home", str(home), "--http", "127.0.0.1:0")
    assert ended.returncode == 1
    assert what in ended.stderr
    assert do in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 4
    after = sorted(path.name for path in home.iterdir() if not path.name.endswith(("-wal", "-shm")))
    assert set(after) == set(before), "nothing was made in place of what is lost"


async def test_a_full_disk_at_the_start_is_called_a_full_disk(folder: Path) -> None:
    with small_disk(folder / "d", 8000) as disk:
        await write(disk / "h", 10)
        for leave in (0, 8192, 40_000, 70_000):
            ballast = fill(disk, leave=leave)
            said = await asyncio.to_thread(start_and_stop, disk / "h")
            ballast.unlink()
            if said:
                assert "is full" in said, said
                assert "df -h" in said
                assert "Traceback" not in said
            assert said or leave


def start_and_stop(home: Path) -> str:
    """Start a hub and stop it. Return its error text if it could not start, otherwise an empty text."""
    command = [str(TIELINE), "serve", "--home", str(home), "--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment(home))
    wait_until(lambda: process.poll() is not None or (home / RUN_FILE).exists(), "a start, or its end")
    if process.poll() is None:
        process.terminate()
        process.communicate(timeout=60)
        return ""
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    return said.decode()


async def crowd(there: HubHarness) -> None:
    """Issue new tokens for alice and bob, who exist in the home, and store them in the harness."""
    async with await there.operator() as operator:
        for name in ("alice", "bob"):
            there.tokens[name] = (await operator.rotate_token(name)).token


async def test_a_damaged_page_met_while_running_refuses_what_needs_it_and_the_hub_goes_on(folder: Path) -> None:
    home = folder / "h"
    # A start reads the newest thousands.
    await write(home, 5000)
    pages = leaf_pages(home / "tieline.db")
    damage(home / "tieline.db", pages[20])
    with capture_logs() as logs:
        async with running_hub(home) as there:
            await crowd(there)
            alice, bob = await there.join("alice"), await there.join("bob")
            with pytest.raises(HubRefused) as caught:
                await bob.inbox(limit=10_000)
            assert caught.value.code is Code.STORE_FAILED
            assert "damaged" in caught.value.message
            await alice.send("@alice", "to oneself")
            hearer = await there.join("alice", receive=True)
            assert bodies(await take(hearer, 1)) == ["to oneself"]
            assert len(await bob.members()) == 2, "the same session goes on"
            status, document = await health(there)
            assert (status, document["status"]) == (503, "failing")
            assert "damaged" in document["reasons"][0]["reason"]
            assert "backup" in document["reasons"][0]["do"]
            found = await asyncio.to_thread(lambda: list(look_at_process(home)))
            assert any("damaged" in finding.what and "backup" in finding.do for finding in found)
    assert len([entry for entry in logs if entry["event"] == "a database is damaged"]) == 1


async def test_a_search_index_that_is_damaged_while_it_runs_is_made_anew(folder: Path) -> None:
    home = folder / "h"
    await write(home, 50)
    with capture_logs():
        async with running_hub(home) as there:
            await crowd(there)
            bob = await there.join("bob")
            assert len(await bob.search("number", limit=100)) == 50
    for page in range(2, (home / "search.db").stat().st_size // _PAGE):
        damage(home / "search.db", page)
    with capture_logs():
        async with running_hub(home) as there:
            await crowd(there)
            bob = await there.join("bob")
            found: Sequence[Message] = ()
            async with asyncio.timeout(WAIT_SECONDS):
                while not found:
                    with contextlib.suppress(HubRefused):
                        found = await bob.search("number", limit=100)
            assert len(found) == 50
