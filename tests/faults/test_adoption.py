"""Tests of a hub with an adopted spool that is killed with kill -9: no message is lost, and none comes twice.

Local processes write and take messages as plain files, and do not notice the kill. A member sends through the hub's own
protocol, and sends unanswered messages again. Other members claim their messages, also those of local agents whose
files are taken at the same time. A message that a killed local process has taken is in its folder `cur/`, and counts as
taken.
"""

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.faults.processes import ROOT, SOAK, HubProcess, seed_of_the_day
from tests.faults.test_full_disk import FlakyStore
from tests.faults.test_kill import audit
from tests.protocols.backchannel.raw import Raw
from tests.server.hubs import HubHarness, running_hub, until
from tieline.client import Client, HubError, connect
from tieline.contract.message import Kind

ROUNDS = 40 if SOAK else 8
WRITER, TAKER, OTHER = "wes", "tim", "ola"
"""Local agents. WRITER writes messages. Messages of TAKER are taken in the spool and at the hub, those of OTHER only at
the hub."""
HEARER, SENDER = "hal", "sue"
"""Members that connect to the hub through its own protocol."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 240)]


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


@contextlib.asynccontextmanager
async def neighbour(*args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process of `tests.faults.neighbours` and yield it. Kill it at the end."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.faults.neighbours", *args)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, limit=1 << 22)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def last_words(process: asyncio.subprocess.Process) -> list[str]:
    """Kill a process. Return all complete lines that it has printed."""
    process.kill()
    assert process.stdout is not None
    lines = (await process.stdout.read()).decode().split("\n")[:-1]
    await process.wait()
    return lines


class Street:
    """Test helper: a hub with a spool. It notes the accepted messages, and the messages that each recipient got."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.raw = Raw(hub.home / "spool-home")
        self.tokens: dict[str, str] = {}
        # Messages accepted for each recipient, and messages that each got.
        self.expected: dict[str, set[str]] = {name: set() for name in (TAKER, OTHER, HEARER)}
        self.got: dict[str, Counter[str]] = {name: Counter() for name in (TAKER, OTHER, HEARER)}
        # Words of the hub's own sender that were not answered.
        self._open: list[tuple[int, str]] = []
        # The claim of each member that was not answered: message id and word.
        self._claiming: dict[str, tuple[str, str]] = {}
        self._next = 0
        self._written = 0

    async def settle_in(self) -> None:
        """Create the local agents, start the hub, and register the members."""
        for name in (WRITER, TAKER, OTHER):
            self.raw.init(name, *(["#all"] if name != WRITER else []))
        await self.hub.start()
        async with await connect(home=self.hub.home) as operator:
            for name in (HEARER, SENDER):
                self.tokens[name] = (await operator.add_member(name)).token
        async with await self.join(HEARER) as hearer:
            await hearer.subscribe("all")
        await until(lambda: "#all" in (self.raw.record(HEARER) or {}).get("subscriptions", ()))

    async def join(self, name: str, *, receive: bool = False) -> Client:
        return await connect(token=self.tokens[name], home=self.hub.home, receive=receive, window=64)

    # At the hub.

    async def speak(self, chance: random.Random) -> None:
        """Send messages from the hub to local agents until the hub is killed. Send unanswered messages again."""
        with contextlib.suppress(HubError, OSError):
            async with await self.join(SENDER) as client:
                while True:
                    await self._say_again(client)
                    for _ in range(8):
                        self._open.append((self._next, chance.choice([f"@{TAKER}", f"@{OTHER}", "#all"])))
                        self._next += 1

    async def _say_again(self, client: Client) -> None:
        for number, target in list(self._open):
            word = f"{SENDER}/{number}"
            await client.send(target, word, wire_id=word, kind=Kind.EVENT)
            self._open.remove((number, target))
            self.accept(target, word)

    def accept(self, target: str, word: str) -> None:
        """Note that a message must arrive: `word` is its body, `target` an agent or `#all`."""
        for name in [TAKER, OTHER, HEARER] if target == "#all" else [target.removeprefix("@")]:
            self.expected[name].add(word)

    async def claim(self, name: str, *, local: bool) -> None:
        """Claim the messages of a member until the hub is killed. With `local`, connect with the key of the home."""
        with contextlib.suppress(HubError, OSError):
            client = await (connect(home=self.hub.home, member=name) if local else self.join(name))
            async with client:
                while True:
                    await self._claim_page(client, name)
                    await asyncio.sleep(0.005)

    async def _claim_page(self, client: Client, name: str) -> int:
        page = await client.inbox(limit=50)
        for item in page.items:
            # An answer that the kill swallowed leaves it open who has it: the claim is known by its receipt.
            self._claiming[name] = item.message.id, item.message.body
            won = await client.claim(item.message.id)
            if won is not None:
                self.got[name][won.message.body] += 1
            del self._claiming[name]
        return len(page.items)

    async def clear_up(self) -> None:
        """After a restart, find out which unanswered claims had taken effect, and note their messages as received."""
        async with await connect(home=self.hub.home) as operator:
            for name, (message_id, word) in self._claiming.items():
                (receipt,) = [each for each in await operator.receipts(message_id) if each.member == name]
                if receipt.steps[-1].evidence == "claim":
                    self.got[name][word] += 1
        self._claiming.clear()

    # In the spool.

    def told(self, lines: list[str]) -> None:
        """Note the messages that the writer process printed, and the one it may have written without a line."""
        for line in lines:
            number, target = line.split()
            self.accept(target, f"{WRITER}/{number}")
            self._written = int(number) + 1

    @property
    def next_number(self) -> int:
        # One more: the writer may have been killed between its rename and its word.
        self._written += 1
        return self._written

    def taken(self, lines: list[str]) -> None:
        """Note the messages that the taker process printed, or had in `cur/` when it was killed."""
        self.got[TAKER].update(lines)
        cur = self.raw.root / "spool" / TAKER / "cur"
        for path in cur.glob("*.json"):
            word = Raw.read(path)["body"]
            if word not in lines[-1:]:
                self.got[TAKER][word] += 1
            path.unlink()


