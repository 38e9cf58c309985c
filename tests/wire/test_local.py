"""Tests of local addresses: names of Windows pipes, and pipes on systems that have none."""

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path, PureWindowsPath

import pytest

from tieline.wire.local import PIPE_PREFIX, PipesNotOffered, listen, pipe_name, same_user

PIPE = Path(PIPE_PREFIX + "agent-relay")


class Listened(asyncio.Protocol):
    """Test double: a connection that records if its peer belongs to the same user."""

    def __init__(self) -> None:
        self.same_user: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.same_user.set_result(same_user(transport))
        transport.close()


@pytest.mark.parametrize("path", [PIPE, Path("/some/where") / PIPE, PIPE.absolute()])
def test_the_name_of_a_pipe_is_known_even_behind_a_folder(path: Path) -> None:
    assert pipe_name(path) == "\\\\.\\pipe\\agent-relay"


def test_a_pipe_keeps_its_name_on_windows() -> None:
    assert str(PureWindowsPath(PIPE_PREFIX + "agent-relay")) == "\\\\.\\pipe\\agent-relay"


@pytest.mark.parametrize("path", ["/run/agent-relay.sock", "relay.sock", "pipe", "\\\\.\\pipe", PIPE_PREFIX, "."])
def test_any_other_address_is_a_path(path: str) -> None:
    assert pipe_name(Path(path)) is None


async def test_a_pipe_where_there_are_none_is_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(PipesNotOffered, match="give the path of a Unix socket"):
        await listen(folder / PIPE, asyncio.Protocol)
    assert list(folder.iterdir()) == []


async def test_a_pipe_is_served_by_the_loop_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    class PipeServer:
        def close(self) -> None:
            served.append("closed")

    async def start_serving_pipe(factory: Callable[[], asyncio.Protocol], address: str) -> list[PipeServer]:
        assert factory is asyncio.Protocol
        served.append(address)
        return [PipeServer()]

    # No loop of this system has it; on Windows the proactor's does, in this form.
    monkeypatch.setattr(asyncio.get_running_loop(), "start_serving_pipe", start_serving_pipe, raising=False)
    (await listen(PIPE, asyncio.Protocol)).close()
    assert served == [str(PIPE), "closed"]


async def test_a_path_is_a_unix_socket_with_the_mode_that_was_asked_for(folder: Path) -> None:
    path, protocols = folder / "s.sock", list[Listened]()

    def factory() -> Listened:
        protocols.append(Listened())
        return protocols[-1]

    listener = await listen(path, factory, mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reader, writer = await asyncio.open_unix_connection(path)
    assert await reader.read() == b""
    assert await protocols[0].same_user is True
    writer.close()
    listener.close()
    assert not path.exists()
