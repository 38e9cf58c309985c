"""Tests of the virtual file system with a real catalogue and a real folder."""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stores.postgres_server import database_url, on_postgres
from tieline.contract.file import EVERYBODY, FileEntry
from tieline.contract.limits import MEBIBYTE
from tieline.contract.message import Attachment
from tieline.server.storage import DatabaseStorage, HomeStorage, Storage
from tieline.services.files.files import Files, Reading
from tieline.services.files.transfer import reading_headers
from tieline.services.files.tree import (
    Collide,
    FileCode,
    FileLimits,
    FileRefusal,
    Viewer,
    Written,
    objective_of,
    parse_path,
)
from tieline.stores.sqlite.files import FILES_FILE

NOW = 1_700_000_000_000
ADA, BOB, EVE = Viewer("ada"), Viewer("bob"), Viewer("eve")
DIANA = Viewer("diana", manages=True)


class Scene:
    """Test helper: the virtual file system in a folder, with short methods for tests."""

    def __init__(self, folder: Path, limits: FileLimits | None = None) -> None:
        self.folder = folder
        storage: Storage = HomeStorage(folder, "OFF")
        if on_postgres():
            storage = DatabaseStorage(database_url(folder), folder)
        self.blobs = storage.open_blobs()
        self.files = Files(storage.open_catalogue(), self.blobs, lambda: NOW, limits)

    async def write(
        self, path: str, data: bytes = b"hello", viewer: Viewer = ADA, collide: Collide = Collide.ERROR
    ) -> Written | FileRefusal:
        return await self.files.write(path, viewer, pieces(data), media_type="text/plain", collide=collide)

    async def written(self, path: str, data: bytes = b"hello", viewer: Viewer = ADA, **more: Collide) -> FileEntry:
        result = await self.write(path, data, viewer, **more)
        assert isinstance(result, Written), result
        return result.entry

    async def content(self, path: str, viewer: Viewer = ADA) -> bytes:
        reading = await self.files.read(path, viewer)
        assert isinstance(reading, Reading), reading
        return b"".join([piece async for piece in reading])

    def on_disk(self) -> int:
        """Return the number of contents that are kept, with those of uploads."""
        return len(self.blobs.digests()) + len(list(self.folder.rglob("incoming/*")))


@pytest.fixture
async def scene(folder: Path) -> AsyncIterator[Scene]:
    made = Scene(folder)
    yield made
    await made.files.close()


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def code(result: object) -> FileCode | None:
    return result.code if isinstance(result, FileRefusal) else None


def names(result: object) -> list[str]:
    assert not isinstance(result, FileRefusal), result
    assert isinstance(result, list)
    return [entry.path for entry in result]


# Writing and reading


async def test_a_file_is_written_with_its_folders_and_read_back(scene: Scene) -> None:
    entry = await scene.written("/ada/uploads/hello.txt", b"hello world")
    assert (entry.path, entry.name, entry.kind, entry.owner) == ("/ada/uploads/hello.txt", "hello.txt", "file", "ada")
    assert (entry.size, entry.media_type, entry.created_at_ms) == (11, "text/plain", NOW)
    assert entry.digest == "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
    assert await scene.content("/ada/uploads/hello.txt") == b"hello world"
    assert names(await scene.files.listing("/ada", ADA)) == ["/ada/uploads"]
    assert names(await scene.files.listing("/", ADA)) == ["/ada"]
    assert names(await scene.files.listing("/bob", BOB)) == []


async def test_an_empty_file_is_a_file(scene: Scene) -> None:
    assert (await scene.written("/ada/empty", b"")).size == 0
    assert await scene.content("/ada/empty") == b""


async def test_a_collision_is_an_error_or_overwrites_or_gets_a_suffix(scene: Scene) -> None:
    await scene.written("/ada/a.txt", b"1")
    assert code(await scene.write("/ada/a.txt", b"2")) is FileCode.EXISTS
    result = await scene.write("/ada/a.txt", b"3", collide=Collide.SUFFIX)
    assert isinstance(result, Written)
    assert (result.entry.path, result.renamed) == ("/ada/a-1.txt", True)
    assert (await scene.written("/ada/a.txt", b"4", collide=Collide.OVERWRITE)).path == "/ada/a.txt"
    assert (await scene.content("/ada/a.txt"), await scene.content("/ada/a-1.txt")) == (b"4", b"3")
    assert scene.on_disk() == 2


