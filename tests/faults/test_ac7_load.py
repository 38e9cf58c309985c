"""Tests of many ac7 streams at once: each stream gets exactly its messages, in the order of the log."""

import asyncio
import json
import resource
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.faults.processes import SOAK
from tests.protocols.ac7.teams import Seat, team

READERS = 200
"""Number of streams of each kind: server-sent events and WebSocket."""
PUSHES = 5000 if SOAK else 1000
MEMBERS = 20
LANES = 20


class Pusher:
    """Test client: sends messages over one HTTP connection that stays open."""

    def __init__(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seat = seat
        self.reader = reader
        self.writer = writer

    async def push(self, body: str, to: str | None) -> str:
        """Send a message. Return its id."""
        data = json.dumps({"body": body, "to": to}).encode()
        head = [f"POST /push HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}"]
        head += [f"{name}: {value}" for name, value in self.seat.headers.items()]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        head_read = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in head_read.split("\r\n")[0], head_read
        size = int(head_read.split("content-length: ")[1].split("\r\n")[0])
        answer: str = json.loads(await self.reader.readexactly(size))["message"]["id"]
        return answer


def wanted(number: int) -> str | None:
    """Return the recipient of the message with this number: usually one member, sometimes `None` for everybody."""
    return None if number % 100 == 0 else f"m{number % MEMBERS}"


async def read_events(seat: Seat, ready: asyncio.Event) -> list[str]:
    """Open a stream of server-sent events. Return the bodies of its messages up to the message `end`."""
    host, port = seat.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = [f"GET /subscribe?name={seat.name} HTTP/1.1", "host: localhost"]
    head += [f"{name}: {value}" for name, value in seat.headers.items()]
    writer.write("\r\n".join((*head, "", "")).encode())
    await reader.readuntil(b"\r\n\r\n")
    ready.set()
    found: list[str] = []
    while not found or found[-1] != "end":
        line = await reader.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:])["body"])
    writer.close()
    return found


async def read_frames(seat: Seat, ready: asyncio.Event) -> list[str]:
    """Open a WebSocket stream. Return the bodies of its messages up to the message `end`."""
    url = f"{seat.url.replace('http', 'ws', 1)}/subscribe?name={seat.name}"
    headers = {"authorization": f"Bearer {seat.token}"}
    async with connect(url, additional_headers=headers, proxy=None) as socket:
        ready.set()
        found: list[str] = []
        while not found or found[-1] != "end":
            found.append(json.loads(await socket.recv())["body"])
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_hundreds_of_subscribers_each_get_exactly_their_messages_in_log_order(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    (home / "tieline.toml").write_text("[ac7]\nannounce = false\n", encoding="utf-8")
    async with team(home) as crew:
        seats = [await crew.seat(f"m{number}") for number in range(MEMBERS)]
        sender = await crew.seat("sender")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tasks, events = [], []
        for number in range(READERS):
            for read in (read_events, read_frames):
                ready = asyncio.Event()
                events.append(ready)
                tasks.append((number % MEMBERS, asyncio.create_task(read(seats[number % MEMBERS], ready))))
        async with asyncio.timeout(120):
            for ready in events:
                await ready.wait()
        host, port = crew.url.removeprefix("http://").split(":")
        pushers = [Pusher(sender, *await asyncio.open_connection(host, int(port))) for _ in range(LANES)]
        ids: dict[str, int] = {}

        async def lane(number: int) -> None:
            for index in range(number, PUSHES, LANES):
                ids[await pushers[number].push(str(index), wanted(index))] = index

        await asyncio.gather(*(lane(number) for number in range(LANES)))
        await pushers[0].push("end", None)
        # The hub's ids are made in the order of its log.
        order = [ids[one] for one in sorted(ids)]
        expected = {
            member: [str(index) for index in order if wanted(index) in {None, f"m{member}"}] + ["end"]
            for member in range(MEMBERS)
        }
        async with asyncio.timeout(120):
            for member, task in tasks:
                assert await task == expected[member]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.stdout.write(f"{2 * READERS} subscribers, {PUSHES} pushes: memory grew by {grown / 1024:.0f} MiB\n")
        for pusher in pushers:
            pusher.writer.close()
