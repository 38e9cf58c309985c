"""Tests of sessions inside the hub's own process, with the same client as over a socket."""

import asyncio

import pytest

from tests.server.hubs import HubHarness, take, until
from tieline.client import Disconnected, HubRefused
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code
from tieline.wire.native.in_process import UNREAD_BYTES_MAX, open_session


def hub_of(home: HubHarness) -> Hub:
    """Return the Hub port of a running hub."""
    found = home.hub.local_hub
    assert found is not None
    return found


async def test_a_session_sends_receives_and_ends(home: HubHarness) -> None:
    hub = hub_of(home)
    async with (
        await open_session(hub, home.tokens["alice"], "x") as alice,
        await open_session(hub, home.tokens["bob"], "x", receive=True, window=8) as bob,
    ):
        sent = await alice.send("@bob", "hello")
        (came,) = await take(bob, 1, ack=True)
        assert (came.message.id, came.message.protocol) == (sent.id, "x")
    operator = await home.operator()
    assert not any(one.sessions for one in await operator.members())
    with pytest.raises(Disconnected):
        await bob.members()


async def test_a_caller_that_is_cancelled_while_its_session_opens_leaves_no_session(home: HubHarness) -> None:
    opening = asyncio.create_task(open_session(hub_of(home), home.tokens["bob"], "x", receive=True, window=8))
    # One turn: the login is sent, and not answered yet.
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with await open_session(hub_of(home), home.tokens["alice"], "x") as alice:
        sent = await alice.send("@bob", "hello")
        assert not any(one.sessions for one in await alice.members() if one.name == "bob")
        (receipt,) = await alice.receipts(sent.id)
        assert receipt.state == "pending"


async def test_deliveries_that_are_not_read_stay_in_the_inbox_beyond_a_number_of_bytes(home: HubHarness) -> None:
    hub = hub_of(home)
    body = "x" * (UNREAD_BYTES_MAX // 8)
    async with await open_session(hub, home.tokens["alice"], "x") as alice:
        sent = [(await alice.send("@bob", body)).id for _ in range(32)]
        async with await open_session(hub, home.tokens["bob"], "x", receive=True, window=1024) as bob:
            most = 0
            came = []
            for _ in range(4):
                # Requests are answered, however much waits to be read.
                assert len((await bob.inbox(limit=1)).items) == 1
                await alice.send("@bob", body)
                most = max(most, bob._unread.bytes)
                came += [one.message.id for one in await take(bob, 9)]
            assert came[:32] == sent
            assert len(came) == len(set(came)) == 36
            # Beyond the limit is what was written at once.
            assert UNREAD_BYTES_MAX < most < 2 * UNREAD_BYTES_MAX


async def test_a_token_that_is_not_valid_opens_no_session(home: HubHarness) -> None:
    with pytest.raises(HubRefused) as caught:
        await open_session(hub_of(home), "nonsense", "x")
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_revoked_token_ends_its_session_and_its_readers(home: HubHarness) -> None:
    bob = await open_session(hub_of(home), home.tokens["bob"], "x", receive=True)
    readers = [asyncio.create_task(take(bob, 1)) for _ in range(2)]
    await (await home.operator()).rotate_token("bob")
    await until(lambda: all(reader.done() for reader in readers))
    assert all(isinstance(reader.exception(), HubRefused) for reader in readers)
    await bob.close()
