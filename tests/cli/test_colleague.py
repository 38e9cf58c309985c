"""Test of a colleague on another machine: a network namespace with an address of its own, and a hub with TLS.

A namespace has its own network, and reaches the hub only over a pair of virtual cables. It needs root.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment
from tieline.client import Client, connect
from tieline.contract.member import ROOM_INVITATION
from tieline.protocols.backchannel.invite import decode_invite, encode_invite

pytestmark = pytest.mark.slow

OUT_SECONDS_MAX = 1.0
"""Longest time from the command that removes a member to the moment when its session is told, on its own machine."""


def _ip(*args: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *args], check=True, capture_output=True, text=True)


def _inside(namespace: str) -> list[str]:
    """Return the beginning of a command in a network namespace. `ip netns exec` also mounts, which a chroot refuses."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


class Elsewhere:
    """Another machine: a network namespace, with a home of its own."""

    def __init__(self, namespace: str, hub_address: str, home: Path) -> None:
        self.namespace = namespace
        self.hub_address = hub_address
        self.home = home

    def command(self, *args: str) -> list[str]:
        """Return the command that runs `tieline` there."""
        return [*_inside(self.namespace), str(TIELINE), *args]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a user there."""
        return environment(self.home, {"BACKCHANNEL_HOME": str(self.home / "spool-home")})

    def again(self, name: str) -> "Elsewhere":
        """Return the same machine for another user there, who has a home of its own and never joined."""
        return Elsewhere(self.namespace, self.hub_address, self.home / name)

    def cli(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """Run `tieline` there and wait for its end. Return the exit code and output."""
        return subprocess.run(
            self.command(*args),
            check=False,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=DEADLINE_SECONDS,
        )


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    number = os.getpid() % 250
    name, here, there = f"tieline-{os.getpid()}", f"tl{os.getpid()}a", f"tl{os.getpid()}b"
    with contextlib.ExitStack() as stack:
        try:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
        # The end of the cable in the namespace goes with it, and then this one too.
        _ip("address", "add", f"10.213.{number}.1/30", "dev", here)
        _ip("link", "set", here, "up")
        for command in (("address", "add", f"10.213.{number}.2/30", "dev", there), ("link", "set", there, "up")):
            _ip(*command, inside=_inside(name))
        folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Elsewhere(name, f"10.213.{number}.1", folder)


def test_a_colleague_elsewhere_joins_over_tls_and_is_out_when_removed(elsewhere: Elsewhere) -> None:
    with HubProcess("--http", f"{elsewhere.hub_address}:0", "--tls") as hub:
        asyncio.run(_meet(hub, elsewhere))


async def _meet(hub: HubProcess, elsewhere: Elsewhere) -> None:
    async with await connect(home=hub.home) as operator:
        await operator.add_member("alice")
        invite = _invite(hub)
        assert decode_invite(invite).url == hub.running.http == hub.running.public

        # Another certificate than the promised one: nothing is sent, and the invitation is not used.
        forged = encode_invite(msgspec.structs.replace(decode_invite(invite), fingerprint="00" * 32))
        refused = elsewhere.cli("join", forged, "--as", "bob")
        assert refused.returncode == 4
        assert "was expected" in refused.stderr
        assert await _uses_left(operator) == [2]

        joined = elsewhere.cli("join", invite, "--as", "bob")
        assert joined.returncode == 0, joined.stderr
        assert await _uses_left(operator) == [1]
        await _talk(hub, elsewhere, operator)
        assert elsewhere.cli("send", "@alice", "still here?").returncode == 3

        # Bob's invitation had a use left, and is no way back, under no name and from no folder.
        assert await _uses_left(operator) == []
        for name in ("bob", "carol"):
            assert elsewhere.again(name).cli("join", invite, "--as", name).returncode == 3

        # A revoked invitation admits nobody either, and who joined before stays.
        invite = _invite(hub)
        assert elsewhere.again("dora").cli("join", invite, "--as", "dora").returncode == 0
        (mine,) = [one.id for one in await operator.invitations() if one.id != ROOM_INVITATION]
        assert hub.cli("invite", "revoke", mine).returncode == 0
        assert elsewhere.again("erik").cli("join", invite, "--as", "erik").returncode == 3
        assert [member.name for member in await operator.members()] == ["alice", "dora"]


def _invite(hub: HubProcess) -> str:
    """Return an invite for two newcomers with any names."""
    invite: str = json.loads(hub.cli("invite", "--json", "--uses", "2").stdout)["invite"]
    return invite


async def _uses_left(operator: Client) -> list[int | None]:
    return [one.uses for one in await operator.invitations() if one.id != ROOM_INVITATION]


async def _talk(hub: HubProcess, elsewhere: Elsewhere, operator: Client) -> None:
    """Let the colleague and alice write to each other. Then remove the colleague, who is told at once."""
    async with await connect(home=hub.home, member="alice", receive=True) as alice:
        assert elsewhere.cli("send", "@alice", "hello from elsewhere").returncode == 0
        assert (await anext(aiter(alice))).message.body == "hello from elsewhere"
        watch = await asyncio.create_subprocess_exec(
            *elsewhere.command("watch"), stdout=PIPE, stderr=PIPE, env=elsewhere.environment
        )
        try:
            await alice.send("@bob", "hello to elsewhere")
            assert watch.stdout is not None
            assert watch.stderr is not None
            async with asyncio.timeout(DEADLINE_SECONDS):
                while b"hello to elsewhere" not in (line := await watch.stdout.readline()):
                    assert line, "the colleague heard nothing"
                removed = time.monotonic()
                await operator.remove_member("bob")
                # The watcher says so as soon as its session is told. Its process ends later.
                told = await watch.stderr.readline()
                seconds = time.monotonic() - removed
                assert told == b"tieline: bob was removed\n"
                assert seconds < OUT_SECONDS_MAX
                assert await watch.wait() == 3
        finally:
            with contextlib.suppress(ProcessLookupError):
                watch.kill()
            await watch.wait()
