"""Tests of `tieline redact` with a real hub: no file of the home has the secret afterwards, wherever it was."""

import asyncio
import hashlib
import json
import urllib.request
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until
from tieline.cli.last_backup import last_backup

SECRET = "hunter2-is-the-password"

pytestmark = pytest.mark.slow


def files_with_it(folder: Path) -> set[str]:
    """Return the names of the files under a folder that have the secret, in any case."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.name for path in found if SECRET.encode() in path.read_bytes().lower()}


def ask(url: str, token: str, content: bytes, kind: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers)) as answer:
        answer.read()


async def upload(hub: HubProcess) -> None:
    async with await hub.connect("bob") as bob:
        await bob.record_activity({"kind": "tool", "result": f"a message: {SECRET}"})


def test_no_file_of_the_home_has_the_secret_afterwards() -> None:
    with HubProcess() as hub:
        alice, _ = hub.add_members("alice", "bob")
        hub.cli("init", "local", "--spool", str(hub.home / "spool-home"))
        wait_until(lambda: "local" in hub.member_names(), "the local agent")
        url = hub.running.http
        ask(f"{url}/fs/write?path=/alice/key.txt", alice, SECRET.encode(), "text/plain")
        attached = [{"path": "/alice/key.txt", "name": "key.txt", "size": 1, "mimeType": "text/plain"}]
        message = {"to": "bob", "body": SECRET, "attachments": attached}
        ask(f"{url}/push", alice, json.dumps(message).encode(), "application/json")
        hub.send("alice", "@local", f"for a file: {SECRET}")
        asyncio.run(upload(hub))
        wait_until(
            lambda: any(name.endswith(".json") for name in files_with_it(hub.home)), "the file of the local agent"
        )
        assert hub.cli("search", "hunter2", "--as", "bob").stdout.count(SECRET) == 1
        (hub.home / "before-upgrade").mkdir()
        (hub.home / "before-upgrade" / "7-4-1.tar.gz").write_text(SECRET)
        history = json.loads(hub.cli("history", "--as", "alice", "--json").stdout)
        assert len(history) == 2
        (hub.home / "lake").mkdir()
        done = hub.cli("redact", history[0]["id"], "--reason", "a password", "--as", "alice")
        assert done.returncode == 0, done.stderr
        assert "until the next 'tieline pipeline run'" in done.stdout
        done = hub.cli("redact", history[1]["id"], "--reason", "a password", "--json")
        assert (done.returncode, json.loads(done.stdout)["left"]) == (0, []), done.stderr
        assert files_with_it(hub.home) == set()
        assert not (hub.home / "before-upgrade").exists()
        inbox = hub.cli("inbox", "--as", "bob").stdout
        assert "redacted by operator: a password" in inbox
        assert "attachment" not in inbox
        assert hub.cli("search", "hunter2", "--as", "bob").stdout == hub.cli("search", "nothing", "--as", "bob").stdout
        (unread,) = (hub.home / "spool-home" / "spool" / "local" / "new").iterdir()
        assert json.loads(unread.read_text())["body"] == "redacted by alice: a password"
        assert hub.cli("audit", "verify").returncode == 0
        again = hub.cli("redact", history[1]["id"], "--reason", "again")
        assert again.returncode == 0, again.stderr
        assert "was redacted before, by operator, " in again.stdout
        again = hub.cli("redact", history[1]["id"], "--reason", "again", "--json")
        assert json.loads(again.stdout).items() >= {"by": "operator", "again": True, "left": []}.items()
        assert hub.cli("audit", "verify").returncode == 0
        hub.stop()
        assert files_with_it(hub.home) == set()


def test_backups_and_attachments_that_others_share_are_named_and_removed(tmp_path: Path) -> None:
    with HubProcess("--backup", "1h", "--backup-dir", str(tmp_path / "regular")) as hub:
        token, _ = hub.add_members("alice", "bob")
        wait_until(lambda: last_backup(hub.home), "the regular backup")
        regular = last_backup(hub.home)
        assert regular is not None
        foreign = tmp_path / "regular" / "tieline-00000000-20260101T000000Z.tar.gz"
        foreign.touch()
        by_hand = tmp_path / "by-hand.tar.gz"
        for name in ("key.txt", "copy.txt"):
            ask(f"{hub.running.http}/fs/write?path=/alice/{name}", token, SECRET.encode(), "text/plain")
        attached = [{"path": "/alice/key.txt", "name": "key.txt", "size": 1, "mimeType": "text/plain"}]
        message = {"to": "bob", "body": "see the file", "attachments": attached}
        for _ in range(2):
            ask(f"{hub.running.http}/push", token, json.dumps(message).encode(), "application/json")
        assert hub.cli("backup", str(by_hand)).returncode == 0
        history = json.loads(hub.cli("history", "--as", "alice", "--json").stdout)
        done = hub.cli("redact", history[0]["id"], "--reason", "a password")
        assert (done.returncode, "still have its content" in done.stderr) == (1, True), done.stderr
        assert "the content of /alice/copy.txt" in done.stderr
        assert files_with_it(hub.home) == {hashlib.sha256(SECRET.encode()).hexdigest()}
        assert [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")] == [
            str(by_hand),
            regular.file,
        ]
        done = hub.cli("redact", history[0]["id"], "--reason", "again", "--remove-backups", "--json")
        assert json.loads(done.stdout).items() >= {"removed": [str(by_hand), regular.file], "left": []}.items()
        assert set(tmp_path.rglob("*.gz")) - {foreign} == set()
        assert last_backup(hub.home) is None


def test_it_works_with_a_store_in_memory_and_looks_into_a_spool_outside_the_home(tmp_path: Path) -> None:
    with HubProcess("--store", "memory", "--spool", str(tmp_path)) as hub:
        hub.add_members("alice", "bob")
        hub.send("alice", "@bob", f"{SECRET} für bob")
        sent = json.loads(hub.cli("history", "--as", "alice", "--json").stdout)[0]["id"]
        copy = tmp_path / "spool" / "bob" / "copy"
        copy.write_text(json.dumps({"body": f"{SECRET} für bob"}))
        done = hub.cli("redact", sent, "--reason", "a password", "--json")
        assert (done.returncode, json.loads(done.stdout)["left"]) == (1, [str(copy)]), done.stderr
