"""Tests of upkeep: the files of a redacted message are deleted, also when the redaction is repeated."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tieline.contract.hub import MessageRedacted
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message
from tieline.contract.target import to_member
from tieline.services.files.blobs import Blobs
from tieline.services.files.files import Files
from tieline.services.files.tree import FileRefusal, Viewer, Written
from tieline.services.upkeep import Upkeep
from tieline.stores.sqlite.files import SqliteFiles

NOW = 1_800_000_000_000
ADA = Viewer("ada")
PATH = "/ada/key.txt"


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def notice(repeats_ms: int | None) -> MessageRedacted:
    content = Content(target=to_member(MemberName("bob")), body="redacted by operator: a password")
    message = Message(
        id=MessageId("m"), offset=1, sender="ada", protocol="tieline", sent_at_ms=NOW, content=content, wire_id=None
    )
    return MessageRedacted(message, (PATH, "/ada/gone.txt"), repeats_ms)


@pytest.mark.parametrize(
    ("repeats_ms", "is_left"),
    [
        pytest.param(None, False, id="a first redaction"),
        pytest.param(NOW, False, id="repeated, and the file is from before"),
        pytest.param(NOW - 1, True, id="repeated, and another file was written there since"),
    ],
)
async def test_a_file_of_a_redacted_message_is_deleted(folder: Path, repeats_ms: int | None, is_left: bool) -> None:
    files = Files(SqliteFiles(folder, synchronous="OFF"), Blobs(folder / "blobs"), lambda: NOW)
    assert isinstance(await files.write(PATH, ADA, once(b"a secret"), media_type="text/plain"), Written)
    nothing: Any = None
    upkeep = Upkeep(nothing, nothing, files, nothing)
    hear: Callable[[MessageRedacted], None] = upkeep._changed
    hear(notice(repeats_ms))
    await asyncio.wait(upkeep._tasks)
    assert isinstance(await files.stat(PATH, ADA), FileRefusal) is not is_left
    await files.close()
