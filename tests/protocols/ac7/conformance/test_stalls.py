"""Tests of a reader that does not read: the hub ends its stream with a reason.

Other readers do not wait, and this reader finds all missed messages in the history.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosedError

from tests.protocols.ac7.teams import EventReader, Reader, Seat, SocketReader, Team, team
from tests.server.hubs import until
from tieline.wire import doors

COUNT = 200
BODY = "x" * 60_000
"""Body of each message. All bodies together are larger than the buffers of the sockets on both sides."""
KERNEL = Path("/proc/net/tcp")
ESTABLISHED = "01"
REASON = "too slow: what you missed is in /history"


async def rest(stream: Reader) -> tuple[list[int], str]:
    """Read a stalled stream to its end. Return the numbers of its messages, and the reason of the end."""
    numbers: list[int] = []
    if isinstance(stream, SocketReader):
        try:
            while True:
                numbers.append(int((await stream.next())["body"].split()[0]))
        except ConnectionClosedError:
            return numbers, f"{stream.socket.close_code} {stream.socket.close_reason}"
    assert isinstance(stream, EventReader)
    # As bytes, to the last chunk of the answer.
    data = bytearray()
    while not data.endswith(b"\r\n0\r\n\r\n"):
        data += await asyncio.wait_for(stream.reader.read(1 << 20), 10)
    numbers = [int(number) for number in re.findall(rb'"body":"(\d+) ', data)]
    found = re.findall(r"^: (.*)$", data[-200:].decode(), re.MULTILINE)
    return numbers, found[-1] if found else ""


async def everything(seat: Seat, sender: str) -> list[int]:
    """Return the numbers of all messages of `sender` in the history, oldest first."""
    numbers: list[int] = []
    query = f"?with={sender}&limit=50"
    while page := (await seat.get(f"/history{query}"))["messages"]:
        numbers += [int(message["body"].split()[0]) for message in page]
        query = f"?with={sender}&limit=50&before={page[-1]['ts']}"
    return numbers[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sse", "websocket"])
async def test_a_stalled_subscriber_is_cut_off_with_a_reason_and_catches_up_from_history(crew: Team, kind: str) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    stalled, lively = await crew.open(bob, kind), await crew.open(ann, kind)
    for number in range(COUNT):
        await ann.push(f"{number} {BODY}", to="bob")
        assert (await lively.next())["body"].startswith(f"{number} "), "others are not held up"
    roster = {one["name"]: one["connected"] for one in (await ann.get("/roster"))["connected"]}
    assert roster["bob"] == 0, "it is not live any more"
    numbers, end = await rest(stalled)
    assert end == f"1013 {REASON}"
    assert numbers == list(range(len(numbers))), "what it got is the beginning, whole and in order"
    assert len(numbers) < COUNT
    sys.stdout.write(f"{kind}: cut off after {len(numbers)} of {COUNT} messages of 60 kB\n")
    again = await crew.open(bob, kind)
    assert await everything(bob, "ann") == list(range(COUNT))
    await ann.push("live again", to="bob")
    assert (await again.next())["body"] == "live again"


@pytest.mark.slow
async def test_a_stalled_follower_of_activity_is_cut_off_with_a_reason_and_finds_the_rest_by_time(crew: Team) -> None:
    ann = await crew.seat("ann")
    path = "/members/ann/activity"
    stalled = await crew.follow(ann, f"{path}/stream", "websocket")
    assert isinstance(stalled, SocketReader)
    text = "x" * 300_000
    for upload in range(10):
        events = [{"kind": "objective_open", "ts": 20 * upload + part, "objectiveId": text} for part in range(20)]
        await ann.do("POST", path, 201, events=events)
    seen: list[int] = []
    with pytest.raises(ConnectionClosedError):
        await gather_rows(stalled, seen)
    assert stalled.socket.close_code == 1013
    assert stalled.socket.close_reason == "too slow: what you missed is in the activity log"
    assert seen == list(range(len(seen))), "what it got is the beginning, whole and in order"
    assert len(seen) < 200
    while rows := (await ann.get(f"{path}?from={len(seen)}&to={len(seen) + 19}"))["activity"]:
        seen += [row["event"]["ts"] for row in rows[::-1]]
    assert seen == list(range(200))


async def gather_rows(stream: SocketReader, seen: list[int]) -> None:
    """Read rows of activity without end, and add their times to `seen`."""
    while True:
        seen.append((await stream.row())["event"]["ts"])


@pytest.mark.slow
@pytest.mark.skipif(not KERNEL.exists(), reason="the kernel lists its connections elsewhere")
async def test_a_stalled_subscriber_that_never_reads_why_it_was_cut_off_does_not_hold_its_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "_UNREAD_SECONDS", 1.0)
    async with team(folder / "home", store="memory") as crew:
        ann, bob = await crew.seat("ann"), await crew.seat("bob")
        await crew.open(bob, "sse")
        socket = await crew.open(bob, "websocket")
        assert isinstance(socket, SocketReader)
        assert connections(crew.url) >= 2
        for number in range(COUNT):
            await ann.push(f"{number} {BODY}", to="bob")
        # It was cut off, and holds both, until the hub gives them up.
        await until(lambda: connections(crew.url) == 0)
        # It does not know that yet, and would wait for an answer.
        socket.socket.transport.abort()


def connections(url: str) -> int:
    """Return the number of open connections to the hub's port, as the kernel counts them."""
    port = f":{int(url.rpartition(':')[2]):04X}"
    lines = [line.split() for line in KERNEL.read_text(encoding="ascii").splitlines()[1:]]
    return sum(local.endswith(port) and state == ESTABLISHED for _, local, _, state, *_ in lines)
