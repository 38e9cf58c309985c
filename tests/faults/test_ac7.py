"""Tests with kill -9 during requests of ac7: objectives, their events, uploaded activity and the audit agree.

A boss assigns objectives to workers over HTTP. The workers block, unblock, discuss and complete them, and upload
activity. All of them read their streams until the hub is killed. Then the test inspects the store from outside, and
starts the hub again.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import audit
from tests.faults.test_objectives import PERMISSIONS, WORKERS, Told, check_activity, check_objectives
from tieline.client import connect

ROUNDS = 30 if SOAK else 6
GONE = (OSError, EOFError, asyncio.IncompleteReadError)
SAMPLE = 10
"""Number of objectives that each round checks through requests to the hub."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 120)]

Json = dict[str, Any]


class Refused(Exception):
    """Error: the hub refused a request. The test allows this, because another client was faster."""


class Line:
    """Test client: one HTTP connection of a member that stays open."""

    def __init__(self, name: str, token: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._token = token
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send a request with a JSON body. Return the decoded answer."""
        return json.loads(await self.send(method, path, json.dumps(body).encode()))

    async def send(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request with bytes as its body. Return the bytes of the answer. Raises `Refused`."""
        self._write(method, path, body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        text = await self._reader.readexactly(int(length or 0))
        assert status < 500, (method, path, status, text)
        if status >= 400:
            raise Refused(text)
        return text

    async def messages(self) -> AsyncIterator[Json]:
        """Open the member's stream, and yield its messages."""
        self._write("GET", f"/subscribe?name={self.name}", b"")
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def _write(self, method: str, path: str, body: bytes) -> None:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._token}\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


class Office:
    """Test helper: members that work on one hub, and the answers that they got."""

    def __init__(self, tokens: dict[str, str], chance: random.Random) -> None:
        self.tokens = tokens
        self.told = Told()
        self.chance = chance
        # Ids of messages that streams showed, by whose stream it was.
        self.shown: dict[str, set[str]] = {name: set() for name in tokens}

    @contextlib.asynccontextmanager
    async def line(self, url: str, name: str) -> AsyncIterator[Line]:
        """Open a connection of a member and yield it. Close it at the end."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 22)
        try:
            yield Line(name, self.tokens[name], reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def live(self, url: str) -> None:
        """Let all members work and read their streams until the hub is killed."""
        parts = [self._watch(url, name) for name in self.tokens]
        parts += [self._work(url, name) for name in WORKERS]
        async with asyncio.timeout(30):
            await asyncio.gather(*parts, self._give(url))

    async def _watch(self, url: str, name: str) -> None:
        with contextlib.suppress(*GONE):
            async with self.line(url, name) as line:
                async for message in line.messages():
                    self.shown[name].add(message["id"])

    async def _give(self, url: str) -> None:
        """Act as the boss until the hub ends: create objectives, cancel some and reassign some."""
        with contextlib.suppress(*GONE):
            async with self.line(url, "boss") as line:
                while True:
                    assignee = self.chance.choice(WORKERS)
                    watchers = self.chance.sample(WORKERS, self.chance.randint(0, 2))
                    form = {"title": "work", "outcome": "it is done", "assignee": assignee, "watchers": watchers}
                    made = await line.ask("POST", "/objectives", **form)
                    self.told.changes[made["id"]] = ["assigned"]
                    await self._meddle(line, made["id"], assignee)

    async def _meddle(self, line: Line, objective: str, assignee: str) -> None:
        step = self.chance.random()
        with contextlib.suppress(Refused):
            if step < 0.2:
                await line.ask("POST", f"/objectives/{objective}/cancel", reason="changed my mind")
                self.told.changes[objective].append("cancelled")
            elif step < 0.5:
                to = self.chance.choice([name for name in WORKERS if name != assignee])
                await line.ask("POST", f"/objectives/{objective}/reassign", to=to)
                self.told.changes[objective].append("reassigned")
            elif step < 0.7:
                await line.ask("POST", f"/objectives/{objective}/watchers", add=["kim"])

    async def _work(self, url: str, name: str) -> None:
        """Act as worker `name` until the hub ends: change its open objectives, and upload activity."""
        with contextlib.suppress(*GONE):
            async with self.line(url, name) as line:
                while True:
                    found = await line.ask("GET", f"/objectives?assignee={name}&status=active")
                    for one in found["objectives"][:3]:
                        await self._do(line, one["id"])
                    await self._upload(line)

    async def _do(self, line: Line, objective: str) -> None:
        path = f"/objectives/{objective}"
        answered = self.told.changes.setdefault(objective, [])
        with contextlib.suppress(Refused):
            if self.chance.random() < 0.5:
                await line.ask("PATCH", path, status="blocked", blockReason="stuck")
                answered.append("blocked")
                await line.ask("POST", f"{path}/discuss", body="it is stuck")
                await line.ask("PATCH", path, status="active")
                answered.append("unblocked")
            await line.ask("POST", f"{path}/complete", result="it works")
            answered.append("completed")

    async def _upload(self, line: Line) -> None:
        number, size = f"{line.name}-{next(self.told.numbers)}", self.chance.randint(1, 20)
        marker = {"kind": "objective_open", "ts": 1, "objectiveId": "x" * 500, "upload": number}
        events = [{**marker, "part": part} for part in range(size)]
        accepted = await line.ask("POST", f"/members/{line.name}/activity", events=events)
        assert accepted == {"accepted": size}
        self.told.uploads[number] = size


async def past(line: Line) -> list[Json]:
    """Return all messages that a member may read, oldest first."""
    found: list[Json] = []
    query = "?limit=1000"
    while page := (await line.ask("GET", f"/history{query}"))["messages"]:
        found += page
        query = f"?limit=1000&before={page[-1]['ts']}"
    return found[::-1]


async def check_through_the_wire(office: Office, url: str) -> None:
    """Check through requests that the history has all messages of the streams.

    Also check that the event logs of some objectives agree with their messages.
    """
    async with office.line(url, "kim") as line:
        messages = await past(line)
        said: dict[str, list[tuple[str, str, int]]] = {}
        for message in messages:
            event = message["data"].get("event")
            if event is not None:
                entry = (event["kind"], message["from"], message["ts"])
                said.setdefault(event["objectiveId"], []).append(entry)
        for objective in office.chance.sample(sorted(said), min(SAMPLE, len(said))):
            seen = await line.ask("GET", f"/objectives/{objective}")
            kept = [(event["kind"], event["actor"], event["ts"]) for event in seen["events"]]
            assert kept == said[objective]
    known = {message["id"] for message in messages}
    for name, shown in office.shown.items():
        async with office.line(url, name) as line:
            # A thread that it is not in any more is not in its own history.
            own = {message["id"] for message in await past(line)}
            assert shown <= own | known, f"{name} was shown what is not kept"


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def test_a_hub_killed_amid_requests_agrees_with_itself_and_with_what_its_streams_showed(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    running = await hub.start()
    tokens = {}
    async with await connect(home=hub.home) as operator:
        tokens["boss"] = (await operator.add_member("boss", permissions=PERMISSIONS)).token
        # Hears of everything.
        tokens["kim"] = (await operator.add_member("kim", permissions=("members.manage",))).token
        for name in WORKERS:
            tokens[name] = (await operator.add_member(name)).token
    office = Office(tokens, chance)
    entries = rows = 0
    for number in range(ROUNDS):
        living = asyncio.create_task(office.live(running.http))
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        hub.kill()
        await living
        report = audit(hub.home)
        assert report.intact, f"after kill {number}: {report.findings}"
        before, entries = entries, check_objectives(hub.home, office.told)
        assert entries >= before
        rows = check_activity(hub.home, office.told)
        running = await hub.start()
        await check_through_the_wire(office, running.http)
    assert await hub.stop() == 0
    assert audit(hub.home).intact
    assert (entries > 2 * ROUNDS, rows > 2 * ROUNDS) == (True, True), "there was no load to speak of"
    assert all(office.shown.values()), "and streams showed it"
