"""Tests of files over HTTP: home folders, uploads and downloads, limits, unsafe paths, and files of messages."""

import asyncio
import errno
import hashlib
import json
import os
import socket
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.cli.hub_process import HubProcess
from tests.protocols.ac7.teams import Json, Seat, Team, team
from tests.server.hubs import WAIT_SECONDS, until
from tests.stores.postgres_server import in_files
from tieline.contract.limits import MEBIBYTE
from tieline.contract.message import Attachment
from tieline.services.files.blobs import Upload
from tieline.services.files.tree import FileLimits

LARGEST = 25 * MEBIBYTE


class Reply:
    """Answer to an HTTP request, with its body as bytes."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def exchange(seat: Seat, method: str, path: str, body: Any = None) -> Reply:
    connection = HTTPConnection(urlsplit(seat.url).netloc, timeout=WAIT_SECONDS * 3)
    try:
        connection.request(method, path, body, {"authorization": f"Bearer {seat.token}"})
        response = connection.getresponse()
        return Reply(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
    finally:
        connection.close()


async def fetch(seat: Seat, path: str) -> Reply:
    return await asyncio.to_thread(exchange, seat, "GET", f"/fs/read{quote(path)}")


async def write(seat: Seat, path: str, data: bytes = b"hello", query: str = "&mime=text/plain") -> Json:
    reply = await seat.ask("POST", f"/fs/write?path={quote(path)}{query}", data)
    assert reply.status == 200, reply
    entry: Json = reply.value["entry"]
    return entry


async def make_folder(seat: Seat, path: str, **more: bool) -> str:
    reply = await seat.ask("POST", "/fs/mkdir", {"path": path, **more})
    assert reply.status == 200, reply
    made: str = reply.value["entry"]["path"]
    return made


async def paths(seat: Seat, path: str) -> list[str]:
    return [entry["path"] for entry in (await seat.get(path))["entries"]]


def kept(crew: Team) -> list[Path]:
    """Return all stored content files of the hub, also incomplete ones."""
    # Not all of the home, where other folders come and go meanwhile.
    home = crew.there.home
    return [path for form in ("files/**/*", "*/files/**/*") for path in home.glob(form) if path.is_file()]


async def test_a_member_keeps_files_in_its_own_home(crew: Team) -> None:
    ann, bob, boss = await crew.seat("ann"), await crew.seat("bob"), await crew.seat("boss", "members.manage")
    entry = await write(ann, "/ann/notes/a b.txt")
    assert (entry["name"], entry["kind"], entry["owner"], entry["size"]) == ("a b.txt", "file", "ann", 5)
    assert (entry["mimeType"], entry["hash"]) == ("text/plain", hashlib.sha256(b"hello").hexdigest())
    assert await paths(ann, "/fs/ls?path=/ann") == ["/ann/notes"]
    assert (await ann.get("/fs/stat?path=/ann/notes"))["entry"]["kind"] == "directory"
    reply = await fetch(ann, "/ann/notes/a b.txt")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"hello", "text/plain")
    assert "sandbox" in reply.headers["content-security-policy"]
    for seat, status in ((bob, 403), (boss, 200), (crew.stranger, 401)):
        assert (await fetch(seat, "/ann/notes/a b.txt")).status == status
    assert (await bob.ask("POST", "/fs/write?path=/ann/x", b"x")).status == 403
    assert await bob.refused(403, "GET", "/fs/stat?path=/ann/nothing"), "the same whether it is there or not"
    assert await paths(boss, "/fs/all") == ["/ann/notes/a b.txt"]
    assert await bob.refused(403, "GET", "/fs/all")


async def test_a_member_has_a_home_as_soon_as_it_looks_for_it(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    assert (await ann.get("/fs/stat?path=/ann"))["entry"]["kind"] == "directory"
    assert await paths(bob, "/fs/ls") == ["/bob"]


async def test_folders_are_made_moved_and_removed(crew: Team) -> None:
    ann = await crew.seat("ann")
    assert await make_folder(ann, "/ann/a") == "/ann/a"
    assert await ann.refused(404, "POST", "/fs/mkdir", {"path": "/ann/b/c"})
    await make_folder(ann, "/ann/b/c", recursive=True)
    await write(ann, "/ann/a/x")
    moved = await ann.ask("POST", "/fs/mv", {"from": "/ann/a", "to": "/ann/d"})
    assert (moved.status, moved.value["entry"]["path"]) == (200, "/ann/d")
    assert await ann.refused(409, "POST", "/fs/mv", {"from": "/ann/d", "to": "/ann/b"})
    assert await ann.refused(409, "DELETE", "/fs/rm?path=/ann/d")
    assert (await ann.ask("DELETE", "/fs/rm?path=/ann/d&recursive=true")).status == 204
    assert await ann.refused(404, "GET", "/fs/stat?path=/ann/d/x")
    assert kept(crew) == []


async def test_a_file_that_is_there_already_is_an_error_unless_told(crew: Team) -> None:
    ann = await crew.seat("ann")
    await write(ann, "/ann/a.txt", b"one")
    reply = await ann.ask("POST", "/fs/write?path=/ann/a.txt", b"two")
    assert (reply.status, reply.value["code"]) == (409, "exists")
    reply = await ann.ask("POST", "/fs/write?path=/ann/a.txt&collide=suffix", b"two")
    assert (reply.value["renamed"], reply.value["entry"]["path"]) == (True, "/ann/a-1.txt")
    assert (await write(ann, "/ann/a.txt", b"three", "&collide=overwrite"))["size"] == 5
    assert (await fetch(ann, "/ann/a.txt")).body == b"three"
    assert len(kept(crew)) == 2, "what was overwritten is gone"
    assert (await ann.ask("POST", "/fs/write?path=/ann/a.txt&collide=maybe", b"x")).status == 400


async def test_the_same_bytes_are_kept_once_and_freed_with_their_last_reference(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    await write(ann, "/ann/a", b"same")
    await write(bob, "/bob/b", b"same")
    assert len(kept(crew)) == 1
    await ann.ask("DELETE", "/fs/rm?path=/ann/a")
    assert len(kept(crew)) == 1
    assert (await fetch(bob, "/bob/b")).body == b"same"
    await bob.ask("DELETE", "/fs/rm?path=/bob/b")
    assert kept(crew) == []


@pytest.mark.parametrize(
    "path",
    [
        "/ann/../bob/secret",
        "/ann/..",
        "/../etc/passwd",
        "/ann/./x",
        "ann/x",
        "//bob/secret",
        "/ann//x",
        "/ann/%2e%2e/bob/secret",
        "/ann/\x00",
        "/ann/x\n",
        "/ann/\\..\\x",
        "/",
        "/" + "a" * 1025,
    ],
)
async def test_no_path_leads_out_of_the_homes(crew: Team, path: str) -> None:
    ann = await crew.seat("ann")
    asked = quote(path, safe="")
    assert (await ann.ask("POST", f"/fs/write?path={asked}", b"x")).status == 400
    assert (await ann.ask("GET", f"/fs/stat?path={asked}")).status == 400
    assert (await ann.ask("DELETE", f"/fs/rm?path={asked}&recursive=1")).status == 400
    rest = path.lstrip("/")
    for form in (quote(rest), quote(rest, safe=""), quote(quote(rest, safe="")), rest if rest.isprintable() else ""):
        reply = await asyncio.to_thread(exchange, ann, "GET", f"/fs/read/{form}")
        assert reply.status in {400, 401, 403, 404}, form
        assert b"secret" not in reply.body or b"error" in reply.body
    assert kept(crew) == []


async def test_a_link_in_the_folder_of_contents_is_not_followed(crew: Team, tmp_path: Path) -> None:
    ann = await crew.seat("ann")
    await write(ann, "/ann/a", b"mine")
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    (content,) = kept(crew)
    content.unlink()
    content.symlink_to(outside)
    reply = await fetch(ann, "/ann/a")
    assert (reply.status, b"secret" in reply.body) == (503, False)
    assert outside.read_bytes() == b"secret"


@pytest.mark.slow
async def test_25_mib_are_taken_and_one_byte_more_is_refused_with_nothing_left_on_disk(crew: Team) -> None:
    assert FileLimits().file_bytes_max == LARGEST
    ann = await crew.seat("ann")
    data = os.urandom(LARGEST)
    assert (await write(ann, "/ann/large", data, ""))["size"] == LARGEST
    assert (await fetch(ann, "/ann/large")).body == data
    await ann.ask("DELETE", "/fs/rm?path=/ann/large")
    assert kept(crew) == []
    reply = await ann.ask("POST", "/fs/write?path=/ann/large", data + b"x")
    assert (reply.status, reply.value["code"]) == (413, "too_large")
    chunks = (data[start : start + MEBIBYTE] for start in range(0, LARGEST, MEBIBYTE))
    undeclared = (piece for pieces in (chunks, [b"x"]) for piece in pieces)
    refused = await asyncio.to_thread(exchange, ann, "POST", "/fs/write?path=/ann/large", undeclared)
    assert refused.status == 413
    assert kept(crew) == []
    assert await paths(ann, "/fs/ls?path=/ann") == []


async def test_an_upload_that_breaks_off_leaves_nothing_behind(crew: Team) -> None:
    ann = await crew.seat("ann")
    address = urlsplit(ann.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST /fs/write?path=/ann/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ann.token}\r\n"
    writer.write(f"{head}content-length: 2000000\r\n\r\n".encode() + b"x" * 1_000_000)
    await writer.drain()
    await until(lambda: len(kept(crew)) == 1)
    writer.close()
    await until(lambda: kept(crew) == [])
    assert await ann.refused(404, "GET", "/fs/stat?path=/ann/x")


# Files in messages and objectives.


async def test_what_is_attached_to_a_message_is_what_the_store_knows_and_its_recipient_may_read_it(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    await write(ann, "/ann/plan.md", b"the plan")
    lie = {"path": "/ann/plan.md", "name": "harmless", "size": 1, "mimeType": "image/png"}
    result = await ann.push("see", to="bob", attachments=[lie])
    (shown,) = result["message"]["attachments"]
    assert shown == {"path": "/ann/plan.md", "name": "plan.md", "size": 8, "mimeType": "text/plain"}
    assert (await bob.history())[-1]["attachments"] == [shown]
    assert (await fetch(bob, "/ann/plan.md")).body == b"the plan"
    assert await paths(bob, "/fs/shared") == ["/ann/plan.md"]
    assert (await fetch(eve, "/ann/plan.md")).status == 403
    assert await paths(eve, "/fs/shared") == []
    assert (await bob.ask("POST", "/fs/write?path=/ann/plan.md&collide=overwrite", b"x")).status == 403


async def test_what_cannot_be_read_cannot_be_attached(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    await write(bob, "/bob/secret")
    await make_folder(ann, "/ann/folder")
    for path, status in (("/bob/secret", 403), ("/ann/none", 400), ("/ann/folder", 400), ("../x", 400)):
        form = {"body": "x", "to": "bob", "attachments": [{"path": path}]}
        assert await ann.refused(status, "POST", "/push", form)
    assert await bob.said() == []


async def test_a_refused_message_shows_nothing(crew: Team) -> None:
    ann, eve = await crew.seat("ann"), await crew.seat("eve")
    await write(ann, "/ann/a")
    assert await ann.refused(404, "POST", "/push", {"body": "x", "to": "nobody", "attachments": [{"path": "/ann/a"}]})
    await crew.there.add("nobody")
    nobody = Seat(crew.url, "nobody", crew.there.tokens["nobody"])
    for seat in (eve, nobody):
        assert (await fetch(seat, "/ann/a")).status == 403


async def test_a_channels_attachments_are_for_whoever_is_in_it(crew: Team) -> None:
    ann, bob, eve = [await crew.seat(name) for name in ("ann", "bob", "eve")]
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    await write(ann, "/ann/a")
    await ann.push("x", data={"thread": f"chan:{channel['id']}"}, attachments=[{"path": "/ann/a"}])
    assert (await fetch(bob, "/ann/a")).status == 403
    await bob.do("POST", "/channels/dev/members")
    assert (await fetch(bob, "/ann/a")).status == 200
    assert await paths(bob, "/fs/shared") == ["/ann/a"]
    await bob.do("DELETE", "/channels/dev/members/bob")
    for seat in (bob, eve):
        assert (await fetch(seat, "/ann/a")).status == 403
    await write(ann, "/ann/b")
    await ann.push("to all", attachments=[{"path": "/ann/b"}])
    assert (await fetch(eve, "/ann/b")).status == 200


async def test_an_objectives_attachments_are_copies_for_its_thread(crew: Team) -> None:
    ann, bob, eve = (
        await crew.seat("ann", "objectives.create", "objectives.watch"),
        *[await crew.seat(name) for name in ("bob", "eve")],
    )
    await write(ann, "/ann/spec.md", b"spec")
    form: Json = {"title": "t", "outcome": "o", "assignee": "bob", "attachments": [{"path": "/ann/spec.md"}]}
    made = await ann.do("POST", "/objectives", **form)
    (copy,) = made["attachments"]
    assert (copy["name"], copy["size"], copy["path"].startswith("/objectives/")) == ("spec.md", 4, True)
    assert copy["path"] == f"/objectives/{made['id']}/spec.md", "where agents are told to look"
    for seat in (ann, bob):
        assert [one["name"] for one in (await seat.get(f"/fs/ls?path=/objectives/{made['id']}"))["entries"]] == [
            "spec.md"
        ]
    assert (await bob.ask("DELETE", f"/fs/rm?path={copy['path']}")).status == 403, "it is not bob's"
    await ann.ask("DELETE", "/fs/rm?path=/ann/spec.md")
    for seat, status in ((ann, 200), (bob, 200), (eve, 403)):
        assert (await fetch(seat, copy["path"])).status == status
    await ann.do("POST", f"/objectives/{made['id']}/watchers", add=["eve"])
    assert (await fetch(eve, copy["path"])).body == b"spec"
    await ann.do("POST", f"/objectives/{made['id']}/watchers", remove=["eve"])
    assert (await fetch(eve, copy["path"])).status == 403
    await write(bob, "/bob/result", b"done")
    await bob.do("POST", f"/objectives/{made['id']}/discuss", body="see", attachments=[{"path": "/bob/result"}])
    assert (await fetch(ann, "/bob/result")).body == b"done"
    assert (await fetch(eve, "/bob/result")).status == 403
    before = len(kept(crew))
    assert await ann.refused(400, "POST", "/objectives", {**form, "assignee": "no-one", "attachments": [copy]})
    assert len(kept(crew)) == before


async def test_a_removed_members_files_go_with_it_and_its_name_opens_nothing(crew: Team) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "members.manage")
    await write(ann, "/ann/a")
    await write(boss, "/boss/b")
    await boss.push("x", to="ann", attachments=[{"path": "/boss/b"}])
    assert (await boss.ask("DELETE", "/members/ann")).status == 204
    await until(lambda: len(kept(crew)) == 1)
    again = await crew.seat("ann")
    assert await again.refused(404, "GET", "/fs/stat?path=/ann/a")
    assert (await fetch(again, "/boss/b")).status == 403


async def test_files_beside_a_store_that_forgets_are_forgotten(folder: Path) -> None:
    home = folder / "home"
    for _ in range(2):
        async with team(home, store="memory") as crew:
            ann = await crew.seat("ann")
            assert await paths(ann, "/fs/ls?path=/ann") == []
            await write(ann, "/ann/a")
            assert len(kept(crew)) == 1
        assert kept(crew) == []


@in_files
async def test_files_are_there_after_a_restart_and_those_of_who_was_removed_meanwhile_are_not(folder: Path) -> None:
    home = folder / "home"
    async with team(home) as crew:
        ann, bob = await crew.seat("ann"), await crew.seat("bob")
        await write(ann, "/ann/a", b"one")
        await write(bob, "/bob/b", b"two")
        await ann.push("x", to="bob", attachments=[{"path": "/ann/a"}])
    async with team(home, ac7=False) as crew:
        operator = await crew.there.operator()
        await operator.remove_member("bob")
        await crew.there.add("bob")
        new_token = crew.there.tokens["bob"]
    async with team(home) as crew:
        ann, bob = Seat(crew.url, "ann", ann.token), Seat(crew.url, "bob", new_token)
        assert (await fetch(ann, "/ann/a")).body == b"one"
        assert await bob.refused(404, "GET", "/fs/stat?path=/bob/b")
        assert (await fetch(bob, "/ann/a")).status == 403
        assert len(kept(crew)) == 1


async def test_what_is_attached_elsewhere_and_is_no_file_here_is_not_called_one(crew: Team) -> None:
    ann = await crew.seat("ann")
    await crew.seat("bob")
    bob = await crew.there.join("bob")
    here, elsewhere = Attachment("/bob/x"), Attachment("https://example.test/y", "y", 5, "text/plain")
    await bob.send("@ann", "see", attachments=(here, elsewhere))
    (message,) = await ann.history()
    assert message["attachments"] == [
        {"path": "/bob/x", "name": "x", "size": 0, "mimeType": "application/octet-stream"}
    ]
    (other,) = message["data"]["tieline"]["attachments"]
    assert other["path"] == "https://example.test/y"


async def test_a_full_disk_is_said_and_leaves_nothing_behind(crew: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = await crew.seat("ann")

    def full(self: Upload, data: bytes) -> None:
        real(self, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    real = Upload.write
    monkeypatch.setattr(Upload, "write", full)
    assert "No space left" in await ann.refused(503, "POST", "/fs/write?path=/ann/x", b"x" * 100)
    monkeypatch.undo()
    assert kept(crew) == []
    assert (await write(ann, "/ann/x"))["size"] == 5


@pytest.mark.slow
def test_an_upload_that_a_crash_cuts_short_is_gone_at_the_next_start() -> None:
    with HubProcess() as hub:
        token = json.loads(hub.cli("member", "add", "ann", "--json").stdout)["token"]
        ann = Seat(hub.running.http, "ann", token)
        assert exchange(ann, "POST", "/fs/write?path=/ann/whole", b"whole").status == 200
        address = urlsplit(ann.url)
        with socket.create_connection((address.hostname, address.port)) as line:
            head = f"POST /fs/write?path=/ann/half HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
            line.sendall(f"{head}content-length: 2000000\r\n\r\n".encode() + b"x" * 1_000_000)
            incoming = hub.home / "files" / "incoming"
            deadline = time.monotonic() + WAIT_SECONDS
            while not list(incoming.iterdir()):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            hub.kill9()
        hub.start()
        ann.url = hub.running.http
        assert list(incoming.iterdir()) == []
        assert exchange(ann, "GET", "/fs/stat?path=/ann/half").status == 404
        assert exchange(ann, "GET", "/fs/read/ann/whole").body == b"whole"
