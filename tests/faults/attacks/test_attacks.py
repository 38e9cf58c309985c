"""Tests that attacks on a hub do little harm.

The hub's memory stays small, no client blocks it, and unknown clients leave little data behind. `make soak` starts a
hub for each attack, and prints the measured values. A short run uses one hub for all attacks, to be quick.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.attacks import campaign, members, strangers
from tests.faults.attacks.campaign import WatchedHub
from tests.faults.processes import SOAK
from tieline.client import connect
from tieline.contract.limits import DEFAULT_LIMITS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if SOAK else 120)]


STORED_BYTES_MAX = 256 * 1024
"""Limit of the bytes in files that attempts with invented names may leave in a home."""


@pytest.fixture(scope="function" if SOAK else "module")
def hub() -> Iterator[WatchedHub]:
    folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    watched = WatchedHub(folder / "h")
    try:
        asyncio.run(watched.begin(members.MALLORY, *members.CROWD))
        yield watched
        assert asyncio.run(watched.stop()) == 0
    finally:
        watched.kill()
        shutil.rmtree(folder, ignore_errors=True)


def attack(name: str, hub: WatchedHub, how: Callable[[WatchedHub], Awaitable[None]]) -> None:
    """Run the attack `how`, check its limits, and check that the hub logged no traceback."""
    strangers.FATES.clear()
    figures = asyncio.run(campaign.run(name, hub, how))
    if not SOAK and figures.longest_hold > campaign.HOLD_SECONDS_MAX:
        # Other tests on the same cores make processor time longer. Work that really takes long does so again.
        figures = asyncio.run(campaign.run(name, hub, how))
    figures.check()
    if strangers.FATES:
        sys.stdout.write(f"fates: {dict(strangers.FATES.most_common())}\n")
    assert hub.complaints() == ""


def test_bytes_of_strangers_are_bounded_on_every_port(hub: WatchedHub) -> None:
    attack("strangers' bytes", hub, strangers.send_bytes)


def test_bytes_are_bounded_on_every_socket_before_hello(hub: WatchedHub) -> None:
    attack("bytes before hello", hub, strangers.send_local_bytes)


def test_nothing_that_a_stranger_says_takes_long_to_read(hub: WatchedHub) -> None:
    attack("strangers' processor time", hub, strangers.spend_time)


def test_names_that_strangers_invent_leave_little_behind(hub: WatchedHub) -> None:
    rows, stored = hub.rows("refuse"), strangers.stored_bytes(hub.home)
    attack("strangers' rows", hub, strangers.invent_names)
    rows, stored = hub.rows("refuse") - rows, strangers.stored_bytes(hub.home) - stored
    attempts = strangers.ATTEMPTS * len(strangers.INVENTIONS)
    sys.stdout.write(f"{attempts} attempts left {rows} rows and {stored} bytes of files\n")
    assert rows <= DEFAULT_LIMITS.refusal_rows_max
    assert stored <= STORED_BYTES_MAX
    assert set(asyncio.run(_members(hub))) == {*hub.tokens}


async def _members(hub: WatchedHub) -> list[str]:
    async with await connect(home=hub.home) as operator:
        return [member.name for member in await operator.members()]


def test_batches_of_a_member_hold_nobody_up(hub: WatchedHub) -> None:
    asyncio.run(members.furnish(hub))
    attack("members' batches", hub, members.send_batches)


def test_small_values_of_a_member_hold_nobody_up(hub: WatchedHub) -> None:
    attack("members' values", hub, members.send_values)


def test_streams_of_a_member_with_a_large_backlog_stay_small(hub: WatchedHub) -> None:
    attack("members' streams", hub, members.open_streams)