async def test_a_hub_that_is_killed_again_and_again_loses_and_doubles_nothing_of_its_spool(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    street = Street(hub)
    await street.settle_in()
    for _ in range(ROUNDS):
        root = str(street.raw.root)
        async with (
            neighbour("write", root, WRITER, str(street.next_number), "@tim", "@hal", "#all", "@ola") as writer,
            neighbour("take", root, TAKER) as taker,
        ):
            tasks = [
                asyncio.create_task(street.speak(random.Random(chance.random()))),
                asyncio.create_task(street.claim(HEARER, local=False)),
                asyncio.create_task(street.claim(OTHER, local=True)),
                asyncio.create_task(street.claim(TAKER, local=True)),
            ]
            await asyncio.sleep(chance.uniform(0.2, 0.9))
            hub.kill()
            async with asyncio.timeout(20):
                await asyncio.gather(*tasks)
            # They go on for a while without a hub.
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            street.told(await last_words(writer))
            street.taken(await last_words(taker))
        report = audit(hub.home)
        assert report.intact, report.findings
        await hub.start()
        await street.clear_up()
    await finish(street)
    for name, expected in street.expected.items():
        got = street.got[name]
        assert not expected - set(got), f"lost for {name}: {sorted(expected - set(got))[:5]}"
        twice = {word: count for word, count in got.items() if count > 1}
        assert not twice, f"{name} got twice: {twice}"
    assert all(len(expected) > ROUNDS for expected in street.expected.values()), "there was no load to speak of"
    assert await hub.stop() == 0
    assert audit(hub.home).intact


async def test_with_commits_that_fail_now_and_then_nothing_of_the_spool_is_lost_or_doubled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed_of_the_day())
    store = FlakyStore(folder)
    monkeypatch.setattr("tieline.server.room.open_store", lambda _url, _home, _address: store)
    raw = Raw(folder / "spool-home")
    raw.init(WRITER)
    raw.init(TAKER)
    words = {name: [f"{name}/{number}" for number in range(300 if SOAK else 100)] for name in (WRITER, SENDER)}
    heard: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    done = asyncio.Event()

    async def send(there: HubHarness) -> None:
        client: Client | None = None
        for word in words[SENDER]:
            while True:
                try:
                    client = client or await there.join(SENDER)
                    await client.send(f"@{TAKER}", word, wire_id=word, kind=Kind.EVENT)
                    break
                except HubError:
                    client = None

    async def write() -> None:
        for word in words[WRITER]:
            await asyncio.to_thread(raw.send, WRITER, f"@{HEARER}", word)
            await asyncio.sleep(chance.random() * 0.02)

    async def drain() -> None:
        while not done.is_set():
            taken.update(message["body"] for message in await asyncio.to_thread(raw.drain, TAKER))
            await asyncio.sleep(chance.random() * 0.05)

    async def claim(there: HubHarness, name: str, got: Counter[str]) -> None:
        client: Client | None = None
        while not done.is_set():
            try:
                client = client or there.keep(await connect(home=folder, member=name))
                for item in (await client.inbox(limit=20)).items:
                    # A claim that is refused was not made.
                    won = await client.claim(item.message.id)
                    got.update([won.message.body] if won is not None else [])
            except HubError:
                client = None
            await asyncio.sleep(chance.random() * 0.05)

    with capture_logs():
        async with running_hub(folder) as there:
            await there.add(SENDER, HEARER)
            await until(lambda: raw.record(HEARER) is not None)
            store.chance, store.odds = random.Random(chance.random()), 0.05
            takers = [asyncio.create_task(each) for each in (drain(), claim(there, TAKER, taken))]
            takers.append(asyncio.create_task(claim(there, HEARER, heard)))
            await asyncio.gather(send(there), write())
            store.odds = 0.0
            await until(lambda: len(taken) >= len(words[SENDER]) and len(heard) >= len(words[WRITER]), seconds=60)
            done.set()
            await asyncio.gather(*takers)
    assert store.failed > 3, "there was no fault to speak of"
    assert taken == Counter(words[SENDER])
    assert heard == Counter(words[WRITER])
    assert audit(folder).intact


async def finish(street: Street) -> None:
    """Wait until the hub has no unfinished work in the spool, and take the remaining messages."""
    async with await street.join(SENDER) as client:
        await street._say_again(client)
    raw = street.raw

    def at_rest() -> bool:
        return not raw.names(HEARER) and not any(
            path.suffix in (".staged", ".won", ".json") and path.name != "mailbox.json"
            for path in (raw.root / "spool").glob("*/hub/*")
        )

    await until(at_rest, seconds=30)
    async with await street.join(HEARER) as hearer:
        while await street._claim_page(hearer, HEARER):
            pass
    async with await connect(home=street.hub.home, member=OTHER) as other:
        # Its mail is taken by both sides at once.
        while (await other.inbox(limit=1)).items or raw.names(OTHER):
            taken = [raw.take(OTHER, message["id"]) for message in raw.inbox(OTHER)[:20]]
            street.got[OTHER].update(message["body"] for message in taken if message is not None)
            await street._claim_page(other, OTHER)
    async with await connect(home=street.hub.home, member=TAKER) as taker:
        while raw.names(TAKER) or (await taker.inbox(limit=1)).items:
            street.got[TAKER].update(message["body"] for message in raw.drain(TAKER))
            await asyncio.sleep(0.02)
