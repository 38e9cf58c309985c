"""Tests with kill -9 during uploads, overwrites, removals and attachments of files.

Afterwards no content exists without an entry, and no entry without content. Each member has its own paths, so the test
knows the allowed content of each path after a kill: that of the last answered request, or that of the unanswered
request.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_ac7 import GONE, Line, Office
from tests.faults.test_kill import audit
from tests.protocols.ac7.teams import Json, team
from tieline.client import connect
from tieline.contract.file import FileEntry
from tieline.core.store import ObjectiveQuery
from tieline.services.files.blobs import Blobs
from tieline.services.files.files import Files
from tieline.services.files.tree import Viewer
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.files import SqliteFiles

ROUNDS = 30 if SOAK else 6
MEMBERS = ("boss", "w0", "w1", "w2")
SIZES = (0, 1, 5_000, 300_000, 2_000_000)
SLOTS = 8
"""Number of paths of each member."""
ALL = 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 120)]


class FileWriter:
    """Test client: a member that changes its own files, and knows the contents that each path may have."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        # Digests by path; what was removed or never answered is `None`.
        self.answered: dict[str, str | None] = {}
        self.asked: tuple[str, str | None] | None = None
        # Objectives that were made, with the digest of what is attached.
        self.given: dict[str, str] = {}

    async def work(self, line: Line) -> None:
        """Write, overwrite and remove files at random until the hub is killed."""
        while True:
            path = f"/{self.name}/f{self._chance.randrange(SLOTS)}"
            there = self.answered.get(path)
            step = self._chance.random()
            if there is not None and step < 0.2:
                await self._change(line, path, None)
            elif there is not None and step < 0.4 and self.name == "boss":
                form = {"title": "t", "outcome": "o", "assignee": "w0", "attachments": [{"path": path}]}
                made = await line.ask("POST", "/objectives", **form)
                self.given[made["attachments"][0]["path"]] = there
            else:
                await self._change(line, path, self._content())

    def _content(self) -> bytes:
        size = self._chance.choice(SIZES)
        # Half of it is the same for everybody, so that entries share their content.
        return b"s" * size if self._chance.random() < 0.5 else self._chance.randbytes(size)

    async def _change(self, line: Line, path: str, content: bytes | None) -> None:
        digest = sha256(content).hexdigest() if content is not None else None
        self.asked = (path, digest)
        if content is None:
            await line.send("DELETE", f"/fs/rm?path={path}")
        else:
            await line.send("POST", f"/fs/write?path={path}&collide=overwrite", content)
        self.answered[path] = digest
        self.asked = None

    def expected(self, path: str) -> set[str | None]:
        """Return the digests that the content of a path may have; `None` stands for no file."""
        may = {self.answered.get(path)}
        return may | {self.asked[1]} if self.asked is not None and self.asked[0] == path else may

    def look(self, found: dict[str, str | None]) -> None:
        """After a restart, check the digests found at this member's paths, and continue from them."""
        for slot in range(SLOTS):
            path = f"/{self.name}/f{slot}"
            assert found.get(path) in self.expected(path), path
            self.answered[path] = found.get(path)
        self.asked = None


def check_disk(home: Path) -> dict[str, str | None]:
    """Check that entries and stored contents match. Return the digest of each path."""
    catalogue = SqliteFiles(home)
    entries: list[FileEntry] = list(catalogue.files(ALL))
    for member in (*MEMBERS, "objectives"):
        entries += [entry for entry in catalogue.beneath(f"/{member}") if entry.digest is not None]
    catalogue.close()
    wanted = {entry.digest: entry.size for entry in entries}
    kept = {path.name: path for path in (home / "files").rglob("*") if path.is_file()}
    assert set(kept) == set(wanted), "what is on disk is what entries refer to, and nothing else"
    for digest, path in kept.items():
        content = path.read_bytes()
        assert len(content) == wanted[digest]
        assert sha256(content).hexdigest() == digest
    return {entry.path: entry.digest for entry in entries}


def attachments(home: Path) -> set[str]:
    """Return the paths of all files that are attached to objectives."""
    store = SqliteStore(home)
    rows = store.objectives.select(ObjectiveQuery(None, None, (), None, ALL))
    store.close()
    return {one.path for row in rows for one in row.objective.attachments}


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def live(office: Office, writers: list[FileWriter], url: str) -> None:
    """Let all members change files until the hub is killed."""

    async def run(writer: FileWriter) -> None:
        with contextlib.suppress(*GONE):
            async with office.line(url, writer.name) as line:
                await writer.work(line)

    async with asyncio.timeout(30):
        await asyncio.gather(*map(run, writers))


async def test_a_hub_killed_amid_uploads_keeps_what_it_answered_and_no_content_that_nobody_has(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    running = await hub.start()
    async with await connect(home=hub.home) as operator:
        tokens = {name: (await operator.add_member(name, permissions=("objectives.create",))).token for name in MEMBERS}
    office = Office(tokens, chance)
    writers = [FileWriter(name, random.Random(chance.random())) for name in MEMBERS]
    found: dict[str, str | None] = {}
    for _ in range(ROUNDS):
        living = asyncio.create_task(live(office, writers, running.http))
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        hub.kill()
        await living
        attached = attachments(hub.home)
        running = await hub.start()
        found = check_disk(hub.home)
        for writer in writers:
            writer.look(found)
            assert writer.given.items() <= found.items(), "what was attached stays with its objective"
        copies = {path for path in found if path.startswith("/objectives/")}
        assert copies == attached, "a copy for each objective, and none for one that was never made"
    assert await hub.stop() == 0
    assert audit(hub.home).intact
    assert check_disk(hub.home) == found
    assert sum(len(writer.answered) for writer in writers) > ROUNDS, "there was no load to speak of"


async def test_copies_for_an_objective_that_was_never_made_go_at_the_next_start_and_others_find_theirs(
    folder: Path,
) -> None:
    home = folder / "home"
    async with team(home) as crew:
        boss = await crew.seat("boss", "objectives.create", "objectives.watch")
        bob = await crew.seat("bob")
        await crew.seat("ann")
        await boss.ask("POST", "/fs/write?path=/boss/spec", b"spec")
        form: Json = {"title": "t", "outcome": "o", "assignee": "ann", "attachments": [{"path": "/boss/spec"}]}
        made = await boss.do("POST", "/objectives", **form)
        copy: str = made["attachments"][0]["path"]
        await boss.ask("DELETE", "/fs/rm?path=/boss/spec")
    # Leftovers of a kill between the copy and the objective, and between the objective and the rights on its copy.
    catalogue = SqliteFiles(home)
    files = Files(catalogue, Blobs(home / "files"), lambda: 1)
    boss_view = Viewer("boss", manages=True)
    assert isinstance(await files.mirror([copy], "orphan", boss_view), tuple)
    catalogue.forget(f"obj:{made['id']}", ALL**3)
    await files.close()
    async with team(home) as crew:
        boss.url = bob.url = crew.url
        assert set(check_disk(home)) == {copy}
        await boss.do("POST", f"/objectives/{made['id']}/watchers", add=["bob"])
        assert (await bob.ask("GET", f"/fs/read{copy}")).text == "spec"
        await boss.do("POST", f"/objectives/{made['id']}/watchers", remove=["bob"])
        assert (await bob.ask("GET", f"/fs/read{copy}")).status == 403
