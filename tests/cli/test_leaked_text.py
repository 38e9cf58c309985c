"""Tests of the search for the text of a redacted message in the database and in files."""

import json
from pathlib import Path

import pytest

from tests.core.doubles import BrokerHarness
from tieline.cli import leaked_text
from tieline.cli.leaked_text import Leak
from tieline.stores.sqlite import SqliteStore
from tieline.wire.home import Running

SECRET = 'grüße "hunter2" aus 東京'


@pytest.mark.parametrize("place", [".", "forgotten"])
def test_the_texts_are_found_in_the_database_wherever_it_is_in_the_home(tmp_path: Path, place: str) -> None:
    assert leaked_text.find_leak(tmp_path, "an id") == Leak()
    harness = BrokerHarness(lambda: SqliteStore(tmp_path / place, synchronous="OFF"))
    sent = harness.send(harness.join("alice"), "@alice", SECRET)
    assert leaked_text.find_leak(tmp_path, sent.message_id) == Leak((SECRET,))
    assert leaked_text.find_leak(tmp_path, "an id") == Leak()


async def test_files_outside_the_home_and_texts_in_ascii_are_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaked_text, "_CHECKS_MAX", 1)
    home, spool = tmp_path / "home", tmp_path / "spool"
    for folder in (home / "spool-home", spool):
        folder.mkdir(parents=True)
    places = {"spool": str(spool), "inside": str(home / "spool-home"), "socket": str(home / "a.sock"), "none": None}
    running = Running(pid=1, version="", http="", hub_socket="", store="", places=places)
    monkeypatch.setattr(leaked_text, "read_running", lambda _: running)
    once = json.dumps({"body": SECRET})
    written = {
        home / "plain": SECRET,
        home / "spool-home" / "dumped": once,
        spool / "nested": json.dumps({"result": once}),
        spool / "other": "something else",
    }
    for path, text in written.items():
        path.write_text(text)
    assert await leaked_text.wait_until_gone(home, Leak((SECRET,))) == list(written)[:3]
