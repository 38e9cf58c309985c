"""Tests of a live view, which follows all messages, with a fake hub: it reads no faster than its client."""

import pytest

from tests.wire.native.lines import Line, message
from tests.wire.table import turn
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Said
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.wire.native import frames as f


class View(Line):
    """Test client with an open live view, which follows all messages."""

    def __init__(self) -> None:
        super().__init__()
        self.greet()
        self.say(f.FollowAll(1))
        self.hub.answer(r.History(()))
        assert self.transport.frames == [f.Done(1)]
        self.transport.payloads.clear()

    def tell(self) -> None:
        """Let the hub notify the view that there are new messages."""
        (watching,) = self.hub.watching
        watching[1](Said())

    def page(self, *messages: Message) -> None:
        """Answer the view's open read with these messages."""
        commands, _ = self.hub.open[0]
        assert isinstance(commands[0], c.ReadHistory)
        self.hub.answer(r.History(messages))

    @property
    def reads(self) -> list[int]:
        """Return the offsets of the view's reads so far, without the first read, which checks the permission."""
        reads = [command for command in self.hub.submitted if isinstance(command, c.ReadHistory)]
        return [read.after for read in reads[1:]]

    @property
    def said(self) -> list[list[str]]:
        frames = [frame for frame in self.transport.frames if isinstance(frame, f.Said)]
        return [[message.id for message in frame.messages] for frame in frames]


def due_view(monkeypatch: pytest.MonkeyPatch) -> View:
    """Return a live view that got a notice, and will read the new messages in the next turn of the loop."""
    monkeypatch.setattr("tieline.wire.native.tail._PAUSE_SECONDS", 0)
    view = View()
    view.page()
    view.tell()
    return view


def test_large_messages_of_a_live_view_are_split_so_that_no_frame_is_larger_than_a_client_takes() -> None:
    view = View()
    view.page(*(message(key, "x" * 3_000_000) for key in (1, 2, 3)))
    assert view.said == [["m1"], ["m2"], ["m3"]]
    assert view.reads == [-1, 3]


def test_a_live_view_reads_nothing_while_its_client_is_full_and_goes_on_after_it() -> None:
    view = View()
    view.connection.pause_writing()
    view.page(message(1))
    assert view.reads == [-1], "the page that was on its way is written, and no other is read"
    assert view.said == [["m1"]]
    view.connection.resume_writing()
    assert view.reads == [-1, 1]
    view.connection.resume_writing()
    assert view.reads == [-1, 1], "one read at a time"


async def test_a_live_view_that_was_paused_before_it_was_due_to_read_reads_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = due_view(monkeypatch)
    view.connection.pause_writing()
    await turn()
    assert view.reads == [-1]
    view.connection.resume_writing()
    assert view.reads == [-1, -1]


def test_a_live_view_whose_read_failed_while_its_client_is_full_reads_again_after_it() -> None:
    view = View()
    view.connection.pause_writing()
    view.hub.answer(Refusal(Code.STORE_FAILED, "no"))
    assert view.reads == [-1]
    view.connection.resume_writing()
    assert view.reads == [-1, -1]


async def test_a_live_view_whose_read_failed_reads_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.wire.native.tail.RETRY_SECONDS", 0)
    view = View()
    view.hub.answer(Refusal(Code.STORE_FAILED, "no"))
    assert view.reads == [-1]
    await turn()
    assert view.reads == [-1, -1]
    view.page(message(1))
    assert view.said == [["m1"]]


async def test_what_is_said_while_a_live_view_reads_is_read_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.wire.native.tail._PAUSE_SECONDS", 0)
    view = View()
    view.tell()
    await turn()
    assert view.reads == [-1], "one read at a time"
    view.page()
    await turn()
    assert view.reads == [-1, -1]


async def test_a_client_that_leaves_ends_its_live_view_and_what_that_was_about_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = due_view(monkeypatch)
    view.connection.connection_lost()
    assert view.hub.watching == []
    await turn()
    view.connection.resume_writing()
    assert view.reads == [-1]
