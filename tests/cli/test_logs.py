"""Tests of `tieline log`: the hub's logs and the programs that read them, and the doctor's findings about both."""

import asyncio
import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.hub_process import run_cli
from tests.server.hubs import HubHarness, running_hub
from tieline.cli.doctor_finding import DoctorFinding, Grade
from tieline.cli.doctor_log import logs
from tieline.cli.failure import Exit

DAY_MS = 24 * 3600 * 1000


async def lived(there: HubHarness) -> None:
    """Add members, messages and a reader of the log to a hub."""
    await there.add("alice", "bob")
    alice = await there.join("alice")
    for number in range(40):
        await alice.send("@bob", f"message {number}")
    async with await there.operator() as operator:
        await operator.advance_reader("lake", 3)


def about(findings: list[DoctorFinding], word: str) -> DoctorFinding:
    (found,) = [finding for finding in findings if word in finding.what]
    return found


@pytest.mark.slow
async def test_readers_are_listed_and_forgotten(folder: Path) -> None:
    async with running_hub(folder) as there:
        await lived(there)

        async def tieline(*words: str) -> subprocess.CompletedProcess[str]:
            return await asyncio.to_thread(run_cli, folder, *words)

        listed = await tieline("log", "readers", "--json")
        assert listed.returncode == 0, listed
        told = json.loads(listed.stdout)
        assert [(one["name"], one["log"], one["position"]) for one in told["readers"]] == [("lake", "main", 3)]
        assert [one["log"] for one in told["logs"]] == ["main", "activity"]
        table = await tieline("log", "readers")
        assert "lake" in table.stdout
        assert told["logs"][0]["epoch"] in table.stdout
        assert (await tieline("log", "forget", "lake")).returncode == 0
        again = await tieline("log", "forget", "lake")
        assert again.returncode == Exit.REFUSED
        assert "There are no readers." in (await tieline("log", "readers")).stdout


async def test_the_doctor_names_epochs_readers_and_growth(folder: Path) -> None:
    async with running_hub(folder) as there:
        await lived(there)
    found = list(logs(folder))
    assert {finding.grade for finding in found} == {Grade.WELL}, found
    assert "its epoch is" in about(found, "the log main has").what
    assert "the log activity has 0 rows" in about(found, "the log activity has").what
    assert "bytes a message" in about(found, "grows").what
    assert "is at row 3 of" in about(found, "the reader lake").what


async def test_the_doctor_warns_of_a_reader_that_is_late_or_missed_rows(folder: Path) -> None:
    async with running_hub(folder) as there:
        await lived(there)
    with closing(sqlite3.connect(folder / "tieline.db")) as database:
        with database:
            database.execute("UPDATE log SET at_ms = at_ms - ?", (36 * DAY_MS,))
        late = about(list(logs(folder)), "the reader lake")
        assert late.grade is Grade.WRONG
        assert "are used up" in late.why
        assert "tieline log forget lake" in late.do
        with database:
            database.execute("UPDATE reader SET missed = 7, missed_first = 3, missed_last = 12")
        missed = about(list(logs(folder)), "the reader lake")
        assert missed.grade is Grade.WRONG
        assert "deleted 7 rows before it read them" in missed.what
        assert "3 to 12" in missed.why
