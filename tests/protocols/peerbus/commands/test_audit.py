"""Tests of commands on a running hub: export of the log as the first peerbus broker's audit chain, and checkpoints."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.cli.hub_process import HubProcess
from tests.protocols.peerbus.foreign import audit_events, flip_each_column
from tieline.protocols.peerbus.client import Adapter
from tieline.protocols.peerbus.database import DatabaseError, Export, Source

pytestmark = pytest.mark.slow

TOKEN = "token-one-of-the-tests"
SECRET = "k" * 32
CONFIG = f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{SECRET}"\n'


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    process = HubProcess("--peerbus", "127.0.0.1:0")
    process.home.mkdir(mode=0o700)
    (process.home / "tieline.toml").write_text(CONFIG)
    with process as running:
        yield running


def peer(hub: HubProcess, name: str) -> Adapter:
    assert hub.running.places["peerbus"] is not None
    return Adapter(hub.running.places["peerbus"], name=name, token=TOKEN, secret=SECRET)


async def talk(hub: HubProcess) -> tuple[str, str]:
    """Send a direct message, which is acknowledged, and a broadcast, which is not. Return the ids of both."""
    async with peer(hub, "alice") as alice, peer(hub, "bob") as bob:
        direct = await alice.send("bob", {"text": "direct <&>"})
        async with asyncio.timeout(10):
            async for delivery in bob:
                await bob.ack(delivery)
                break
        await bob.peers()
        broadcast = await alice.broadcast("to all")
        async with asyncio.timeout(10):
            async for _ in bob:
                break
        await bob.peers()
        await alice.confirm()
    return direct, broadcast


def test_the_export_is_a_chain_that_the_first_verifier_accepts(hub: HubProcess, tmp_path: Path) -> None:
    direct, broadcast = asyncio.run(talk(hub))
    hub.add_members("carol")
    (translated,) = hub.send("carol", "@bob", "from elsewhere")
    target = tmp_path / "peerbus.db"
    done = hub.cli("audit", "export", "--format", "peerbus", str(target))
    assert done.returncode == 0, done.stderr
    events = audit_events(target)
    assert done.stdout == f"{len(events)} rows are in {target}.\n"
    assert target.stat().st_mode & 0o077 == 0
    expected = [
        {"event": "send", "id": direct, "from": "alice", "to": "bob"},
        {"event": "deliver", "id": direct, "from": "alice", "to": "bob"},
        {"event": "ack", "id": direct, "from": "bob", "to": ""},
        {"event": "send", "id": f"{broadcast}|bob", "from": "alice", "to": "bob"},
        {"event": "deliver", "id": f"{broadcast}|bob", "from": "alice", "to": "bob"},
        {"event": "send", "id": translated, "from": "carol", "to": "bob"},
    ]
    found = [event for event in events if event in expected]
    # Deliveries and acknowledgements are committed later, so they may come after the next message.
    for ident in {event["id"] for event in expected}:
        assert [event for event in found if event["id"] == ident] == [
            event for event in expected if event["id"] == ident
        ]
    with contextlib.closing(sqlite3.connect(target)) as database:
        assert {row[0] for row in database.execute("SELECT name FROM peers")} == {"alice", "bob", "carol"}
    assert Source(target).chain_break() is None


def test_one_flipped_bit_in_any_column_of_an_exported_chain_is_found_and_its_row_is_named(
    hub: HubProcess, tmp_path: Path
) -> None:
    asyncio.run(talk(hub))
    target = tmp_path / "peerbus.db"
    assert hub.cli("audit", "export", "--format", "peerbus", str(target)).returncode == 0
    rows = len(audit_events(target))
    flipped = 0
    for seq in flip_each_column(target):
        # A row whose place is another's is missed at its own.
        with pytest.raises(AssertionError, match=rf"row {seq} "):
            audit_events(target)
        with contextlib.closing(Source(target)) as source:
            assert f"row {seq} " in (source.chain_break() or "")
        flipped += 1
    assert flipped == 4 * rows
    assert len(audit_events(target)) == rows, "each flip was taken back"


def test_the_export_needs_a_file_and_an_intact_log(hub: HubProcess, tmp_path: Path) -> None:
    assert hub.cli("audit", "export", "--format", "peerbus").returncode == 2
    hub.add_members("alice")
    hub.stop()
    with apsw.Connection(str(hub.home / "tieline.db")) as database:
        database.execute("UPDATE log SET event = CAST('{}' AS BLOB) WHERE offset = 0")
    done = hub.cli("audit", "export", "--format", "peerbus", "--out", str(tmp_path / "x.db"))
    assert done.returncode == 1
    assert "broken at row 0" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_export_into_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError):
        Export(tmp_path / "no such folder" / "x.db")


def test_what_retention_forgot_keeps_its_send_row(hub: HubProcess, tmp_path: Path) -> None:
    direct, _ = asyncio.run(talk(hub))
    hub.stop()
    with apsw.Connection(str(hub.home / "tieline.db")) as database:
        forgotten = str(database.execute("SELECT id FROM message WHERE wire_id = ?", (direct,)).get)
        database.execute("DELETE FROM message WHERE wire_id = ?", (direct,))
    assert hub.cli("audit", "export", "--format", "peerbus", str(tmp_path / "x.db")).returncode == 0
    events = [event for event in audit_events(tmp_path / "x.db") if event["id"] in (forgotten, direct)]
    assert events == [{"event": "send", "id": forgotten, "from": "alice", "to": "bob"}]


# Checkpoints


def cut(hub: HubProcess, count: int) -> None:
    """Delete the last `count` rows of a hub's log, and everything that would show it."""
    with apsw.Connection(str(hub.home / "tieline.db")) as database:
        end = int(database.execute("SELECT max(offset) + 1 FROM log").get)
        for table in ("log", "message", "step"):
            database.execute(f"DELETE FROM {table} WHERE offset >= ?", (end - count,))
        database.execute("DELETE FROM image")
        database.execute("UPDATE snapshot SET log_end = 0")


