"""Tests of the inbox of a local agent in a spool, and of a hub that is killed at each step of its work there."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message
from tieline.contract.target import to_member
from tieline.protocols.backchannel import copies
from tieline.protocols.backchannel.copies import RedactedMessages, redact_copies
from tieline.protocols.backchannel.local_inbox import PROTOCOL, Fate, LocalInbox, Placement
from tieline.protocols.backchannel.mailbox import Mailbox, MailboxInfo
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.wire.prefix_ids import to_prefix_id
from tieline.wire.session_pump import Parcel

LEA = MemberName("lea")


def message_id(number: int) -> MessageId:
    return MessageId(f"01a1e1c4-54c4-7000-920a-{number:012x}")


def file_name(number: int) -> str:
    """Return the id in the file name that the hub uses for message `number`."""
    return to_prefix_id(message_id(number))


def parcel(number: int, *, body: str = "hello", file: bool = False) -> Parcel:
    """Return delivery `number`. With `file`, its message came from a file of the spool."""
    message = Message(
        id=message_id(number),
        offset=number,
        sender="bob",
        protocol=PROTOCOL if file else "tieline",
        sent_at_ms=1_800_000_000_000,
        content=Content(target=to_member(LEA), body=body),
        wire_id=f"{number:08x}-0000-4000-8000-000000000000" if file else None,
    )
    return message, number, number


class Scene:
    """Test helper: a mailbox, and the inbox object of the hub that currently uses it."""

    def __init__(self, folder: Path) -> None:
        self.mailbox = Mailbox(folder / "lea")
        self.mailbox.folder.parent.mkdir(exist_ok=True)
        self.mailbox.make(durably=True)
        self.mailbox.write_info(MailboxInfo(local=True, member=1), durably=True)
        self.info = MailboxInfo(local=True, member=1)
        self.start()

    def start(self, *, unsettled: tuple[int, ...] = ()) -> None:
        """Make a new inbox, like a hub that starts after a kill.

        Deliveries with the keys in `unsettled` are not settled.
        """
        self.sweeps = 0
        self.inbox = LocalInbox(self.mailbox, self.info, self._sweep)
        self.inbox.begin(self.info, anew=False)
        for leftover in self.inbox.leftovers():
            self.inbox.recover(leftover, unsettled=leftover.key in unsettled)

    def _sweep(self) -> None:
        self.sweeps += 1

    def stage(self, *parcels: Parcel) -> Placement:
        placement = Placement()
        self.inbox.stage(parcels, placement)
        return placement

    def place(self, *parcels: Parcel) -> Placement:
        """Do all steps that bring deliveries into the mailbox. Return the placement."""
        placement = self.stage(*parcels)
        if placement.copies:
            self.inbox.mark(placement)
            self.inbox.show(placement)
        return placement

    def put(self, number: int) -> str:
        """Write a message file like another program. Return its id."""
        name = f"{number:08x}-0000-4000-8000-000000000000"
        (self.mailbox.new / f"{name}.json").write_text("{}")
        return name

    def take(self, number: int) -> None:
        """Remove the file of a message of the hub, like another reader that takes it."""
        (self.mailbox.new / f"{file_name(number)}.json").unlink()

    @property
    def unread(self) -> list[int]:
        """Return the numbers of the unread messages, which any reader can take."""
        return sorted(int(path.stem[:8], 16) for path in self.mailbox.new.iterdir())

    @property
    def kept(self) -> list[str]:
        """Return the suffixes of the staged and reserved files in the hub's own folder."""
        return sorted(path.suffix for path in self.mailbox.hub.iterdir() if path.suffix in (".staged", ".won"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "spool")


# Putting deliveries there.


def test_deliveries_are_shown_in_order_and_written_whole(scene: Scene) -> None:
    placement = scene.place(parcel(1), parcel(2))
    assert placement.shown == [1, 2]
    assert scene.unread == [1, 2]
    assert b'"body":"hello"' in (scene.mailbox.new / f"{file_name(1)}.json").read_bytes()
    assert scene.kept == []


def test_a_hub_that_ends_after_staging_stages_again(scene: Scene) -> None:
    for descriptor in scene.stage(parcel(1)).open:
        os.close(descriptor)
    assert scene.kept == [".staged"]
    scene.start(unsettled=(1,))
    assert (scene.unread, scene.kept) == ([], [])
    assert scene.place(parcel(1)).shown == [1]
    assert scene.unread == [1]


def test_a_hub_that_ends_after_marking_shows_what_was_staged(scene: Scene) -> None:
    placement = scene.stage(parcel(1), parcel(2))
    scene.inbox.mark(placement)
    scene.start(unsettled=(1, 2))
    assert scene.unread == [1, 2]
    assert scene.place(parcel(1), parcel(2)).shown == [1, 2]
    assert scene.unread == [1, 2]


def test_a_hub_that_ends_between_showing_two_shows_the_other(scene: Scene) -> None:
    placement = scene.stage(parcel(1), parcel(2))
    scene.inbox.mark(placement)
    del placement.copies[1]
    scene.inbox.show(placement)
    scene.take(1)
    scene.start(unsettled=(1, 2))
    again = scene.place(parcel(1), parcel(2))
    assert (again.taken, again.shown) == ([1], [2])
    assert scene.unread == [2]


def test_what_was_taken_while_no_hub_ran_was_taken(scene: Scene) -> None:
    scene.place(parcel(1), parcel(2))
    scene.take(2)
    scene.start(unsettled=(1, 2))
    again = scene.place(parcel(1), parcel(2), parcel(3))
    assert (again.shown, again.taken) == ([1, 3], [2])


def test_a_mark_that_cannot_be_read_shows_again_rather_than_losing(scene: Scene) -> None:
    scene.place(parcel(1))
    scene.take(1)
    (scene.mailbox.hub / "placed").write_text("?")
    scene.start(unsettled=(1,))
    assert scene.place(parcel(1)).shown == [1]


def test_another_member_of_the_same_name_begins_anew(scene: Scene) -> None:
    scene.place(parcel(1))
    scene.take(1)
    scene.inbox.begin(MailboxInfo(local=True, member=2), anew=True)
    assert scene.place(parcel(1)).shown == [1]
    scene.start()
    assert scene.place(parcel(1), parcel(2)).shown == [1, 2]


def test_a_message_that_no_reader_would_take_is_not_written(scene: Scene) -> None:
    placement = scene.place(parcel(1, body="\x01" * (6 * 1024 * 1024)), parcel(2))
    assert (placement.too_large, placement.shown) == ([1], [2])
    scene.start(unsettled=(1, 2))
    again = scene.place(parcel(1, body="\x01" * (6 * 1024 * 1024)), parcel(2))
    assert (again.too_large, again.taken) == ([1], []), "not taken either"


def test_a_folder_that_is_not_there_is_made_again(scene: Scene) -> None:
    scene.mailbox.new.rmdir()
    assert scene.place(parcel(1)).shown == [1]


@pytest.mark.parametrize("left", ["new", "reserved"])
def test_files_that_an_earlier_version_of_the_hub_named_are_known(scene: Scene, left: str) -> None:
    scene.place(parcel(1), parcel(2))
    for number in (1, 2):
        written = scene.mailbox.new / f"{file_name(number)}.json"
        old = scene.mailbox.new / f"{message_id(number)}.json"
        written.rename(old if left == "new" else scene.mailbox.hub / f"{message_id(number)}.{number}.won")
    scene.start(unsettled=(1, 2))
    assert scene.place(parcel(1), parcel(2), parcel(3)).shown == [1, 2, 3]
    assert reserve(scene, parcel(1))
    (scene.mailbox.new / f"{message_id(2)}.json").unlink()
    assert scene.inbox.look() == (set(), [message_id(2)])
    assert scene.unread == [3]


# Winning.


def reserve(scene: Scene, item: Parcel) -> bool | None:
    return scene.inbox.reserve(item[0], item[1])


@pytest.mark.parametrize("file", [False, True])
def test_what_the_hub_wins_nobody_else_can_take(scene: Scene, *, file: bool) -> None:
    item = parcel(1, file=file)
    if file:
        scene.put(1)
    scene.place(item)
    assert reserve(scene, item)
    assert (scene.unread, scene.kept) == ([], [".won"])
    scene.inbox.finish([1])
    assert scene.sweeps == 1
    scene.inbox.sweep()
    assert scene.kept == []
    assert scene.inbox.look() == (set(), [])


@pytest.mark.parametrize("file", [False, True])
def test_what_somebody_has_taken_the_hub_does_not_win(scene: Scene, *, file: bool) -> None:
    item = parcel(1, file=file)
    if file:
        scene.put(1)
    scene.place(item)
    next(scene.mailbox.new.iterdir()).unlink()
    assert reserve(scene, item) is False
    assert scene.inbox.look() == (set(), []), "which is told once"


@pytest.mark.parametrize(("settled", "unread"), [(False, [1]), (True, [])])
def test_what_was_reserved_when_the_hub_ended_is_given_back_unless_it_is_settled(
    scene: Scene, unread: list[int], *, settled: bool
) -> None:
    scene.place(parcel(1))
    assert reserve(scene, parcel(1))
    scene.start(unsettled=() if settled else (1,))
    assert (scene.unread, scene.kept) == (unread, [])


def test_what_the_hub_wins_before_it_is_shown_is_never_shown(scene: Scene) -> None:
    assert reserve(scene, parcel(1))
    scene.inbox.finish([1])
    assert scene.place(parcel(1), parcel(2)).shown == [2]
    assert (scene.unread, scene.kept) == ([2], [])


@pytest.mark.parametrize("when", ["staging", "marking"])
def test_what_the_hub_wins_while_it_is_put_there_is_never_shown(scene: Scene, when: str) -> None:
    placement = scene.stage(parcel(1), parcel(2))
    if when == "staging":
        assert reserve(scene, parcel(1))
    scene.inbox.mark(placement)
    if when == "marking":
        assert reserve(scene, parcel(1))
    scene.inbox.show(placement)
    assert scene.unread == [2]
    assert scene.kept == [".won"], "a crash before the commit must find it"
    scene.inbox.finish([1])
    scene.inbox.sweep()
    assert scene.kept == []


def test_what_the_hub_reserved_before_it_was_staged_is_found_after_a_crash_before_the_commit(scene: Scene) -> None:
    assert reserve(scene, parcel(1))
    scene.place(parcel(1), parcel(2))
    assert scene.unread == [2]
    scene.start(unsettled=(1, 2))
    assert scene.unread == [1, 2]


def test_a_commit_that_fails_gives_back_what_was_reserved(scene: Scene) -> None:
    scene.place(parcel(1))
    assert reserve(scene, parcel(1))
    assert reserve(scene, parcel(2))
    scene.inbox.give_back([1, 2])
    assert (scene.unread, scene.kept) == ([1], [])
    assert scene.place(parcel(1), parcel(2)).shown == [1, 2]
    assert scene.inbox.look() == (set(), [])
    assert reserve(scene, parcel(1)), "it can be reserved again"


def test_a_file_of_another_program_that_was_reserved_is_given_back(scene: Scene) -> None:
    name = scene.put(1)
    scene.place(parcel(1, file=True))
    assert reserve(scene, parcel(1, file=True))
    scene.inbox.give_back([1])
    assert scene.mailbox.waiting() == {name}
    assert (scene.inbox.look(), scene.kept) == ((set(), []), [])


@pytest.mark.parametrize("when", ["staged", "shown"])
def test_what_was_reserved_while_it_was_put_there_is_shown_after_all(scene: Scene, when: str) -> None:
    placement = scene.stage(parcel(1), parcel(2))
    assert reserve(scene, parcel(1))
    scene.inbox.mark(placement)
    if when == "staged":
        scene.inbox.give_back([1])
    scene.inbox.show(placement)
    if when == "shown":
        scene.inbox.give_back([1])
    assert (scene.unread, scene.kept) == ([1, 2], [])
    scene.start(unsettled=(1, 2))
    assert scene.unread == [1, 2]


def test_what_was_withheld_for_a_commit_that_failed_is_shown(scene: Scene) -> None:
    assert reserve(scene, parcel(1))
    placement = scene.stage(parcel(1))
    scene.inbox.mark(placement)
    scene.inbox.show(placement)
    assert scene.unread == []
    scene.inbox.give_back([1])
    assert scene.unread == [1]


def test_what_was_reserved_for_a_commit_that_failed_can_be_reserved_again_before_it_is_given_back(scene: Scene) -> None:
    scene.place(parcel(1))
    assert reserve(scene, parcel(1))
    assert reserve(scene, parcel(1)), "the hub has forgotten that it reserved it"
    scene.inbox.begin(scene.info, anew=False)
    (leftover,) = scene.inbox.leftovers()
    assert reserve(scene, parcel(1))
    scene.inbox.recover(leftover, unsettled=True)
    assert (scene.unread, scene.kept) == ([], [".won"]), "what was asked before it was reserved again does not count"


# Winning, while a session of the agent ends and the next begins.


def begin(scene: Scene, *, anew: bool = False, member: int = 1) -> None:
    """Begin another session of the agent with its mailbox, while no delivery is settled yet.

    With `anew`, delete the mailbox and make it again first. `member` is the number of the member.
    """
    if anew:
        shutil.rmtree(scene.mailbox.folder)
        scene.mailbox.make(durably=True)
    info = MailboxInfo(local=True, member=member)
    scene.inbox.begin(info, anew=anew)
    scene.mailbox.write_info(info, durably=True)
    for leftover in scene.inbox.leftovers():
        scene.inbox.recover(leftover, unsettled=True)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("when", ["before staging", "staged", "marked", "shown"])
def test_what_the_hub_has_reserved_stays_reserved_when_the_agents_next_session_begins(
    scene: Scene, when: str, *, anew: bool
) -> None:
    steps = ("before staging", "staged", "marked", "shown").index(when)
    if steps:
        placement = scene.stage(parcel(1), parcel(2))
        for step in (scene.inbox.mark, scene.inbox.show)[: steps - 1]:
            step(placement)
        for descriptor in placement.open:
            os.close(descriptor)
    assert reserve(scene, parcel(1))
    begin(scene, anew=anew)
    again = scene.place(parcel(1), parcel(2))
    assert (again.shown, again.taken) == ([2], [])
    assert scene.unread == [2]
    scene.inbox.finish([1])
    scene.inbox.sweep()
    assert (scene.unread, scene.kept) == ([2], [])


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("when", ["before staging", "shown"])
def test_what_the_hub_reserved_in_an_earlier_session_can_be_given_back(scene: Scene, when: str, *, anew: bool) -> None:
    if when == "shown":
        scene.place(parcel(1))
    assert reserve(scene, parcel(1))
    begin(scene, anew=anew)
    scene.inbox.give_back([1])
    assert scene.place(parcel(1), parcel(2)).shown == [1, 2]
    assert (scene.unread, scene.kept) == ([1, 2], [])


def test_what_the_hub_reserved_of_a_removed_member_is_shown_to_the_next_of_its_name(scene: Scene) -> None:
    assert reserve(scene, parcel(1))
    scene.inbox.finish([1])
    begin(scene, anew=True, member=2)
    assert scene.place(parcel(1)).shown == [1]


# Giving back on a disk that fails.


def test_a_folder_of_unread_messages_that_is_not_there_is_made_to_give_back(scene: Scene) -> None:
    scene.place(parcel(1), parcel(2))
    assert reserve(scene, parcel(1))
    assert reserve(scene, parcel(2))
    scene.mailbox.new.rmdir()
    scene.inbox.give_back([1, 2])
    assert (scene.unread, scene.kept) == ([1, 2], [])


def fail_to_give_back(scene: Scene) -> None:
    """Reserve three deliveries, and give them back while the second cannot be given back."""
    items = [parcel(number) for number in (1, 2, 3)]
    scene.place(*items)
    assert all(reserve(scene, item) for item in items)
    obstacle = scene.mailbox.new / f"{file_name(2)}.json"
    obstacle.mkdir()
    with pytest.raises(IsADirectoryError):
        scene.inbox.give_back([1, 2, 3])
    obstacle.rmdir()
    assert (scene.unread, scene.kept) == ([1, 3], [".won"])
    assert scene.inbox.look() == (set(), []), "it was not taken"


def test_what_cannot_be_given_back_keeps_no_other_and_is_tried_again(scene: Scene) -> None:
    fail_to_give_back(scene)
    scene.inbox.sweep()
    assert (scene.unread, scene.kept) == ([1, 2, 3], [])
    assert scene.inbox.look() == (set(), [])
    assert reserve(scene, parcel(2))


def test_what_cannot_be_given_back_can_be_reserved_again(scene: Scene) -> None:
    fail_to_give_back(scene)
    assert reserve(scene, parcel(2))
    scene.inbox.sweep()
    assert scene.unread == [1, 3]
    scene.inbox.finish([2])
    scene.inbox.sweep()
    assert (scene.unread, scene.kept) == ([1, 3], [])


@pytest.mark.parametrize("anew", [False, True])
def test_what_cannot_be_given_back_is_shown_in_the_next_session(scene: Scene, *, anew: bool) -> None:
    fail_to_give_back(scene)
    begin(scene, anew=anew)
    scene.inbox.sweep()
    assert scene.place(*(parcel(number) for number in (1, 2, 3))).shown == [1, 2, 3]
    assert (scene.unread, scene.kept) == ([1, 2, 3], [])


def test_it_cannot_be_told_who_was_first_on_a_disk_that_fails(scene: Scene) -> None:
    scene.place(parcel(1))
    for path in scene.mailbox.hub.iterdir():
        path.unlink()
    scene.mailbox.hub.rmdir()
    scene.mailbox.hub.write_text("not a folder")
    assert reserve(scene, parcel(1)) is None
    assert scene.unread == [1]


# Looking.


def test_files_that_others_put_there_are_new_until_they_are_accepted_and_gone_when_they_are_taken(scene: Scene) -> None:
    name = scene.put(7)
    scene.place(parcel(1))
    (scene.mailbox.new / "notes.txt").write_text("mine")
    assert scene.inbox.look() == ({name}, [])
    scene.inbox.accept([name])
    assert scene.inbox.look() == (set(), [])
    scene.take(1)
    (scene.mailbox.new / f"{name}.json").unlink()
    assert set(scene.inbox.look()[1]) == {name, file_name(1)}
    assert scene.inbox.look() == (set(), [])


def test_what_is_settled_elsewhere_is_withdrawn(scene: Scene) -> None:
    scene.place(parcel(1))
    scene.inbox.withdraw(file_name(1))
    assert scene.unread == []
    assert scene.inbox.look() == (set(), [])


def test_a_disk_that_is_taken_away_does_not_look_like_messages_that_were(scene: Scene) -> None:
    scene.place(parcel(1))
    elsewhere = scene.mailbox.folder.rename(scene.mailbox.folder.with_name("elsewhere"))
    assert scene.inbox.look() == (set(), [])
    assert reserve(scene, parcel(1)) is None
    with pytest.raises(FileNotFoundError):
        scene.place(parcel(1))
    elsewhere.rename(scene.mailbox.folder)
    assert scene.place(parcel(1)).shown == [1]


# Calling back.


def recall(scene: Scene, *numbers: int) -> list[Fate]:
    return [scene.inbox.recall(*parcel(number)[:2]) for number in numbers]


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_called_back_is_nobodys_here_and_was_taken_by_nobody(scene: Scene, *, restart: bool) -> None:
    scene.place(parcel(1), parcel(2))
    scene.take(2)
    assert recall(scene, 1, 2, 3) == [Fate.RECALLED, Fate.TAKEN, Fate.RECALLED]
    if restart:
        scene.inbox = LocalInbox(scene.mailbox, scene.info, lambda: None)
        assert recall(scene, 1, 2, 3) == [Fate.RECALLED, Fate.TAKEN, Fate.RECALLED]
    assert reserve(scene, parcel(1)), "the hub need not reserve it here"
    assert scene.unread == []
    scene.inbox.clear()
    assert scene.kept == []


def test_a_delivery_that_was_redacted_while_it_waited_is_written_with_the_note(tmp_path: Path) -> None:
    redacted = RedactedMessages()
    mailbox, info = Scene(tmp_path).mailbox, MailboxInfo(local=True, member=1)
    inbox = LocalInbox(mailbox, info, lambda: None, redacted=redacted)
    redacted.note(parcel(1, body="a note")[0])
    placement = Placement()
    inbox.stage((parcel(1, body="a secret"), parcel(2, body="something else")), placement)
    inbox.mark(placement)
    inbox.show(placement)
    assert [json.loads(mailbox_file(mailbox, number))["body"] for number in (1, 2)] == ["a note", "something else"]


def mailbox_file(mailbox: Mailbox, number: int) -> bytes:
    return (mailbox.new / f"{file_name(number)}.json").read_bytes()


def test_redacted_messages_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_MESSAGES_MAX", 1)
    redacted = RedactedMessages()
    for number in (1, 2):
        redacted.note(parcel(number, body="a note")[0])
    assert [redacted.current(parcel(number)[0]).content.body for number in (1, 2)] == ["hello", "a note"]


def test_a_copy_that_is_moved_while_copies_are_looked_for_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, cur = (tmp_path / "spool" / "lea" / name for name in ("new", "cur"))
    for folder in (new, cur):
        folder.mkdir(parents=True)
    (new / f"{file_name(1)}.json").write_text("a secret")
    open_file = os.open

    def move_first(path: Path, flags: int) -> int:
        if path.parent == new:
            path.rename(cur / path.name)
        return open_file(path, flags)

    monkeypatch.setattr(os, "open", move_first)
    redact_copies(tmp_path, parcel(1, body="a note")[0], MessageIds())
    (left,) = tmp_path.rglob("*.json")
    assert json.loads(left.read_bytes())["body"] == "a note"


def test_a_copy_that_cannot_be_rewritten_is_logged_once(tmp_path: Path) -> None:
    folder = tmp_path / "spool" / "lea" / "new"
    folder.mkdir(parents=True)
    (folder / f"{file_name(1)}.json").symlink_to(tmp_path / "elsewhere")
    with capture_logs() as logs:
        redact_copies(tmp_path, parcel(1, body="a note")[0], MessageIds())
    assert [line["event"] for line in logs] == ["a file of a redacted message could not be rewritten"]


def test_a_reader_finds_a_whole_document_at_every_step_of_a_redaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool" / "lea" / "new"
    folder.mkdir(parents=True)
    file = folder / f"{file_name(1)}.json"
    file.write_text(json.dumps({"body": "a secret " * 1000}))
    found: list[str] = []

    class Watched(io.FileIO):
        """Test double: a file that is read by somebody else after each step."""

        def write(self, data: Any, /) -> int:
            count = super().write(data)
            found.append(json.loads(file.read_bytes())["body"])
            return count

        def truncate(self, size: int | None = None, /) -> int:
            count = super().truncate(size)
            found.append(json.loads(file.read_bytes())["body"])
            return count

    monkeypatch.setattr(os, "fdopen", lambda descriptor, *_, **__: Watched(descriptor, "r+b"))
    redact_copies(tmp_path, parcel(1, body="a note")[0], MessageIds())
    assert found == ["a note", "a note"]
    assert not file.read_bytes().endswith(b" ")
