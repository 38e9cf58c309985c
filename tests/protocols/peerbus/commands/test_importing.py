"""Tests of the import from a peerbus broker: its peers and their unacknowledged messages."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.protocols.peerbus.foreign import digest_of, make_database
from tests.protocols.peerbus.peers import envelope
from tieline.cli.failure import Failure
from tieline.protocols.peerbus.client import Adapter
from tieline.protocols.peerbus.commands.importing import new_names

pytestmark = pytest.mark.slow

TOKEN = "token-one-of-the-tests"
SECRET = "k" * 32


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    process = HubProcess("--peerbus", "127.0.0.1:0")
    process.home.mkdir(mode=0o700)
    (process.home / "tieline.toml").write_text(f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{SECRET}"\n')
    try:
        yield process
    finally:
        process.__exit__()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Fixture: a broker's database with two unacknowledged messages for bob, one of them a copy of a broadcast."""
    path = tmp_path / "peerbus.db"
    direct, broadcast = envelope("alice", "bob", "direct", id="m-1"), envelope("alice", "*", "all", id="b-1")
    messages = [
        ("m-0", "alice", "bob", envelope("alice", "bob", "acknowledged", id="m-0"), True),
        ("m-1", "alice", "bob", direct, False),
        ("b-1|bob", "alice", "bob", broadcast, False),
        ("b-1|carol", "alice", "carol", broadcast, True),
    ]
    make_database(path, ["alice", "bob", "carol"], messages)
    return path


async def listen(hub: HubProcess, name: str, count: int) -> list[tuple[str, bytes]]:
    assert hub.running.places["peerbus"] is not None
    found = []
    async with (
        asyncio.timeout(20),
        Adapter(hub.running.places["peerbus"], name=name, token=TOKEN, secret=SECRET) as peer,
    ):
        async for delivery in peer:
            found.append((delivery.key, delivery.envelope.raw))
            await peer.ack(delivery)
            if len(found) == count:
                break
        await peer.peers()
    return found


def test_what_waited_comes_to_the_peers_byte_for_byte(hub: HubProcess, database: Path) -> None:
    before = digest_of(database)
    done = hub.cli("import", "peerbus", str(database))
    assert (done.returncode, done.stdout) == (0, "Imported 3 new peers, 2 messages.\n"), done.stderr
    assert digest_of(database) == before
    hub.start()
    with contextlib.closing(sqlite3.connect(database)) as source:
        kept = source.execute("SELECT id, envelope FROM messages WHERE acked = 0").fetchall()
    assert asyncio.run(listen(hub, "bob", 2)) == kept
    assert hub.cli("audit", "verify").returncode == 0


def test_doing_it_twice_brings_nothing_twice(hub: HubProcess, database: Path) -> None:
    hub.cli("import", "peerbus", str(database))
    again = json.loads(hub.cli("import", "peerbus", str(database), "--json").stdout)
    assert again == {"peers": 0, "messages": 0, "known": 2, "audit": "intact", "left": []}


def test_what_cannot_be_brought_is_named_and_the_rest_comes(hub: HubProcess, tmp_path: Path) -> None:
    path = tmp_path / "peerbus.db"
    good = envelope("alice", "bob", "good", id="m-1")
    messages = [
        ("m-1", "alice", "bob", good, False),
        ("m-2", "alice", "bob", b"nonsense", False),
        ("m-3", "bad name", "bob", good, False),
        ("m-4", "alice", "nobody", good, False),
    ]
    make_database(path, ["alice", "bob", "bad name"], messages)
    done = hub.cli("import", "peerbus", str(path), "--json")
    assert done.returncode == 1
    counts = json.loads(done.stdout)
    assert (counts["peers"], counts["messages"], len(counts["left"])) == (2, 1, 4)


@pytest.fixture
def reserved(tmp_path: Path) -> Path:
    """Fixture: a broker's database with peers whose names the hub refuses. `system` has messages from `build bot`."""
    path = tmp_path / "peerbus.db"
    message = ("m-1", "build bot", "system", envelope("build bot", "system", "done", id="m-1"), False)
    copy = ("b-1|system", "build bot", "system", envelope("build bot", "*", "all", id="b-1"), False)
    make_database(path, ["system", "build bot"], [message, copy])
    return path


def test_a_peer_whose_name_is_refused_is_brought_under_another_and_reads_what_waited(
    hub: HubProcess, reserved: Path
) -> None:
    left = json.loads(hub.cli("import", "peerbus", str(reserved), "--json").stdout)["left"]
    assert any("kept for the hub itself" in line for line in left)
    names = ("--rename", "system=the-system", "--rename", "build bot=build-bot")
    done = hub.cli("import", "peerbus", str(reserved), *names)
    assert (done.returncode, done.stdout) == (0, "Imported 2 new peers, 2 messages.\n"), done.stderr
    again = json.loads(hub.cli("import", "peerbus", str(reserved), *names, "--json").stdout)
    assert again == {"peers": 0, "messages": 0, "known": 2, "audit": "intact", "left": []}
    hub.start()
    found = asyncio.run(listen(hub, "the-system", 2))
    assert [key for key, _ in found] == ["m-1", "b-1|system"]
    (message, _) = json.loads(hub.cli("history", "--as", "the-system", "--json").stdout)
    assert (message["from"], message["signature"]) == ("build-bot", "verified")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["nobody=somebody"], "is not OLD=NEW for a peer"),
        (["system"], "is not OLD=NEW for a peer"),
        (["system=hub"], "kept for the hub itself"),
        (["system=a b"], "invalid member name"),
        (["system=x", "system=y"], "named before"),
        (["system=x", "build bot=X"], "would both be called"),
    ],
)
def test_a_new_name_that_cannot_be_used_is_refused_before_anything_is_brought(names: list[str], why: str) -> None:
    with pytest.raises(Failure, match=why):
        new_names(names, ["system", "build bot"])


def test_columns_of_odd_types_are_no_crash(hub: HubProcess, database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as source, source:
        source.execute("UPDATE messages SET envelope = CAST(envelope AS TEXT) WHERE id = 'm-1'")
        source.execute("UPDATE messages SET envelope = 5, sender = x'ff' WHERE id = 'b-1|bob'")
        source.execute("UPDATE audit SET event = 7, prev_hash = 8 WHERE seq = 2")
    done = hub.cli("import", "peerbus", str(database), "--json")
    assert done.returncode == 1, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["messages"], len(counts["left"])) == (1, 1)
    assert counts["audit"] == "row 2 does not follow from the row before it"


def test_a_broken_audit_chain_of_the_broker_is_said(hub: HubProcess, database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as source, source:
        source.execute("UPDATE audit SET event = x'7b7d' WHERE seq = 1")
    done = hub.cli("import", "peerbus", str(database))
    assert done.returncode == 0
    assert "row 1 was changed" in done.stderr


def test_a_hub_that_runs_a_file_that_is_none_and_a_home_without_a_token_are_refused(
    hub: HubProcess, database: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    other.write_text("this is no database")
    for path in (other, tmp_path / "missing.db"):
        assert hub.cli("import", "peerbus", str(path)).returncode == 2
    bare = HubProcess(home=tmp_path / "bare")
    bare.home.mkdir()
    (bare.home / "tieline.toml").write_text("[peerbus]\n")
    assert "no token" in bare.cli("import", "peerbus", str(database)).stderr
    assert bare.cli("import", "peerbus", str(database), "--token", TOKEN).returncode == 0
    hub.start()
    done = hub.cli("import", "peerbus", str(database))
    assert done.returncode == 1
    assert "is running" in done.stderr
