"""Tests of Unix sockets on both event loops: stale files are replaced, live ones stay, permissions are not too wide."""

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import cast

import pytest

from tieline.wire import unix
from tieline.wire.unix import PATH_BYTES_MAX, SocketCheckTimeout, SocketInUse, SocketPathTooLong, listen, peer_uid


class Greeter(asyncio.Protocol):
    """Test double: a server's connection that sends hello and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        greeted = cast("asyncio.Transport", transport)
        greeted.write(b"hello")
        greeted.close()


async def greeting(path: Path) -> bytes:
    """Connect to a socket and read until the other end closes. Return the bytes."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        return await reader.read()
    finally:
        writer.close()


def leave_dead_socket(path: Path) -> None:
    """Create the socket file that a crashed server leaves."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))


async def test_a_listener_is_reachable_at_its_path(folder: Path) -> None:
    server = await listen(folder / "a.sock", Greeter)
    assert server.is_serving()
    assert await greeting(folder / "a.sock") == b"hello"
    server.close()
    await server.wait_closed()
    assert not server.is_serving()


async def test_missing_folders_are_made(folder: Path) -> None:
    server = await listen(folder / "some" / "where" / "a.sock", Greeter)
    assert await greeting(folder / "some" / "where" / "a.sock") == b"hello"
    server.close()


async def test_closing_removes_the_socket_file_and_nothing_is_left_over(folder: Path) -> None:
    server = await listen(folder / "a.sock", Greeter)
    assert [entry.name for entry in folder.iterdir()] == ["a.sock"]
    server.close()
    server.close()
    await server.wait_closed()
    assert list(folder.iterdir()) == []


async def test_closing_leaves_accepted_connections_open(folder: Path) -> None:
    accepted: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Accept(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(cast("asyncio.Transport", transport))

    server = await listen(folder / "a.sock", Accept)
    reader, writer = await asyncio.open_unix_connection(folder / "a.sock")
    transport = await accepted
    server.close()
    transport.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    transport.close()
    writer.close()
    await server.wait_closed()


async def test_retiring_lets_connections_on_their_way_arrive_and_hears_no_more(folder: Path) -> None:
    server = await listen(folder / "a.sock", Greeter)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.fspath(folder / "a.sock"))
        await server.retire()
        assert list(folder.iterdir()) == []
        assert not server.is_serving()
        client.settimeout(5)
        assert await asyncio.to_thread(client.recv, 100) == b"hello"
    await server.wait_closed()


async def test_a_socket_nobody_listens_behind_is_replaced(folder: Path) -> None:
    leave_dead_socket(folder / "a.sock")
    server = await listen(folder / "a.sock", Greeter)
    assert await greeting(folder / "a.sock") == b"hello"
    server.close()


async def test_a_plain_file_in_the_way_is_replaced(folder: Path) -> None:
    (folder / "a.sock").write_text("not a socket")
    server = await listen(folder / "a.sock", Greeter)
    assert await greeting(folder / "a.sock") == b"hello"
    server.close()


async def test_a_folder_in_the_way_is_an_error_and_stays(folder: Path) -> None:
    (folder / "a.sock").mkdir()
    with pytest.raises(IsADirectoryError):
        await listen(folder / "a.sock", Greeter)
    assert [entry.name for entry in folder.iterdir()] == ["a.sock"]


async def test_a_live_socket_is_in_use_and_goes_on_working(folder: Path) -> None:
    server = await listen(folder / "a.sock", Greeter)
    with pytest.raises(SocketInUse) as caught:
        await listen(folder / "a.sock", Greeter)
    assert str(caught.value) == f"Socket already in use: {folder / 'a.sock'}"
    assert await greeting(folder / "a.sock") == b"hello"
    server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses, and looks stale")
async def test_a_listener_that_neither_accepts_nor_refuses_times_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "STALE_CHECK_SECONDS", 0.05)
    path = folder / "a.sock"
    with socket.socket(socket.AF_UNIX) as hung, socket.socket(socket.AF_UNIX) as waiting:
        hung.bind(os.fspath(path))
        hung.listen(0)
        waiting.connect(os.fspath(path))
        with pytest.raises(SocketCheckTimeout) as caught:
            await listen(path, Greeter)
    assert str(caught.value) == f"Timeout checking stale socket: {path}"
    assert path.is_socket()


async def test_a_socket_of_another_kind_is_reported_and_stays(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(os.fspath(folder / "a.sock"))
        with pytest.raises(OSError, match=r"a\.sock") as caught:
            await listen(folder / "a.sock", Greeter)
        assert caught.value.errno == errno.EPROTOTYPE
    assert (folder / "a.sock").is_socket()


async def test_with_a_mode_the_socket_file_has_exactly_that_mode(folder: Path) -> None:
    for mode in (0o600, 0o660, 0o666):
        server = await listen(folder / "a.sock", Greeter, mode=mode)
        assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == mode
        server.close()


async def test_without_a_mode_the_umask_decides(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        server = await listen(folder / "a.sock", Greeter)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o750
    server.close()


async def test_the_path_appears_only_when_it_has_its_mode_and_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "a.sock"
    before = os.umask(0)
    os.umask(before)
    seen: list[tuple[int, int]] = []
    rename = os.rename

    def watch(bound: str, target: Path) -> None:
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as early:
            seen.append((stat.S_IMODE(Path(bound).stat().st_mode), early.connect_ex(bound)))
        rename(bound, target)

    monkeypatch.setattr(os, "rename", watch)
    server = await listen(path, Greeter, mode=0o600)
    assert seen == [(0o600, 0)]
    assert os.umask(before) == before, "the umask belongs to the whole process and is left alone"
    server.close()


async def test_a_leftover_temporary_name_is_passed_over(folder: Path) -> None:
    leave_dead_socket(folder / ".0")
    server = await listen(folder / "a.sock", Greeter)
    assert await greeting(folder / "a.sock") == b"hello"
    server.close()
    assert [entry.name for entry in folder.iterdir()] == [".0"]


async def test_closing_leaves_a_socket_that_another_server_put_there(folder: Path) -> None:
    first = await listen(folder / "a.sock", Greeter)
    (folder / "a.sock").unlink()
    second = await listen(folder / "a.sock", Greeter)
    first.close()
    assert await greeting(folder / "a.sock") == b"hello"
    second.close()


async def test_many_listeners_start_in_one_folder_at_once(folder: Path) -> None:
    paths = [folder / f"{number}.sock" for number in range(20)]
    servers = await asyncio.gather(*(listen(path, Greeter) for path in paths))
    assert await asyncio.gather(*map(greeting, paths)) == [b"hello"] * 20
    for server in servers:
        server.close()
    assert list(folder.iterdir()) == []


async def test_a_path_of_the_longest_length_works_and_one_byte_more_is_refused_with_its_length(folder: Path) -> None:
    longest = folder / ("x" * (PATH_BYTES_MAX - len(os.fsencode(folder)) - 1))
    server = await listen(longest, Greeter)
    assert await greeting(longest) == b"hello"
    server.close()
    too_long = Path(f"{longest}x")
    with pytest.raises(SocketPathTooLong, match=f"has {PATH_BYTES_MAX + 1} bytes.* holds {PATH_BYTES_MAX}"):
        await listen(too_long, Greeter)
    assert list(folder.iterdir()) == []


async def test_a_name_too_short_for_its_temporary_name_is_refused_with_the_same_sentence(folder: Path) -> None:
    deep = folder / ("d" * (PATH_BYTES_MAX - len(os.fsencode(folder)) - 3))
    with pytest.raises(SocketPathTooLong, match=f"holds {PATH_BYTES_MAX}"):
        await listen(deep / "a", Greeter)


async def test_the_peer_of_a_unix_socket_has_a_uid_and_a_tcp_peer_has_none(folder: Path) -> None:
    uids: asyncio.Queue[int | None] = asyncio.Queue()

    class Ask(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            uids.put_nowait(peer_uid(transport))
            transport.close()

    server = await listen(folder / "a.sock", Ask)
    _, writer = await asyncio.open_unix_connection(folder / "a.sock")
    assert await uids.get() == os.getuid()
    writer.close()
    server.close()
    tcp = await asyncio.get_running_loop().create_server(Ask, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*tcp.sockets[0].getsockname())
    assert await uids.get() is None
    writer.close()
    tcp.close()


async def test_when_every_temporary_name_is_left_over_it_says_so_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "_TEMPORARY_NAMES", 2)
    for name in (".0", ".1"):
        leave_dead_socket(folder / name)
    with pytest.raises(FileExistsError, match="2 leftover socket names; remove them"):
        await listen(folder / "a.sock", Greeter)
    assert sorted(entry.name for entry in folder.iterdir()) == [".0", ".1"]


async def test_a_start_that_is_cancelled_leaves_no_socket(folder: Path) -> None:
    starting = asyncio.create_task(listen(folder / "a.sock", Greeter))
    while not (folder / "a.sock").exists():  # noqa: ASYNC110 - nobody tells that the file is there
        await asyncio.sleep(0)
    if starting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await starting
    else:
        # uvloop starts in one turn, so nobody can come between.
        (await starting).close()
    assert list(folder.iterdir()) == []


class MacTransport(asyncio.BaseTransport):
    """Test double: a connection on macOS, which has its own socket option for the peer's user."""

    family = socket.AF_UNIX

    def __init__(self, told: bytes | OSError) -> None:
        super().__init__({"socket": self})
        self._told = told

    def getsockopt(self, *option: int) -> bytes:
        assert option == (0, 1, 76)
        if isinstance(self._told, OSError):
            raise self._told
        return self._told


@pytest.mark.parametrize(
    ("told", "uid"),
    [
        (struct.pack("IIhxx16I", 0, 501, 1, *range(16)), 501),
        (b"", None),
        (OSError(errno.EINVAL, "it is gone"), None),
    ],
    ids=["a user", "nothing", "an error"],
)
def test_on_macos_the_peer_is_asked_for_in_another_way(
    monkeypatch: pytest.MonkeyPatch, told: bytes | OSError, uid: int | None
) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    assert peer_uid(MacTransport(told)) == uid