def test_a_cut_tail_is_found_out_by_a_checkpoint_and_only_by_one(hub: HubProcess, tmp_path: Path) -> None:
    hub.add_members("alice", "bob")
    hub.send("alice", "@bob", "one", "two", "three")
    kept = tmp_path / "kept.json"
    done = hub.cli("audit", "checkpoint", "--out", str(kept))
    assert done.returncode == 0, done.stderr
    rows = json.loads(kept.read_text())["rows"]
    assert done.stdout.startswith(f"Checkpoint: {rows} rows")
    assert json.loads(hub.cli("audit", "checkpoint", "--json").stdout)["rows"] >= rows
    for name in ("audit.key", "checkpoints.jsonl"):
        assert (hub.home / name).stat().st_mode & 0o077 == 0
    assert hub.cli("audit", "verify").returncode == 0
    assert hub.cli("audit", "verify", "--checkpoint", str(kept)).returncode == 0
    hub.stop()
    cut(hub, 2)
    done = hub.cli("audit", "verify")
    assert done.returncode == 1
    assert "cut off" in done.stderr
    assert hub.cli("audit", "checkpoint").returncode == 1, "no checkpoint is made of what is broken"
    (hub.home / "checkpoints.jsonl").unlink()
    assert hub.cli("audit", "verify").returncode == 0, "without any checkpoint nobody can tell"
    done = hub.cli("audit", "verify", "--checkpoint", str(kept))
    assert done.returncode == 1
    assert "cut off" in done.stderr


def test_checkpoints_that_were_tampered_with_are_found_out(hub: HubProcess, tmp_path: Path) -> None:
    hub.add_members("alice")
    for _ in range(3):
        hub.cli("audit", "checkpoint")
    path = hub.home / "checkpoints.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    for spoiled, what in (
        ([lines[0], lines[2]], "is missing"),
        ([lines[0].replace('"rows":', '"rows":1'), *lines[1:]], "not signed by this home's key"),
    ):
        path.write_text("\n".join(spoiled))
        done = hub.cli("audit", "verify")
        assert done.returncode == 1
        assert what in done.stderr
    path.write_text("nonsense")
    assert hub.cli("audit", "verify").returncode == 2
    path.write_text("\n".join(lines))
    kept = tmp_path / "kept"
    kept.write_text(lines[2])
    path.write_text("\n".join(lines[:2]))
    assert "lost the checkpoint" in hub.cli("audit", "verify", "--checkpoint", str(kept)).stderr
    (hub.home / "audit.key").unlink()
    assert "key that signed the checkpoints is missing" in hub.cli("audit", "verify").stderr
