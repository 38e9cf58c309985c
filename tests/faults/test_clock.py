"""Tests that the system clock jumps while a hub runs: nothing is deleted or expired, and the hub's time recovers."""

import asyncio
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.faults.test_full_disk import health, metric
from tests.server.hubs import running_hub, take, until
from tieline.cli.doctor_home import look_at_process
from tieline.contract import command as c

DAY_SECONDS = 24 * 3600


class Hands:
    """Test double: fake system clocks. The test can set the wall clock."""

    def __init__(self) -> None:
        self.seconds = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.seconds * 10**9

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """Fixture: replace the clocks that the hub reads by fake clocks. Return them."""
    hands = Hands()
    monkeypatch.setattr("tieline.server.clock.time", hands)
    return hands


@pytest.mark.slow
@pytest.mark.parametrize("days", [30, -30])
async def test_a_jump_of_thirty_days_deletes_and_expires_nothing_and_is_over_when_it_is_taken_back(
    folder: Path, hands: Hands, days: int
) -> None:
    with capture_logs() as logs:
        async with running_hub(folder) as there:
            await there.add("alice", "bob")
            alice, bob = await there.join("alice"), await there.join("bob", receive=True)
            for number in range(5):
                await alice.send("@bob", str(number))
            for delivery in await take(bob, 5):
                bob.ack(delivery)
            waiting = await alice.send("@alice", "expires in an hour", ttl_ms=3600 * 1000)
            local_hub = there.hub.local_hub
            assert local_hub is not None
            hands.seconds = days * DAY_SECONDS
            batches = local_hub.counters.batches
            for _ in range(3):
                await local_hub.ask(c.Tick())
            await until(lambda: local_hub.counters.batches > batches + 8)
            assert len(await bob.history(limit=100)) == 5, "settled history is kept"
            assert [one.state for one in await alice.receipts(waiting.id)] == ["pending"]
            _, document = await health(there)
            assert (document["status"], document["reasons"][0]["what"]) == ("impaired", "the clock")
            assert round(await metric(there, "tieline_clock_jump_seconds") / DAY_SECONDS) == days
            found = await asyncio.to_thread(lambda: list(look_at_process(folder)))
            assert any("clock jumped" in finding.what for finding in found)
            hands.seconds = 0
            said = await alice.send("@bob", "the clock is right again")
            (message,) = await bob.history(limit=1)
            assert message.id == said.id
            assert abs(message.sent_at_ms - time.time() * 1000) < 10_000
            assert (await health(there))[1]["status"] == "ok"
    lines = [entry["event"] for entry in logs if "clock" in entry["event"]]
    assert len(lines) == 2, lines
