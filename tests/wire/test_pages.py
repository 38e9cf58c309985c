"""Tests of reading pages from a fake hub: one at a time, again after a failure, and given up after too many errors."""

import asyncio

import pytest

from tests.wire.native.fake_hub import FakeHub
from tests.wire.table import SESSION, turn
from tieline.contract import command as c
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Fetched
from tieline.wire import pages
from tieline.wire.pages import FAULTS_MAX, Pages

NOTHING = Fetched(deliveries=(), through=0, complete=True)


class Source:
    """Test helper: a source that asks a fake hub for the same page many times."""

    def __init__(self) -> None:
        self.hub = FakeHub()
        self.found: list[Fetched] = []
        self.given_up: list[Refusal] = []
        self.pages = Pages(self.hub, self.ask, self.given_up.append)

    def ask(self) -> None:
        self.pages.ask(c.Fetch(SESSION), self.found.append)

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.hub.submitted) < count:
                await turn()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)


def test_a_page_comes_once_and_then_the_next_may_be_asked_for() -> None:
    source = Source()
    source.ask()
    assert source.pages.busy
    source.hub.answer(NOTHING)
    assert source.found == [NOTHING]
    assert not source.pages.busy
    source.ask()


@pytest.mark.parametrize("code", [Code.STORE_FAILED, Code.INTERNAL_ERROR])
async def test_after_a_failure_the_source_asks_anew(code: Code) -> None:
    source = Source()
    source.ask()
    source.hub.answer(Refusal(code, "not now"))
    assert source.pages.busy
    await source.asked(2)
    source.hub.answer(NOTHING)
    assert source.found == [NOTHING]


async def test_a_hub_that_fails_for_no_fault_of_its_disk_is_given_up() -> None:
    source, why = Source(), Refusal(Code.INTERNAL_ERROR, "a bug")
    source.ask()
    for tries in range(1, FAULTS_MAX + 1):
        assert source.given_up == []
        await source.asked(tries)
        source.hub.answer(why)
    assert source.given_up == [why]
    assert not source.pages.busy


async def test_a_session_that_is_gone_asks_no_more() -> None:
    source = Source()
    source.ask()
    source.hub.answer(Refusal(Code.UNKNOWN_SESSION, "gone"))
    await turn()
    assert (source.pages.busy, source.given_up, len(source.hub.submitted)) == (False, [], 1)


async def test_whoever_closes_hears_of_no_page_and_asks_for_none() -> None:
    source = Source()
    source.ask()
    source.pages.close()
    source.hub.answer(NOTHING)
    assert source.found == []
    other = Source()
    other.ask()
    other.hub.answer(Refusal(Code.STORE_FAILED, "not now"))
    other.pages.close()
    await turn()
    assert len(other.hub.submitted) == 1
