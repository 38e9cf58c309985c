"""Tests of `tieline doctor`: its findings, with their reasons and advice."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.cli.hub_process import HubProcess, run_cli
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import running_hub
from tieline import __version__
from tieline.cli import doctor_installation
from tieline.cli.canary import is_canary
from tieline.cli.checkpoints import Checkpoints
from tieline.cli.doctor_canary import canary
from tieline.cli.doctor_finding import DoctorFinding, Grade
from tieline.cli.doctor_home import look_at_home, look_at_place, look_at_process, look_at_transport
from tieline.cli.doctor_installation import installation
from tieline.cli.doctor_members import look_at_invitations, look_at_members, look_at_ways, ways
from tieline.cli.doctor_pipeline import pipeline
from tieline.cli.doctor_store import audit, backups, databases
from tieline.cli.failure import Exit
from tieline.cli.last_backup import LastBackup
from tieline.client import InvitationView, Leg, MemberView, Reach, Way
from tieline.console import report_page
from tieline.contract.member import ROOM_INVITATION
from tieline.core.audit import verify
from tieline.protocols import protocols
from tieline.stores.sqlite.inspection import open_inspection
from tieline.wire.home import RESTORE_FOLDER, RUN_FILE, Running
from tieline.wire.insights import FILE as INSIGHTS_FILE

HOUR_MS = 3600 * 1000
NOTHING_SPOKEN = {protocol.name: {"enabled": False} for protocol in protocols()}


@pytest.fixture
async def home(folder: Path) -> Path:
    """Fixture: a home with a few messages, whose hub has stopped."""
    async with running_hub(folder / "home") as there:
        await there.add("alice", "bob")
        alice = await there.join("alice")
        for number in range(3):
            await alice.send("@bob", f"message {number}")
    return folder / "home"


def look(home: Path, *, deep: bool = False) -> list[DoctorFinding]:
    return [*look_at_home(home), *look_at_process(home), *databases(home, deep=deep), *audit(home, deep=deep)]


def wrongs(findings: list[DoctorFinding]) -> list[DoctorFinding]:
    return [finding for finding in findings if finding.grade is Grade.WRONG]


def the_wrong(findings: list[DoctorFinding]) -> DoctorFinding:
    """Return the only finding about a fault. Check that it has a reason and advice."""
    (found,) = wrongs(findings)
    assert found.why
    assert found.do
    return found


@pytest.mark.parametrize("deep", [False, True])
async def test_a_home_whose_hub_stopped_cleanly_has_nothing_wrong_with_it(home: Path, deep: bool) -> None:
    assert wrongs(look(home, deep=deep)) == []


async def test_a_running_hub_that_answers_has_nothing_wrong_with_it(folder: Path) -> None:
    async with running_hub(folder / "home"):
        found = await asyncio.to_thread(look, folder / "home")
    assert wrongs(found) == []
    assert any("Unix sockets answer" in finding.what for finding in found)


async def test_rooms_are_counted_and_each_can_be_looked_at_as_a_home(folder: Path) -> None:
    async with running_hub(folder / "home") as there:
        assert there.hub.rooms is not None
        made = await there.hub.rooms.create()
        assert made is not None
        await Agent(there.running.http, made.token).register("alice")
    assert any("1 room besides the common one" in finding.what for finding in look_at_home(folder / "home"))
    assert wrongs(look(folder / "home")) == []
    assert wrongs(look(folder / "home" / "rooms" / made.id)) == []


@pytest.mark.parametrize("name", ["key", "tieline.toml", "tieline.db"])
async def test_a_file_that_others_may_read_is_found_with_the_command_that_closes_it(home: Path, name: str) -> None:
    (home / name).chmod(0o644)
    assert the_wrong(look(home)).do == f"chmod 600 {home / name}"


async def test_a_home_that_others_may_enter_is_found(home: Path) -> None:
    home.chmod(0o755)
    assert the_wrong(look(home)).do == f"chmod 700 {home}"


async def test_a_home_that_others_may_write_to_is_found(home: Path) -> None:
    home.chmod(0o777)
    found = the_wrong(look(home))
    assert "others can write" in found.what
    assert f"chmod go-w {home}" in found.do


def test_a_folder_that_no_hub_would_start_in_is_found_before_there_is_a_hub(folder: Path) -> None:
    assert list(look_at_place(folder / "none yet")) == []
    assert list(look_at_place(folder)) == []
    folder.chmod(0o777)
    assert "others can write" in the_wrong(list(look_at_place(folder))).what


def test_a_home_that_is_half_restored_is_found(folder: Path) -> None:
    (folder / RESTORE_FOLDER).mkdir()
    assert "half restored" in the_wrong(list(look_at_place(folder))).what


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_found(folder: Path) -> None:
    place = folder / "theirs"
    place.mkdir(mode=0o700)
    os.chown(place, 12345, 12345)
    assert "belongs to user 12345" in the_wrong(list(look_at_place(place))).what


async def test_a_home_that_lost_its_messages_is_found(home: Path) -> None:
    os.truncate(home / "tieline.db", 0)
    assert "tieline.db is empty" in the_wrong(look(home)).what
    (home / "tieline.db").unlink()
    found = the_wrong(look(home))
    assert "tieline.db is missing" in found.what
    assert "backup" in found.do


async def test_a_home_that_keeps_no_messages_has_nothing_wrong_with_it(folder: Path) -> None:
    async with running_hub(folder / "home", store="memory"):
        assert wrongs(await asyncio.to_thread(look, folder / "home")) == []
    found = look(folder / "home")
    assert wrongs(found) == []
    assert any("left no messages" in finding.what for finding in found)
    async with running_hub(folder / "home"):
        assert wrongs(await asyncio.to_thread(look, folder / "home")) == []


async def test_a_configuration_that_cannot_be_used_is_found(home: Path) -> None:
    (home / "tieline.toml").write_text("[http]\nlisten = 5\n")
    found = the_wrong(look(home))
    assert "tieline.toml" in found.what
    assert "does not start" in found.why


async def test_a_hub_that_was_killed_is_found(home: Path) -> None:
    running = {"pid": 2**22 + 1, "version": "0", "http": "http://127.0.0.1:1", "hub_socket": "", "store": "sqlite"}
    nothing = dict.fromkeys(("relay_socket", "channels_dir", "spool"))
    (home / RUN_FILE).write_text(json.dumps({**running, **nothing}))
    (home / RUN_FILE).chmod(0o600)
    found = the_wrong(look(home))
    assert "is gone" in found.what
    assert found.do == f"tieline serve --home {home}"


async def test_a_run_file_that_is_no_json_is_found(home: Path) -> None:
    (home / RUN_FILE).write_text("{")
    (home / RUN_FILE).chmod(0o600)
    assert "cannot be read" in the_wrong(look(home)).what


async def test_a_socket_that_does_not_answer_is_found(folder: Path) -> None:
    async with running_hub(folder / "home") as there:
        socket = there.running.places["relay_socket"]
        assert socket is not None
        Path(socket).unlink()
        found = the_wrong(await asyncio.to_thread(look, folder / "home"))
    assert socket in found.what


async def test_a_full_disk_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(home)._replace(free=1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "0.0 GiB" in the_wrong(look(home)).what


async def test_a_database_that_is_none_is_found(home: Path) -> None:
    (home / "activity.db").write_bytes(b"junk" * 4096)
    for left in home.glob("activity.db-*"):
        left.unlink()
    assert "activity.db" in the_wrong(look(home)).what


async def test_a_database_of_a_newer_program_is_found_and_an_older_one_is_noted(home: Path) -> None:
    connection = apsw.Connection(str(home / "activity.db"))
    connection.pragma("user_version", 99)
    assert "schema 99" in the_wrong(look(home)).what
    connection.pragma("user_version", 1)
    found = look(home)
    assert wrongs(found) == []
    assert any("the next start brings it to" in finding.what for finding in found)
    connection.close()


@pytest.mark.parametrize("deep", [False, True])
async def test_a_changed_row_of_the_log_is_found(home: Path, deep: bool) -> None:
    connection = apsw.Connection(str(home / "tieline.db"))
    connection.execute('UPDATE log SET event = CAST(\'{"event":"remove"}\' AS BLOB) WHERE offset = 2')
    connection.close()
    found = the_wrong(list(audit(home, deep=deep)))
    assert "broken at row 2" in found.what
    assert found.do == f"tieline audit verify --home {home}"


async def test_a_log_that_was_cut_off_is_found_by_its_checkpoint(home: Path) -> None:
    inspection = open_inspection(home)
    report = verify(inspection)
    inspection.close()
    Checkpoints(home).add(report.rows, report.head)
    assert wrongs(list(audit(home, deep=False))) == []
    connection = apsw.Connection(str(home / "tieline.db"))
    connection.execute("DELETE FROM log WHERE offset = ?", (report.rows - 1,))
    connection.close()
    assert "when the last checkpoint was made" in the_wrong(list(audit(home, deep=False))).what


def member(name: str, *, backlog: int, away_ms: int, sessions: tuple[str, ...] = ()) -> MemberView:
    now_ms = time.time_ns() // 1_000_000
    return MemberView(name, "agent", (), sessions, backlog, now_ms - 2 * away_ms, now_ms - away_ms)


def test_messages_that_nobody_reads_are_found() -> None:
    members = (
        member("here", backlog=5, away_ms=9 * HOUR_MS, sessions=("ac7",)),
        member("lately", backlog=5, away_ms=HOUR_MS // 2),
        member("empty", backlog=0, away_ms=9 * HOUR_MS),
        member("gone", backlog=5, away_ms=9 * HOUR_MS),
    )
    found = the_wrong(list(look_at_members(members)))
    assert found.what == "5 messages wait for gone, who is not connected and was last here 9 h ago"
    assert "tieline inbox --as gone" in found.do


def test_an_inbox_that_is_nearly_full_is_found() -> None:
    members = (member("busy", backlog=95, away_ms=0, sessions=("ac7",)),)
    assert "100 is the limit" in the_wrong(list(look_at_members(members, backlog_max=100))).what


def test_a_way_that_the_hub_does_not_have_any_more_is_found() -> None:
    told = Reach((Leg(Way.PUSH, 1000), Leg(Way.NOTIFY, 0)))
    assert "bob" in the_wrong(list(look_at_ways({"bob": told}, notifies=False))).what
    assert list(look_at_ways({"bob": told}, notifies=True)) == []
    assert list(look_at_ways({"bob": Reach(told.legs, notify="alice")}, notifies=False)) == []


def test_the_ways_of_each_member_are_listed_in_their_order() -> None:
    members = (member("bob", backlog=0, away_ms=0, sessions=("ac7", "ac7")), member("carol", backlog=0, away_ms=0))
    reach = Reach((Leg(Way.PUSH, 1500), Leg(Way.HOOK, 60000)))
    (found,) = ways(members, {"bob": reach, "carol": Reach()})
    assert found.what == "bob: connected by ac7; reached by push (1.5 s), then hook (60 s)"


async def test_the_canary_goes_through_every_protocol_and_leaves_nobody_behind(folder: Path) -> None:
    async with running_hub(folder / "home") as there:
        trips, found = await canary(folder / "home", there.running, [])
        left = await (await there.operator()).members()
    assert {trip.protocol for trip in trips} == {protocol.name for protocol in protocols()}
    assert [trip for trip in trips if trip.there_ms is None or trip.back_ms is None] == []
    assert wrongs(found) == []
    assert left == ()


async def test_the_canary_notes_what_the_hub_does_not_speak(folder: Path) -> None:
    async with running_hub(folder / "home", flags=NOTHING_SPOKEN) as there:
        trips, found = await canary(folder / "home", there.running, [])
    assert [trip.protocol for trip in trips if trip.spoken] == []
    assert {finding.grade for finding in found} == {Grade.NOTE}


async def test_the_canary_tells_whether_members_that_are_named_are_reached(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.cli.doctor_canary._WAIT_SECONDS", 0.3)
    async with running_hub(folder / "home", flags=NOTHING_SPOKEN) as there:
        await there.add("here", "away")
        await there.join("here", receive=True)
        _, found = await canary(folder / "home", there.running, ["here", "away", "nobody"])
        assert [is_canary(one) for one in await (await there.join("away")).history()] == [True]
    here, away, nobody = found[-3:]
    assert (here.grade, here.what) == (Grade.WELL, "here is reached by tieline: offered")
    assert (away.grade, "is pending" in away.what) == (Grade.WRONG, True)
    assert (nobody.grade, "no member is called" in nobody.what) == (Grade.WRONG, True)


# The command.


@pytest.fixture
def own() -> Iterator[HubProcess]:
    """Fixture: a hub that only one test uses, so that the test may stop it."""
    with HubProcess() as running:
        yield running


@pytest.mark.slow
def test_the_command_works_with_the_hub_up_killed_and_down(own: HubProcess) -> None:
    up = own.cli("doctor", "--canary")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "Nothing is wrong." in up.stdout
    assert "agent-relay" in up.stdout
    own.kill9()
    killed = own.cli("doctor", "--json")
    assert killed.returncode == Exit.FAILED
    (found,) = json.loads(killed.stdout)["findings"]
    assert found["do"] == f"tieline serve --home {own.home}"
    assert own.cli("doctor", "--canary").returncode == Exit.FAILED, "a canary needs a hub"
    (own.home / RUN_FILE).unlink()
    assert own.cli("doctor").returncode == 0, "a hub that nobody started is no fault"


@pytest.mark.slow
def test_the_command_names_members_with_the_canary_only(folder: Path) -> None:
    assert run_cli(folder, "doctor", "bob").returncode == Exit.USAGE


async def test_what_the_hub_says_of_its_own_health_is_found(folder: Path) -> None:
    async with running_hub(folder / "home") as there:
        assert there.hub.local_hub is not None
        with capture_logs():
            there.hub.local_hub.health.store.failed("the disk is full", "make room")
        found = the_wrong(await asyncio.to_thread(look, folder / "home"))
    assert (found.about, found.what, found.do) == ("hub", "the message store: the disk is full", "make room")


def test_a_report_of_the_pipeline_that_is_late_is_found(folder: Path) -> None:
    assert list(pipeline(folder, None)) == []
    hub = Running(pid=1, version="0", http="", hub_socket="", store="sqlite", pipeline="5m")
    (folder / RUN_FILE).write_bytes(hub.encode())
    (waiting,) = pipeline(folder, hub)
    assert (waiting.grade, "no report yet" in waiting.what) == (Grade.NOTE, True)
    (folder / INSIGHTS_FILE).write_text("{}")
    (fresh,) = pipeline(folder, hub)
    assert (fresh.grade, fresh.what) == (
        Grade.WELL,
        "the hub runs the pipeline every 5m; its last report is 0 seconds old",
    )
    now = time.time()
    for name, ago in ((RUN_FILE, 2 * 86_400), (INSIGHTS_FILE, 3 * 3600)):
        os.utime(folder / name, (now - ago, now - ago))
    (late,) = pipeline(folder, hub)
    assert (late.grade, "its last report is 3 hours old" in late.what) == (Grade.WRONG, True)
    assert "part=pipeline" in late.do
    (other,) = pipeline(folder, None)
    assert other.grade is Grade.WELL


@pytest.mark.parametrize(
    ("http", "noted"), [("http://127.0.0.1:1", 0), ("http://192.0.2.7:1", 1), ("https://192.0.2.7:1", 0)]
)
def test_a_port_that_other_machines_reach_without_tls_is_noted(http: str, noted: int) -> None:
    running = Running(pid=1, version="1", http=http, hub_socket="", store="sqlite")
    found = list(look_at_transport(running))
    assert [finding.grade for finding in found] == [Grade.NOTE] * noted
    assert all("without TLS" in finding.what and finding.do for finding in found)


@pytest.mark.parametrize("is_built", [True, False])
def test_a_console_that_is_not_built_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_built: bool) -> None:
    if is_built:
        (tmp_path / "index.html").touch()
    monkeypatch.setattr(report_page, "STATIC", tmp_path)
    (found,) = (finding for finding in installation() if "console" in finding.what)
    assert found.grade is (Grade.WELL if is_built else Grade.NOTE)


def test_a_pipeline_that_is_not_installed_is_noted_with_the_wheel_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_installation, "find_spec", lambda name: None)
    (found,) = (finding for finding in installation() if "pipeline" in finding.what)
    wheel = f"'dist/tieline-{__version__}-py3-none-any.whl[pipeline]'"
    assert (found.grade, f"pip install {wheel}" in found.do, "make dist" in found.do) == (Grade.NOTE, True, True)
    guide = Path(__file__).parents[2] / "docs" / "operating.md"
    assert wheel in guide.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "grade"),
    [("", Grade.WRONG), ("insecure = true", None), ("tls = true", None)],
)
async def test_a_configuration_without_tls_with_which_the_hub_does_not_start_is_found(
    home: Path, settings: str, grade: Grade | None
) -> None:
    (home / "tieline.toml").write_text(f'[http]\nlisten = "0.0.0.0:7117"\n{settings}\n')
    found = [one.grade for one in look_at_home(home) if "without TLS" in one.what]
    assert found == ([] if grade is None else [grade])


async def test_the_flags_of_the_running_hub_count_and_not_the_file_of_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in the container: the environment names the address, and a flag the certificate.
    monkeypatch.setenv("TIELINE_HTTP", "0.0.0.0:7117")
    flags = {"http": {"tls": True}, **NOTHING_SPOKEN}
    regular = {"every": "1h", "folder": "/backups"}
    async with running_hub(folder / "home", flags=flags, backup=regular) as there:
        assert [one for one in look_at_home(there.home) if "without TLS" in one.what] == []
        old = LastBackup(int((time.time() - 4 * 3600) * 1000), "file", 1, True)
        (there.home / "backup.json").write_bytes(msgspec.json.encode(old))
        (late,) = backups(there.home)
        assert (late.grade, late.why) == (Grade.WRONG, "regular backups are configured, and do not happen")
    assert [one.grade for one in look_at_home(there.home) if "without TLS" in one.what] == [Grade.WRONG]


def test_invitations_without_an_end_are_named() -> None:
    endless, ending = (InvitationView(name, "", "operator", 1, end, 1) for name, end in (("one", None), ("two", 5)))
    (noted,) = look_at_invitations([endless, ending])
    assert (noted.grade, noted.what) == (Grade.NOTE, "1 invitation has no end: one")
    assert list(look_at_invitations([ending])) == []
    (room,) = look_at_invitations([InvitationView(ROOM_INVITATION, "", "configuration", 1, None, None)])
    assert (room.grade, room.do) == (Grade.WELL, ""), "every hub has one"
