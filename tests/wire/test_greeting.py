"""Tests of the greeting (login phase of a connection) with a fake hub: its deadline, early frames, a second attempt."""

import asyncio

import pytest

from tests.server.hubs import until
from tests.wire.native.fake_hub import FakeHub
from tests.wire.table import ATTACH, BOB, SESSION, FakeWire
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached
from tieline.wire.greeting import Greeting, Phase
from tieline.wire.session_pump import SessionPump

ATTACHED = Attached(session=SESSION, member=BOB, speaker="bob")


class Entry:
    """Test helper: a connection in its greeting (login phase), with a fake hub and a fake wire."""

    def __init__(self, *, hello_ms: int = 60_000, early_bytes_max: int = 0) -> None:
        self.hub = FakeHub(Limits(hello_ms=hello_ms))
        self.wire = FakeWire()
        self.greeting: Greeting[str] = Greeting(SessionPump(self.hub, self.wire), early_bytes_max=early_bytes_max)
        self.opened: list[Attached | Refusal] = []
        self.late = 0

    def be_late(self) -> None:
        self.late += 1

    def open(self) -> None:
        self.greeting.open(ATTACH, self.opened.append)


async def test_whoever_says_nothing_in_time_is_late() -> None:
    entry = Entry(hello_ms=1)
    entry.greeting.expect(entry.be_late)
    await until(lambda: entry.late == 1)


@pytest.mark.parametrize("how", ["hello", "end"])
async def test_nobody_is_late_after_hello_or_the_end(how: str) -> None:
    entry = Entry(hello_ms=1)
    entry.greeting.expect(entry.be_late)
    entry.open() if how == "hello" else entry.greeting.close()
    passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, passed.set_result, None)
    await passed
    assert entry.late == 0


def test_the_wire_is_not_read_until_the_session_is_open_and_frames_wait_in_order() -> None:
    entry = Entry()
    entry.greeting.wait(["a"])
    entry.open()
    assert entry.greeting.waits
    entry.greeting.wait(["b", "c"])
    assert not entry.wire.reading
    entry.hub.answer(ATTACHED)
    assert entry.opened == [ATTACHED]
    assert entry.greeting.activate() == ["a", "b", "c"]
    assert (entry.greeting.phase, entry.greeting.waits, entry.wire.reading) == (Phase.ACTIVE, False, True)


def test_a_wire_may_be_read_on_a_little_while_the_session_is_opened() -> None:
    entry = Entry(early_bytes_max=10)
    entry.open()
    entry.greeting.early(6)
    entry.greeting.early(4)
    assert entry.wire.reading
    entry.greeting.early(1)
    assert not entry.wire.reading
    entry.hub.answer(ATTACHED)
    entry.greeting.activate()
    assert entry.wire.reading


def test_frames_of_an_open_session_can_wait_for_their_turn() -> None:
    entry = Entry()
    entry.open()
    entry.hub.answer(ATTACHED)
    entry.greeting.activate()
    entry.greeting.wait(["a"])
    assert entry.greeting.waits
    assert not entry.wire.reading
    assert entry.greeting.take() == ["a"]
    assert entry.wire.reading


async def test_after_a_refusal_a_client_may_greet_again_and_be_late_again() -> None:
    entry = Entry(hello_ms=1)
    entry.open()
    entry.hub.answer(Refusal(Code.RESUME_REFUSED, "too old"))
    entry.greeting.again(entry.be_late)
    assert entry.greeting.phase is Phase.GREETING
    assert entry.wire.reading
    await until(lambda: entry.late == 1)


async def test_a_session_that_is_given_up_is_left() -> None:
    entry = Entry()
    entry.open()
    entry.hub.answer(ATTACHED)
    entry.greeting.again(entry.be_late)
    assert entry.hub.submitted[1:] == [c.Detach(SESSION)]
    entry.greeting.close()


def test_at_the_end_nothing_waits() -> None:
    entry = Entry()
    entry.open()
    entry.greeting.wait(["a"])
    entry.greeting.close()
    assert (entry.greeting.phase, entry.greeting.waits) == (Phase.CLOSED, False)
