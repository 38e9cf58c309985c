"""Tests that an error inside one command fails only this command, whatever protocols the other members use."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.interop.drivers import BY_PROTOCOL, Driver, MixedHub, mixed_hub
from tests.server.hubs import WAIT_SECONDS
from tieline.client import Client, HubRefused
from tieline.contract.event import LogRow
from tieline.contract.message import Message
from tieline.core.store import DiskError
from tieline.stores.sqlite import SqliteStore

_BEYOND = 2**63 - 1
_POISON = "poison"

Attack = Callable[[Client], Coroutine[Any, Any, object]]


async def _history(client: Client) -> None:
    assert await client.history(after=_BEYOND) == ()


async def _tail(client: Client) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            async for message in client.tail(after=_BEYOND):
                pytest.fail(f"nothing comes after the end of time, and this did: {message.body}")


async def _send(client: Client) -> None:
    with pytest.raises(HubRefused) as caught:
        await client.send("*", _POISON)
    assert caught.value.code == "internal_error"


async def _crowd(place: MixedHub) -> list[Driver]:
    return [await place.driver(protocol, f"reader-{protocol}") for protocol in BY_PROTOCOL]


async def _sessions(client: Client) -> dict[str, int]:
    return {one.name: len(one.sessions) for one in await client.members()}


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: make the store raise after it has stored a message with a certain body."""
    accept = SqliteStore.accept

    def accept_or_raise(self: SqliteStore, row: LogRow, message: Message, *rest: Any) -> None:
        accept(self, row, message, *rest)
        if message.content.body == _POISON:
            raise RuntimeError("a bug in a rule")

    monkeypatch.setattr(SqliteStore, "accept", accept_or_raise)


@pytest.mark.slow
@pytest.mark.usefixtures("broken_rule")
@pytest.mark.parametrize("attack", [_history, _tail, _send])
async def test_poison_of_one_member_is_noticed_by_nobody_else_on_any_protocol(folder: Path, attack: Attack) -> None:
    async with mixed_hub(folder / "h", store="sqlite:unsafe") as place:
        readers = await _crowd(place)
        await place.there.add("speaker", "poisoner")
        speaker, poisoner = await place.there.join("speaker"), await place.there.join("poisoner")
        before = await _sessions(speaker)
        with capture_logs():
            for number in range(3):
                _, *sent = await asyncio.gather(
                    attack(poisoner), *(speaker.send(f"@{one.name}", f"{number}") for one in readers)
                )
                assert len(sent) == len(readers)
        assert await _sessions(speaker) == before, "the poisoner's own session too"
        for reader in readers:
            async with asyncio.timeout(WAIT_SECONDS):
                assert [heard.body for heard in await reader.hear_several(3)] == ["0", "1", "2"]
        for reader in readers:
            await reader.send("@speaker", f"from {reader.name}")
        waiting = await speaker.inbox()
        assert len(waiting.items) == len(readers)


@pytest.mark.slow
async def test_a_commit_that_fails_ends_no_session_on_any_protocol(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, commit = False, SqliteStore.commit

    def commit_or_fail(self: SqliteStore) -> None:
        if failing:
            raise DiskError("no space left on device")
        commit(self)

    monkeypatch.setattr(SqliteStore, "commit", commit_or_fail)
    async with mixed_hub(folder / "h", store="sqlite:unsafe") as place:
        readers = await _crowd(place)
        await place.there.add("speaker")
        speaker = await place.there.join("speaker")
        before = await _sessions(speaker)
        with capture_logs():
            failing = True
            for reader in readers:
                with pytest.raises(HubRefused) as caught:
                    await speaker.send(f"@{reader.name}", "lost")
                assert caught.value.code == "store_failed"
            failing = False
            for reader in readers:
                async with asyncio.timeout(WAIT_SECONDS):
                    while True:
                        with contextlib.suppress(HubRefused):
                            await speaker.send(f"@{reader.name}", "kept")
                            break
        assert await _sessions(speaker) == before
        for reader in readers:
            async with asyncio.timeout(WAIT_SECONDS):
                assert (await reader.hear()).body == "kept"
