"""Tests of joining a hub again: the stored token goes only to the certificate that it was stored with."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest
import typer

from tests.server.hubs import ALONE, running_hub
from tieline.client import connect
from tieline.protocols.backchannel.commands import joining
from tieline.protocols.backchannel.commands.joining import init, join
from tieline.protocols.backchannel.identity import Identity, read_identity, save_identity
from tieline.protocols.backchannel.invite import Invite, encode_invite

OLD, NEW = "aa" * 32, "bb" * 32


@pytest.mark.parametrize(("before", "now"), [(OLD, NEW), (OLD, None), (None, NEW)])
def test_the_stored_token_is_not_sent_to_another_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str | None, now: str | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        stored = Identity("bob", url, "bobs-token", url, None, before)
        save_identity(tmp_path, stored)
        with pytest.raises(typer.Exit) as ended:
            join(encode_invite(Invite(url, "tie_x", fingerprint=now)), member="bob", spool=tmp_path)
        assert ended.value.exit_code == 3
        with pytest.raises(BlockingIOError):
            listener.accept()
    said = " ".join(capsys.readouterr().err.split())
    for part in (before or "an authority", now or "an authority", "--new-certificate"):
        assert part in said
    assert read_identity(tmp_path) == stored


def test_the_same_certificate_may_be_spelled_in_another_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
    save_identity(tmp_path, Identity("bob", url, "bobs-token", url, None, OLD))
    with pytest.raises(typer.Exit) as ended:
        join(encode_invite(Invite(url, "tie_x", fingerprint=OLD.upper())), member="bob", spool=tmp_path)
    assert ended.value.exit_code == 4
    assert "no relay answers" in capsys.readouterr().err


async def test_a_new_certificate_is_trusted_if_the_user_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_hub(*_: object) -> bool:
        return True

    # A session of the SDK would outlive the event loop of the command, which usually ends with its process.
    monkeypatch.setattr(joining, "_is_hub", is_hub)
    monkeypatch.setenv("BACKCHANNEL_HOME", str(tmp_path))
    speaks = {**ALONE, "backchannel": True}
    async with running_hub(folder, **speaks, flags={"http": {"tls": True}}) as there:
        url, fingerprint = there.running.http, there.running.fingerprint
        async with await connect(home=folder) as operator:
            secret = (await operator.invite(member="bob")).secret
        text = encode_invite(Invite(url, secret, fingerprint=fingerprint))
        await asyncio.to_thread(join, text, member="bob", spool=tmp_path)
        joined = read_identity(tmp_path)
        assert joined.fingerprint == fingerprint
        # As if the hub had had another certificate before.
        outdated = msgspec.structs.replace(joined, fingerprint=OLD)
        again = {"member": "bob", "home": None, "url": there.running.pinned, "token": None, "token_file": None}
        for command in (
            lambda **more: join(text, member="bob", spool=tmp_path, **more),
            lambda **more: init(**again, spool=None, **{"new_certificate": False, **more}),
        ):
            save_identity(tmp_path, outdated)
            with pytest.raises(typer.Exit):
                await asyncio.to_thread(command)
            assert read_identity(tmp_path) == outdated
            await asyncio.to_thread(command, new_certificate=True)
            assert read_identity(tmp_path) == joined


@pytest.mark.parametrize(("new_certificate", "fingerprint"), [(True, None), (False, OLD)])
async def test_a_new_certificate_may_be_one_of_an_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_certificate: bool, fingerprint: str | None
) -> None:
    asked: list[str | None] = []

    async def register(_link: object, _stored: object, invited: Invite, *_: object, **__: object) -> None:
        asked.append(invited.fingerprint)

    monkeypatch.setattr(joining, "_register", register)
    monkeypatch.setenv("BACKCHANNEL_HOME", str(tmp_path))
    save_identity(tmp_path, Identity("bob", "https://hub.example", "tie_x", "https://hub.example", None, OLD))
    options = {"home": None, "url": "https://hub.example", "token": None, "token_file": None, "spool": None}
    await asyncio.to_thread(init, member="bob", **options, new_certificate=new_certificate)
    assert asked == [fingerprint]
