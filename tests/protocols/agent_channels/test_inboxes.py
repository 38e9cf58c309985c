"""Tests of the doctor's findings about inboxes that have no socket."""

from pathlib import Path

from tieline.cli.doctor_finding import DoctorFinding, Grade
from tieline.protocols.agent_channels.commands.inboxes import inbox_paths


def the_wrong(findings: list[DoctorFinding]) -> DoctorFinding:
    """Return the only finding, which must report a fault with a reason and advice."""
    (found,) = findings
    assert found.grade is Grade.WRONG
    assert found.why
    assert found.do
    return found


def test_members_whose_inbox_has_no_socket_are_found() -> None:
    found = the_wrong(list(inbox_paths("/tmp/channels", ["short", "l" * 120])))
    assert "l" * 120 in found.what
    assert "--channels-dir" in found.do


def test_members_whose_inbox_was_left_out_for_want_of_open_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text('{"channels": [{"name": "general"}, {"name": "inbox-alice"}]}')
    found = the_wrong(list(inbox_paths(str(tmp_path), ["alice", "bob"])))
    assert "1 members have no inbox socket" in found.what
    assert "limit of open files" in found.what
    (tmp_path / "group.json").write_text('{"channels": [{"name": "general"}]}')
    assert list(inbox_paths(str(tmp_path), ["alice", "bob"])) == [], "inbox sockets are turned off"
