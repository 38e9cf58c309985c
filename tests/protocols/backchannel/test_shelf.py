"""A shelf, and the hub that ends at each step of what it does there."""

import os
from pathlib import Path

import pytest

from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message
from tieline.contract.target import to_member
from tieline.protocols.backchannel.mailbox import Card, Mailbox
from tieline.protocols.backchannel.shelf import PROTOCOL, Fate, Sheaf, Shelf
from tieline.wire.session_pump import Parcel

LEA = MemberName("lea")


def message_id(number: int) -> MessageId:
    return MessageId(f"01a1e1c4-54c4-7000-920a-{number:012x}")


def parcel(number: int, *, body: str = "hello", file: bool = False) -> Parcel:
    """Delivery `number`; with `file`, of a message that came as a file."""
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


class Desk:
    """A mailbox, and the shelf of the hub that runs now."""

    def __init__(self, folder: Path) -> None:
        self.mailbox = Mailbox(folder / "lea")
        self.mailbox.folder.parent.mkdir(exist_ok=True)
        self.mailbox.make(durably=True)
        self.mailbox.label(Card(local=True, member=1), durably=True)
        self.card = Card(local=True, member=1)
        self.start()

    def start(self, *, unsettled: tuple[int, ...] = ()) -> None:
        """Begin as a hub that was killed before, and for which these keys are unsettled."""
        self.sweeps = 0
        self.shelf = Shelf(self.mailbox, self.card, self._sweep)
        self.shelf.begin(self.card, anew=False)
        for leftover in self.shelf.leftovers():
            self.shelf.recover(leftover, unsettled=leftover.key in unsettled)

    def _sweep(self) -> None:
        self.sweeps += 1

    def stage(self, *parcels: Parcel) -> Sheaf:
        sheaf = Sheaf()
        self.shelf.stage(parcels, sheaf)
        return sheaf

    def place(self, *parcels: Parcel) -> Sheaf:
        """All steps of putting deliveries there."""
        sheaf = self.stage(*parcels)
        if sheaf.copies:
            self.shelf.mark(sheaf)
            self.shelf.show(sheaf)
        return sheaf

    def put(self, number: int) -> str:
        """A file that somebody else wrote."""
        name = f"{number:08x}-0000-4000-8000-000000000000"
        (self.mailbox.new / f"{name}.json").write_text("{}")
        return name

    def take(self, number: int) -> None:
        """Somebody takes a message that the hub wrote."""
        (self.mailbox.new / f"{message_id(number)}.json").unlink()

    @property
    def unread(self) -> list[int]:
        """Numbers of messages that anybody can take."""
        return sorted(int(path.stem.rpartition("-")[2], 16) for path in self.mailbox.new.iterdir())

    @property
    def kept(self) -> list[str]:
        """What the hub has in its own folder."""
        return sorted(path.suffix for path in self.mailbox.hub.iterdir() if path.suffix in (".staged", ".won"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "spool")


# Putting deliveries there.


def test_deliveries_are_shown_in_order_and_written_whole(desk: Desk) -> None:
    sheaf = desk.place(parcel(1), parcel(2))
    assert sheaf.shown == [1, 2]
    assert desk.unread == [1, 2]
    assert b'"body":"hello"' in (desk.mailbox.new / f"{message_id(1)}.json").read_bytes()
    assert desk.kept == []


def test_a_hub_that_ends_after_staging_stages_again(desk: Desk) -> None:
    for descriptor in desk.stage(parcel(1)).open:
        os.close(descriptor)
    assert desk.kept == [".staged"]
    desk.start(unsettled=(1,))
    assert (desk.unread, desk.kept) == ([], [])
    assert desk.place(parcel(1)).shown == [1]
    assert desk.unread == [1]


def test_a_hub_that_ends_after_marking_shows_what_was_staged(desk: Desk) -> None:
    sheaf = desk.stage(parcel(1), parcel(2))
    desk.shelf.mark(sheaf)
    desk.start(unsettled=(1, 2))
    assert desk.unread == [1, 2]
    assert desk.place(parcel(1), parcel(2)).shown == [1, 2]
    assert desk.unread == [1, 2]


def test_a_hub_that_ends_between_showing_two_shows_the_other(desk: Desk) -> None:
    sheaf = desk.stage(parcel(1), parcel(2))
    desk.shelf.mark(sheaf)
    del sheaf.copies[1]
    desk.shelf.show(sheaf)
    desk.take(1)
    desk.start(unsettled=(1, 2))
    again = desk.place(parcel(1), parcel(2))
    assert (again.taken, again.shown) == ([1], [2])
    assert desk.unread == [2]


def test_what_was_taken_while_no_hub_ran_was_taken(desk: Desk) -> None:
    desk.place(parcel(1), parcel(2))
    desk.take(2)
    desk.start(unsettled=(1, 2))
    again = desk.place(parcel(1), parcel(2), parcel(3))
    assert (again.shown, again.taken) == ([1, 3], [2])


def test_a_mark_that_cannot_be_read_shows_again_rather_than_losing(desk: Desk) -> None:
    desk.place(parcel(1))
    desk.take(1)
    (desk.mailbox.hub / "placed").write_text("?")
    desk.start(unsettled=(1,))
    assert desk.place(parcel(1)).shown == [1]


def test_another_member_of_the_same_name_begins_anew(desk: Desk) -> None:
    desk.place(parcel(1))
    desk.take(1)
    desk.shelf.begin(Card(local=True, member=2), anew=True)
    assert desk.place(parcel(1)).shown == [1]
    desk.start()
    assert desk.place(parcel(1), parcel(2)).shown == [1, 2]


def test_a_message_that_no_reader_would_take_is_not_written(desk: Desk) -> None:
    sheaf = desk.place(parcel(1, body="\x01" * (6 * 1024 * 1024)), parcel(2))
    assert (sheaf.too_large, sheaf.shown) == ([1], [2])
    desk.start(unsettled=(1, 2))
    again = desk.place(parcel(1, body="\x01" * (6 * 1024 * 1024)), parcel(2))
    assert (again.too_large, again.taken) == ([1], []), "not taken either"


def test_a_folder_that_is_not_there_is_made_again(desk: Desk) -> None:
    desk.mailbox.new.rmdir()
    assert desk.place(parcel(1)).shown == [1]


# Winning.


def win(desk: Desk, item: Parcel) -> bool | None:
    return desk.shelf.win(item[0], item[1])


@pytest.mark.parametrize("file", [False, True])
def test_what_the_hub_wins_nobody_else_can_take(desk: Desk, *, file: bool) -> None:
    item = parcel(1, file=file)
    if file:
        desk.put(1)
    desk.place(item)
    assert win(desk, item)
    assert (desk.unread, desk.kept) == ([], [".won"])
    desk.shelf.finish([1])
    assert desk.sweeps == 1
    desk.shelf.sweep()
    assert desk.kept == []
    assert desk.shelf.look() == (set(), [])


@pytest.mark.parametrize("file", [False, True])
def test_what_somebody_has_taken_the_hub_does_not_win(desk: Desk, *, file: bool) -> None:
    item = parcel(1, file=file)
    if file:
        desk.put(1)
    desk.place(item)
    next(desk.mailbox.new.iterdir()).unlink()
    assert win(desk, item) is False
    assert desk.shelf.look() == (set(), []), "which is told once"


@pytest.mark.parametrize(("settled", "unread"), [(False, [1]), (True, [])])
def test_what_was_won_when_the_hub_ended_is_given_back_unless_it_is_settled(
    desk: Desk, unread: list[int], *, settled: bool
) -> None:
    desk.place(parcel(1))
    assert win(desk, parcel(1))
    desk.start(unsettled=() if settled else (1,))
    assert (desk.unread, desk.kept) == (unread, [])


def test_what_the_hub_wins_before_it_is_shown_is_never_shown(desk: Desk) -> None:
    assert win(desk, parcel(1))
    desk.shelf.finish([1])
    assert desk.place(parcel(1), parcel(2)).shown == [2]
    assert (desk.unread, desk.kept) == ([2], [])


@pytest.mark.parametrize("when", ["staging", "marking"])
def test_what_the_hub_wins_while_it_is_put_there_is_never_shown(desk: Desk, when: str) -> None:
    sheaf = desk.stage(parcel(1), parcel(2))
    if when == "staging":
        assert win(desk, parcel(1))
    desk.shelf.mark(sheaf)
    if when == "marking":
        assert win(desk, parcel(1))
    desk.shelf.show(sheaf)
    assert desk.unread == [2]
    assert desk.kept == [".won"], "a crash before the commit must find it"
    desk.shelf.finish([1])
    desk.shelf.sweep()
    assert desk.kept == []


def test_what_the_hub_won_before_it_was_staged_is_found_after_a_crash_before_the_commit(desk: Desk) -> None:
    assert win(desk, parcel(1))
    desk.place(parcel(1), parcel(2))
    assert desk.unread == [2]
    desk.start(unsettled=(1, 2))
    assert desk.unread == [1, 2]


def test_a_commit_that_fails_gives_back_what_was_won(desk: Desk) -> None:
    desk.place(parcel(1))
    assert win(desk, parcel(1))
    assert win(desk, parcel(2))
    desk.shelf.give_back([1, 2])
    assert (desk.unread, desk.kept) == ([1], [])
    assert desk.place(parcel(1), parcel(2)).shown == [1, 2]
    assert desk.shelf.look() == (set(), [])
    assert win(desk, parcel(1)), "it can be won again"


@pytest.mark.parametrize("when", ["staged", "shown"])
def test_what_was_won_while_it_was_put_there_is_shown_after_all(desk: Desk, when: str) -> None:
    sheaf = desk.stage(parcel(1), parcel(2))
    assert win(desk, parcel(1))
    desk.shelf.mark(sheaf)
    if when == "staged":
        desk.shelf.give_back([1])
    desk.shelf.show(sheaf)
    if when == "shown":
        desk.shelf.give_back([1])
    assert (desk.unread, desk.kept) == ([1, 2], [])
    desk.start(unsettled=(1, 2))
    assert desk.unread == [1, 2]


def test_what_was_withheld_for_a_commit_that_failed_is_shown(desk: Desk) -> None:
    assert win(desk, parcel(1))
    sheaf = desk.stage(parcel(1))
    desk.shelf.mark(sheaf)
    desk.shelf.show(sheaf)
    assert desk.unread == []
    desk.shelf.give_back([1])
    assert desk.unread == [1]


def test_what_was_won_for_a_commit_that_failed_can_be_won_again_before_it_is_given_back(desk: Desk) -> None:
    desk.place(parcel(1))
    assert win(desk, parcel(1))
    assert win(desk, parcel(1)), "the hub has forgotten that it won it"
    desk.shelf.begin(desk.card, anew=False)
    (leftover,) = desk.shelf.leftovers()
    assert win(desk, parcel(1))
    desk.shelf.recover(leftover, unsettled=True)
    assert (desk.unread, desk.kept) == ([], [".won"]), "what was asked before it was won again does not count"


def test_it_cannot_be_told_who_was_first_on_a_disk_that_fails(desk: Desk) -> None:
    desk.place(parcel(1))
    for path in desk.mailbox.hub.iterdir():
        path.unlink()
    desk.mailbox.hub.rmdir()
    desk.mailbox.hub.write_text("not a folder")
    assert win(desk, parcel(1)) is None
    assert desk.unread == [1]


# Looking.


def test_files_that_others_put_there_are_new_until_they_are_accepted_and_gone_when_they_are_taken(desk: Desk) -> None:
    name = desk.put(7)
    desk.place(parcel(1))
    (desk.mailbox.new / "notes.txt").write_text("mine")
    assert desk.shelf.look() == ({name}, [])
    desk.shelf.accept([name])
    assert desk.shelf.look() == (set(), [])
    desk.take(1)
    (desk.mailbox.new / f"{name}.json").unlink()
    assert set(desk.shelf.look()[1]) == {name, message_id(1)}
    assert desk.shelf.look() == (set(), [])


def test_what_is_settled_elsewhere_is_withdrawn(desk: Desk) -> None:
    desk.place(parcel(1))
    desk.shelf.withdraw(message_id(1))
    assert desk.unread == []
    assert desk.shelf.look() == (set(), [])


def test_a_disk_that_is_taken_away_does_not_look_like_messages_that_were(desk: Desk) -> None:
    desk.place(parcel(1))
    elsewhere = desk.mailbox.folder.rename(desk.mailbox.folder.with_name("elsewhere"))
    assert desk.shelf.look() == (set(), [])
    assert win(desk, parcel(1)) is None
    with pytest.raises(FileNotFoundError):
        desk.place(parcel(1))
    elsewhere.rename(desk.mailbox.folder)
    assert desk.place(parcel(1)).shown == [1]


# Calling back.


def recall(desk: Desk, *numbers: int) -> list[Fate]:
    return [desk.shelf.recall(*parcel(number)[:2]) for number in numbers]


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_called_back_is_nobodys_here_and_was_taken_by_nobody(desk: Desk, *, restart: bool) -> None:
    desk.place(parcel(1), parcel(2))
    desk.take(2)
    assert recall(desk, 1, 2, 3) == [Fate.RECALLED, Fate.TAKEN, Fate.RECALLED]
    if restart:
        desk.shelf = Shelf(desk.mailbox, desk.card, lambda: None)
        assert recall(desk, 1, 2, 3) == [Fate.RECALLED, Fate.TAKEN, Fate.RECALLED]
    assert win(desk, parcel(1)), "the hub need not win it here"
    assert desk.unread == []
    desk.shelf.clear()
    assert desk.kept == []
