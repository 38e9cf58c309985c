"""Tests of names of peers: tokens that are replaced, and names that the hub refuses."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.protocols.peerbus.peers import CARRIERS, CONFIG, OTHER_TOKEN, PORT, SECRET, TOKEN, Bus, bus
from tieline.client import HubRefused
from tieline.contract.identifiers import RESERVED_NAMES
from tieline.protocols import protocols

NEW_TOKEN = "token-three-of-the-tests"
ORPHANS = "names belong to a shared token that is configured no more"
REFUSED = "the name of a peer is refused"


def configure(home: Path, *tokens: str) -> Path:
    """Write the configuration of a hub with these tokens. Return its home."""
    home.mkdir(mode=0o700, exist_ok=True)
    written = ", ".join(f'"{token}"' for token in tokens)
    (home / "tieline.toml").write_text(f'[peerbus]\ntokens = [{written}]\nhmac_secret = "{SECRET}"\n')
    return home


async def leave_mail(home: Path, token: str) -> None:
    """Run a hub with one token, let alice send a message to bob, who is disconnected, and stop the hub."""
    async with bus(configure(home, token)) as hub:
        alice, bob = await hub.peer("alice", token), await hub.peer("bob", token)
        await hub.leave(bob)
        await alice.say("bob", "before the new token")
        await alice.peers()


async def events(hub: Bus) -> list[str]:
    """Return the rows of the main log about registrations of members."""
    rows = (await (await hub.operator()).read_log("main", 0, 1000)).rows
    return [row.event for row in rows if '"event":"register"' in row.event]


def told(logs: list[Any], event: str) -> list[Any]:
    """Return the lines of the hub's program log with this event."""
    return [line for line in logs if line["event"] == event]


@pytest.mark.parametrize("door", CARRIERS)
async def test_an_adapter_whose_token_was_changed_on_both_sides_registers_and_gets_its_mail(
    folder: Path, door: str
) -> None:
    await leave_mail(folder / "h", TOKEN)
    with capture_logs() as logs:
        async with bus(configure(folder / "h", NEW_TOKEN), door) as hub:
            bob = await hub.peer("bob", NEW_TOKEN)
            assert await bob.texts(1) == ["before the new token"]
            assert (await events(hub))[-1].count("another shared token") == 1
    (line,) = told(logs, ORPHANS)
    assert (line["count"], line["some"]) == (2, ["alice", "bob"])


async def test_a_name_that_moved_to_the_new_token_is_closed_to_the_old_one_for_good(folder: Path) -> None:
    await leave_mail(folder / "h", TOKEN)
    async with bus(configure(folder / "h", NEW_TOKEN)) as hub:
        await hub.peer("bob", NEW_TOKEN)
    with capture_logs() as logs:
        async with bus(configure(folder / "h", NEW_TOKEN, TOKEN)) as hub:
            peer = await hub.dial()
            await peer.raw(b'{"type":"register","protocol_version":"v1","token":"%s","name":"bob"}' % TOKEN.encode())
            assert await peer.closed() == (1008, "name claimed under a different token")
            await hub.peer("bob", NEW_TOKEN)
            await hub.peer("alice", TOKEN)
    assert told(logs, ORPHANS) == []


async def test_with_several_tokens_the_operator_decides_and_the_peer_gets_its_mail(folder: Path) -> None:
    await leave_mail(folder / "h", TOKEN)
    async with bus(configure(folder / "h", NEW_TOKEN, OTHER_TOKEN)) as hub:
        for token in (NEW_TOKEN, OTHER_TOKEN):
            peer = await hub.dial()
            await peer.raw(b'{"type":"register","protocol_version":"v1","token":"%s","name":"bob"}' % token.encode())
            assert await peer.closed() == (1008, "name claimed under a different token")
        operator = await hub.operator()
        with pytest.raises(HubRefused, match="names share no such token"):
            await operator.retoken("bob", TOKEN)
        await operator.retoken("bob", OTHER_TOKEN)
        assert '"by":"operator"' in (await events(hub))[-1]
        bob = await hub.peer("bob", OTHER_TOKEN)
        assert await bob.texts(1) == ["before the new token"]
        await operator.retoken("bob", NEW_TOKEN)
        assert await bob.closed() == (1008, "name claimed under a different token")


async def test_a_member_without_the_permission_cannot_move_names(folder: Path) -> None:
    async with bus(folder / "h") as hub:
        await hub.peer("bob")
        await hub.add("carol")
        with pytest.raises(HubRefused, match=r"members\.manage"):
            await (await hub.join("carol")).retoken("bob", OTHER_TOKEN)


async def test_an_adapter_that_tries_a_refused_name_for_ever_is_logged_once(folder: Path) -> None:
    with capture_logs() as logs:
        async with bus(folder / "h") as hub:
            await hub.peer("carol", OTHER_TOKEN)
            for name, code, reason in (
                ("system", 1008, "invalid peer name"),
                ("build bot", 1008, "invalid peer name"),
                ("carol", 1008, "name claimed under a different token"),
            ):
                for _ in range(3):
                    peer = await hub.dial()
                    frame = b'{"type":"register","protocol_version":"v1","token":"%s","name":"%s"}'
                    await peer.raw(frame % (TOKEN.encode(), name.encode()))
                    assert await peer.closed() == (code, reason)
    lines = told(logs, REFUSED)
    assert [(line["name"], line["code"]) for line in lines] == [
        ("system", "reserved_name"),
        ("build bot", "invalid_name"),
        ("carol", "name_taken"),
    ]
    assert lines[0]["reason"] == "the name 'system' is kept for the hub itself; choose another"


def test_the_document_lists_every_reserved_name() -> None:
    reserved = RESERVED_NAMES | {name for protocol in protocols() for name in protocol.reserved_names}
    text = (files("tieline.protocols.peerbus") / "PROTOCOL.md").read_text(encoding="utf-8")
    listed = text.partition("These names are reserved, in any case")[2].partition(".")[0]
    assert set(re.findall(r"`([\w-]+)`", listed.partition(":")[2])) == reserved


async def test_invented_names_do_not_fill_the_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.protocols.peerbus.server._REFUSED_NAMES_MAX", 2)
    with capture_logs() as logs:
        async with bus(folder / "h", PORT, CONFIG) as hub:
            for number in range(4):
                peer = await hub.dial()
                frame = b'{"type":"register","protocol_version":"v1","token":"%s","name":"bad name %d"}'
                await peer.raw(frame % (TOKEN.encode(), number))
                assert (await peer.closed())[0] == 1008
    assert len(told(logs, REFUSED)) == 2