async def test_a_file_of_25_mib_is_accepted_and_never_in_memory_as_a_whole(scene: Scene) -> None:
    piece = b"x" * 65_536

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(25 * MEBIBYTE // len(piece)):
            yield piece

    tracemalloc.start()
    try:
        result = await scene.files.write("/ada/big", ADA, stream())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(result, Written)
    assert result.entry.size == 25 * MEBIBYTE
    assert peak < 4 * MEBIBYTE


async def test_one_byte_more_is_refused_and_nothing_is_left_on_disk(scene: Scene) -> None:
    result = await scene.write("/ada/big", b"x" * (25 * MEBIBYTE + 1))
    assert isinstance(result, FileRefusal)
    assert (result.code, result.status) == (FileCode.TOO_LARGE, 413)
    assert scene.on_disk() == 0
    declared = await scene.files.write("/ada/big", ADA, pieces(b""), declared_bytes=25 * MEBIBYTE + 1)
    assert code(declared) is FileCode.TOO_LARGE
    assert code(await scene.files.stat("/ada/big", ADA)) is FileCode.NOT_FOUND


async def test_an_upload_that_breaks_off_or_is_cancelled_leaves_nothing(scene: Scene) -> None:
    begun = asyncio.Event()

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * MEBIBYTE
        raise ConnectionResetError

    async def hanging() -> AsyncIterator[bytes]:
        yield b"x" * MEBIBYTE
        begun.set()
        await asyncio.Event().wait()

    with pytest.raises(ConnectionResetError):
        await scene.files.write("/ada/a", ADA, breaking())
    task = asyncio.create_task(scene.files.write("/ada/a", ADA, hanging()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scene.on_disk() == 0


async def test_the_same_content_is_kept_once_and_freed_with_its_last_reference(scene: Scene) -> None:
    await scene.written("/ada/a", b"same")
    await scene.written("/bob/b", b"same", BOB)
    assert scene.on_disk() == 1
    await scene.files.remove("/ada/a", ADA)
    assert await scene.content("/bob/b", BOB) == b"same"
    await scene.written("/bob/b", b"other", BOB, collide=Collide.OVERWRITE)
    assert scene.on_disk() == 1
    await scene.files.remove("/bob", BOB, recursive=True)
    assert scene.on_disk() == 0


async def test_what_is_being_read_is_read_to_its_end_though_it_is_removed(scene: Scene) -> None:
    await scene.written("/ada/a", b"last words")
    reading = await scene.files.read("/ada/a", ADA)
    assert isinstance(reading, Reading)
    await scene.files.remove("/ada/a", ADA)
    assert b"".join([piece async for piece in reading]) == b"last words"


async def test_a_start_removes_what_a_crash_left_and_keeps_what_is_referred_to(folder: Path) -> None:
    before = Scene(folder)
    await before.written("/ada/a", b"kept")
    half, orphan = before.blobs.begin(), before.blobs.begin()
    half.write(b"half")
    half.finish()
    orphan.write(b"orphan")
    before.blobs.keep(orphan)
    await before.files.close()
    after = Scene(folder)
    assert await after.files.start() == 2
    assert await after.content("/ada/a") == b"kept"
    assert after.on_disk() == 1
    await after.files.close()


async def test_content_that_somebody_deleted_is_said_to_be_corrupt(scene: Scene) -> None:
    entry = await scene.written("/ada/a")
    assert entry.digest is not None
    scene.blobs.discard(entry.digest)
    assert code(await scene.files.read("/ada/a", ADA)) is FileCode.CORRUPT


# Paths


@pytest.mark.parametrize(
    "path",
    [
        "",
        "ada/a",
        "/ada/../bob/a",
        "/ada/./a",
        "/ada//a",
        "/ada/",
        "//",
        "/ada/%2e%2e/bob",
        "/ada/..%2fbob",
        "/ada\\..\\bob",
        "/ada/a\x00",
        "/ada/a\n",
        "/ada/é",
        "/ada/" + "a" * 256,
        "/ada" + "/a" * 600,
    ],
)
async def test_a_path_that_could_lead_out_is_refused(scene: Scene, path: str) -> None:
    assert code(await scene.write(path)) is FileCode.INVALID_INPUT
    assert code(await scene.files.read(path, DIANA)) is FileCode.INVALID_INPUT
    assert code(await scene.files.listing(path, DIANA)) is FileCode.INVALID_INPUT
    assert scene.on_disk() == 0


@settings(deadline=None)
@given(st.text(alphabet="/.a %-_\\\x00é", max_size=30))
def test_a_path_is_taken_as_it_is_or_refused(text: str) -> None:
    path = parse_path(text)
    if not isinstance(path, FileRefusal):
        assert path == text
        assert path == "/" or not {"", ".", ".."} & set(path[1:].split("/"))


async def test_the_root_and_homes_are_no_files(scene: Scene) -> None:
    assert code(await scene.write("/", viewer=DIANA)) is FileCode.INVALID_INPUT
    assert code(await scene.write("/ada")) is FileCode.IS_A_DIRECTORY
    assert code(await scene.files.remove("/", DIANA, recursive=True)) is FileCode.INVALID_INPUT


@pytest.mark.parametrize("media_type", ["text", "text/plain\r\nx: y", "text/html; charset=utf-8\n", "x" * 300 + "/y"])
async def test_a_media_type_that_is_none_is_refused(scene: Scene, media_type: str) -> None:
    result = await scene.files.write("/ada/a", ADA, pieces(b"x"), media_type=media_type)
    assert code(result) is FileCode.INVALID_INPUT


# Permissions


async def test_others_may_not_write_read_or_list_and_learn_nothing(scene: Scene) -> None:
    await scene.written("/ada/a")
    for path in ("/ada/a", "/ada/nothing"):
        assert code(await scene.write(path, viewer=BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.read(path, BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.stat(path, BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.listing(path, BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.remove(path, BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.move(path, "/bob/a", BOB)) is FileCode.FORBIDDEN
        assert code(await scene.files.make_folder(path, BOB)) is FileCode.FORBIDDEN
    assert code(await scene.files.everything(ADA)) is FileCode.FORBIDDEN
    assert await scene.content("/ada/a", DIANA) == b"hello"
    assert names(await scene.files.everything(DIANA)) == ["/ada/a"]


async def test_recipients_of_a_message_may_read_what_is_attached_and_nothing_else(scene: Scene) -> None:
    await scene.written("/ada/a.txt", b"for bob")
    await scene.written("/ada/b.txt")
    attached = await scene.files.attach(["/ada/a.txt"], ADA)
    assert attached == (Attachment("/ada/a.txt", "a.txt", 7, "text/plain"),)
    await scene.files.share(["/ada/a.txt"], ["bob"], "message-1")
    assert await scene.content("/ada/a.txt", BOB) == b"for bob"
    assert names(await scene.files.shared(BOB)) == ["/ada/a.txt"]
    assert code(await scene.files.read("/ada/b.txt", BOB)) is FileCode.FORBIDDEN
    assert code(await scene.files.read("/ada/a.txt", EVE)) is FileCode.FORBIDDEN
    assert code(await scene.write("/ada/a.txt", viewer=BOB, collide=Collide.OVERWRITE)) is FileCode.FORBIDDEN
    await scene.files.unshare("message-1", "bob")
    assert code(await scene.files.read("/ada/a.txt", BOB)) is FileCode.FORBIDDEN


async def test_what_everybody_was_shown_everybody_reads(scene: Scene) -> None:
    await scene.written("/ada/a")
    await scene.files.share(["/ada/a", "/ada/missing"], [EVERYBODY], "message-1")
    assert names(await scene.files.shared(EVE)) == ["/ada/a"]
    assert names(await scene.files.shared(ADA)) == []


@pytest.mark.skipif(on_postgres(), reason="it looks into the file; tests/stores/test_postgres_files.py has it too")
async def test_shares_that_are_permanent_count_once(scene: Scene) -> None:
    await scene.written("/ada/a")
    for via in ("one", "two"):
        await scene.files.share(["/ada/a"], ["bob"], via)
        await scene.files.make_permanent(via, "bob")
    await scene.files.share(["/ada/a"], ["bob"], "three")
    await scene.files.unshare("three", "bob")
    assert names(await scene.files.shared(BOB)) == ["/ada/a"]
    database = sqlite3.connect(scene.folder / FILES_FILE)
    assert database.execute("SELECT count(*) FROM share").fetchone() == (1,)
    database.close()


async def test_a_share_moves_with_its_file_and_ends_with_it(scene: Scene) -> None:
    await scene.written("/ada/a", b"1")
    await scene.files.share(["/ada/a"], ["bob"], "message-1")
    await scene.files.move("/ada/a", "/ada/b", ADA)
    assert await scene.content("/ada/b", BOB) == b"1"
    await scene.files.remove("/ada/b", ADA)
    await scene.written("/ada/b", b"private")
    assert code(await scene.files.read("/ada/b", BOB)) is FileCode.FORBIDDEN


async def test_only_what_is_there_and_may_be_read_can_be_attached(scene: Scene) -> None:
    await scene.written("/ada/a")
    assert code(await scene.files.attach(["/ada/a"], BOB)) is FileCode.FORBIDDEN
    assert code(await scene.files.attach(["/ada/missing"], ADA)) is FileCode.INVALID_INPUT
    assert code(await scene.files.attach(["/ada"], ADA)) is FileCode.INVALID_INPUT


async def test_files_of_an_objective_are_for_those_who_take_part_in_it(scene: Scene) -> None:
    await scene.written("/ada/spec.md", b"spec")
    copied = await scene.files.mirror(["/ada/spec.md", "/ada/spec.md"], "obj-1", ADA)
    assert not isinstance(copied, FileRefusal)
    assert [one.path for one in copied] == ["/objectives/obj-1/spec.md", "/objectives/obj-1/spec-1.md"]
    assert scene.on_disk() == 1
    await scene.files.remove("/ada/spec.md", ADA)
    inside = Viewer("bob", groups=frozenset({"obj:obj-1"}))
    assert await scene.content("/objectives/obj-1/spec.md", inside) == b"spec"
    assert (await scene.written("/objectives/obj-1/more", b"x", inside)).owner == "bob"
    assert len(names(await scene.files.listing("/objectives/obj-1", inside))) == 3
    for path in ("/objectives/obj-1/spec.md", "/objectives", "/objectives/obj-2/x"):
        assert code(await scene.files.stat(path, Viewer("objectives"))) is FileCode.FORBIDDEN
        assert code(await scene.files.stat(path, EVE)) is FileCode.FORBIDDEN
    assert (objective_of("/objectives/obj-1/a/b"), objective_of("/ada/obj-1")) == ("obj-1", None)


async def test_who_takes_part_in_an_objective_adds_files_and_changes_its_own_alone(scene: Scene) -> None:
    await scene.written("/ada/spec.md", b"spec")
    await scene.files.mirror(["/ada/spec.md"], "obj-1", ADA)
    inside, boss = Viewer("bob", groups=frozenset({"obj:obj-1"})), Viewer("boss", manages=True)
    await scene.written("/objectives/obj-1/more", b"x", inside)
    spec = "/objectives/obj-1/spec.md"
    assert code(await scene.files.remove(spec, inside)) is FileCode.FORBIDDEN
    assert code(await scene.files.remove("/objectives/obj-1", inside, recursive=True)) is FileCode.FORBIDDEN
    assert code(await scene.files.move(spec, "/bob/spec.md", inside)) is FileCode.FORBIDDEN
    assert code(await scene.write(spec, b"y", inside, collide=Collide.OVERWRITE)) is FileCode.FORBIDDEN
    assert await scene.content(spec, inside) == b"spec"
    await scene.written("/objectives/obj-1/more", b"y", inside, collide=Collide.OVERWRITE)
    assert await scene.files.remove("/objectives/obj-1/more", inside) is None
    assert await scene.files.remove(spec, boss) is None


async def test_a_member_that_is_gone_leaves_nothing_to_who_gets_its_name(scene: Scene) -> None:
    await scene.written("/ada/a")
    await scene.written("/bob/b", b"b", BOB)
    await scene.files.share(["/bob/b"], ["ada"], "message-1")
    await scene.files.forget("ada")
    assert names(await scene.files.listing("/ada", ADA)) == []
    assert code(await scene.files.read("/bob/b", ADA)) is FileCode.FORBIDDEN
    assert scene.on_disk() == 1


# Folders


async def test_folders_are_made_one_by_one_or_all_at_once(scene: Scene) -> None:
    assert code(await scene.files.make_folder("/ada/x/y", ADA)) is FileCode.NOT_FOUND
    made = await scene.files.make_folder("/ada/x/y", ADA, recursive=True)
    assert isinstance(made, FileEntry)
    assert await scene.files.make_folder("/ada/x/y", ADA) == made
    await scene.written("/ada/f")
    assert code(await scene.files.make_folder("/ada/f", ADA)) is FileCode.NOT_A_DIRECTORY
    assert code(await scene.write("/ada/f/g")) is FileCode.NOT_A_DIRECTORY
    assert code(await scene.write("/ada/x", collide=Collide.OVERWRITE)) is FileCode.IS_A_DIRECTORY
    assert code(await scene.files.read("/ada/x", ADA)) is FileCode.IS_A_DIRECTORY
    assert code(await scene.files.listing("/ada/f", ADA)) is FileCode.NOT_A_DIRECTORY


async def test_a_folder_with_something_in_it_is_removed_only_as_a_whole(scene: Scene) -> None:
    await scene.written("/ada/x/a")
    await scene.written("/ada/x-ray", b"stays")
    refused = await scene.files.remove("/ada/x", ADA)
    assert isinstance(refused, FileRefusal)
    assert (refused.code, refused.status) == (FileCode.NOT_EMPTY, 409)
    assert await scene.files.remove("/ada/x", ADA, recursive=True) is None
    assert names(await scene.files.listing("/ada", ADA)) == ["/ada/x-ray"]
    assert code(await scene.files.remove("/ada/x", ADA)) is FileCode.NOT_FOUND


async def test_a_folder_moves_with_all_that_is_in_it(scene: Scene) -> None:
    await scene.written("/ada/x/y/a", b"a")
    await scene.written("/ada/b")
    assert code(await scene.files.move("/ada/x", "/ada/x/y/z", ADA)) is FileCode.INVALID_INPUT
    assert code(await scene.files.move("/ada/x", "/ada/b", ADA)) is FileCode.EXISTS
    assert code(await scene.files.move("/ada/none", "/ada/c", ADA)) is FileCode.NOT_FOUND
    moved = await scene.files.move("/ada/x", "/ada/new/x", ADA)
    assert isinstance(moved, FileEntry)
    assert moved.path == "/ada/new/x"
    assert await scene.content("/ada/new/x/y/a") == b"a"
    assert names(await scene.files.listing("/ada", ADA)) == ["/ada/new", "/ada/b"]


async def test_a_home_has_limits(folder: Path) -> None:
    scene = Scene(folder, FileLimits(entries_max=3, home_bytes_max=10))
    await scene.written("/ada/a", b"12345678")
    assert code(await scene.write("/ada/b", b"123")) is FileCode.TOO_LARGE
    await scene.written("/ada/b", b"1")
    assert code(await scene.write("/ada/c", b"1")) is FileCode.TOO_LARGE
    await scene.written("/ada/a", b"1234", collide=Collide.OVERWRITE)
    assert scene.on_disk() == 2
    await scene.files.close()


async def test_what_a_member_wrote_does_not_act_as_a_page_of_the_hub(scene: Scene) -> None:
    headers = reading_headers(await scene.written("/ada/a b.html"))
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.html; filename=\"a b.html\""
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("sandbox")
