"""Tests of the options that name the hub and the member: the address that a command uses, and for whom it acts."""

import os
from pathlib import Path

import pytest

from tieline.cli.session import Link
from tieline.wire.home import RUN_FILE, Running

PIN = "#sha256=" + "1f" * 32


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("hub:7117", "http://hub:7117"),
        (f"hub:7117{PIN}", f"https://hub:7117{PIN}"),
        ("https://hub", "https://hub"),
        (f"http://hub{PIN}", f"http://hub{PIN}"),
    ],
)
def test_an_address_with_a_fingerprint_means_tls(given: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Link(url=given).address == used
    monkeypatch.setenv("TIELINE_URL", given)
    assert Link().address == used


@pytest.mark.parametrize(
    ("stored", "acts"), [('{"agent": "bob"}', False), ('{"agent": "alice"}', True), ("{broken", True)]
)
def test_a_stored_name_that_cannot_be_read_ends_no_command_that_names_its_member(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stored: str, acts: bool
) -> None:
    running = Running(os.getpid(), "0", "http://127.0.0.1:1", "hub.sock", "sqlite")
    (folder / RUN_FILE).write_bytes(running.encode())
    spool = folder / "spool"
    spool.mkdir()
    (spool / "config.json").write_text(stored)
    monkeypatch.setenv("BACKCHANNEL_HOME", str(spool))
    assert Link(home=folder, member="bob").acts_for_another() is acts
