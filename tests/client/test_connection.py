"""Tests of the SDK's connection to a hub: how it ends, and what waiting calls then raise."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.client.ladder import reached
from tests.server.hubs import HubHarness, take, until
from tieline.client import Disconnected, HubRefused, HubUnreachable, connect
from tieline.client.carriers import dial_socket
from tieline.contract.refusal import Code
from tieline.wire.frames import encode_frame

# When it ends


async def test_everything_waiting_hears_that_the_hub_is_gone(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)

    async def follow() -> None:
        async for _ in bob.progress():
            pass

    waiting = [asyncio.ensure_future(take(bob, 1)), asyncio.ensure_future(follow())]
    await bob.members()
    await there.hub.stop()
    async with asyncio.timeout(10):
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, HubRefused)
            assert outcome.code is Code.SHUTTING_DOWN
    with pytest.raises(HubRefused):
        await bob.send("@alice", "hello")


async def test_what_the_hub_said_last_is_heard_by_who_writes_to_it_at_that_moment(folder: Path) -> None:
    heard: list[bytes | str] = []

    class Listener:
        def receive_batch(self, payload: bytes | str) -> None:
            heard.append(payload if isinstance(payload, str) else bytes(payload))

        def connection_lost(self, why: str) -> None:
            heard.append(why)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s"))
        listening.listen()
        carrier = await dial_socket(folder / "s", Listener())
        hub, _ = listening.accept()
        hub.sendall(encode_frame(b"we are closing") + encode_frame(b"x" * 100_000))
        hub.close()
        # Nothing was read yet, and this fails.
        carrier.send(b"one more")
        await until(lambda: len(heard) == 3)
    assert [heard[0], len(heard[1]), heard[2]] == [b"we are closing", 100_000, "[Errno 32] Broken pipe"]


async def test_a_connection_that_breaks_ends_what_waits_with_disconnected(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)
    waiting = asyncio.ensure_future(take(bob, 1))
    await bob.members()
    bob.connection_lost("the cable was cut")
    with pytest.raises(Disconnected, match="cable"):
        await waiting
    with pytest.raises(Disconnected):
        await bob.members()


async def test_asking_again_for_deliveries_after_the_end_says_again_that_it_ended(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)
    await bob.close()
    for _ in range(2):
        with pytest.raises(Disconnected):
            await take(bob, 1)
        async with asyncio.timeout(10):
            with pytest.raises(Disconnected):
                async for _ in bob.progress():
                    pass


async def test_a_closed_client_answers_nothing_more(there: HubHarness) -> None:
    alice = await there.join("alice")
    await alice.close()
    await alice.close()
    with pytest.raises(Disconnected, match="closed"):
        await alice.send("@bob", "hello")


async def test_closing_sends_what_is_left(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    async with bob:
        bob.ack((await take(bob, 1))[0])
    await reached(alice, sent.id, "acked")


async def test_a_request_that_is_given_up_does_not_confuse_the_next(there: HubHarness) -> None:
    alice = await there.join("alice")
    asking = asyncio.ensure_future(alice.members())
    await asyncio.sleep(0)
    asking.cancel()
    assert len(await alice.channels()) == 1
    assert len(await alice.members()) == 3


async def test_what_is_no_batch_from_the_hub_ends_the_session(there: HubHarness) -> None:
    alice = await there.join("alice")
    alice.receive_batch(b"garbage")
    with pytest.raises(Disconnected, match="not a batch"):
        await alice.members()


# Finding the hub


async def test_the_environment_says_where_and_who(there: HubHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIELINE_URL", there.running.http)
    monkeypatch.setenv("TIELINE_TOKEN", there.tokens["alice"])
    async with await connect() as alice:
        assert alice.welcome is not None
        assert alice.welcome.member == "alice"
    monkeypatch.delenv("TIELINE_URL")
    monkeypatch.delenv("TIELINE_TOKEN")
    monkeypatch.setenv("TIELINE_HOME", str(there.home))
    monkeypatch.setenv("TIELINE_AGENT", "bob")
    async with await connect() as bob:
        assert bob.welcome is not None
        assert bob.welcome.member == "bob"


async def test_the_home_may_be_text(there: HubHarness) -> None:
    await there.join("bob")
    async with await connect(home=str(there.home), member="bob") as client:
        assert client.welcome is not None
        assert client.welcome.member == "bob"


async def test_on_the_machine_of_the_hub_its_key_is_enough_to_be_a_member(there: HubHarness) -> None:
    async with await connect(home=there.home, member="alice") as alice:
        assert (await alice.send("@bob", "hello")).recipients == 1
    with pytest.raises(HubRefused) as caught:
        await connect(home=there.home, member="alicia")
    assert caught.value.code is Code.UNKNOWN_MEMBER
    assert caught.value.near == ("alice",)


async def test_a_token_does_not_open_another_member(there: HubHarness) -> None:
    with pytest.raises(HubRefused) as caught:
        await connect(home=there.home, member="bob", token=there.tokens["alice"])
    assert caught.value.code is Code.UNAUTHORIZED


async def test_where_no_hub_is_the_caller_is_told(folder: Path) -> None:
    with pytest.raises(HubUnreachable, match="no hub is running"):
        await connect(home=folder)
    with pytest.raises(HubUnreachable, match="no hub answers"):
        await connect(url="http://127.0.0.1:1", token="x")


async def test_sessions_are_seen_by_others_while_they_last(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    names = {member.name: member for member in await alice.members()}
    assert names["bob"].sessions == ("tieline",)
    await bob.close()

    gone = False

    async def look() -> None:
        nonlocal gone
        while not gone:
            gone = not next(member for member in await alice.members() if member.name == "bob").sessions

    looking = asyncio.ensure_future(look())
    await until(lambda: gone)
    await looking


# An address with a fingerprint


async def test_a_fingerprint_without_tls_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}#sha256={'1f' * 32}"
        with pytest.raises(HubUnreachable, match="needs https://"):
            await connect(url=url, token="secret")
        monkeypatch.setenv("TIELINE_URL", url)
        with pytest.raises(HubUnreachable, match="needs https://"):
            await connect(token="secret")
        with pytest.raises(BlockingIOError):
            listener.accept()
