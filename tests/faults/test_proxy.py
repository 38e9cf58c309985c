"""Tests of a hub behind nginx, with the configuration that the documentation shows.

`make soak` fetches Debian's nginx and unpacks it; it is not installed. Elsewhere the test runs if there is an nginx.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until
from tests.faults.processes import SOAK
from tieline.client import connect
from tieline.protocols.backchannel.client import RelayClient
from tieline.server.certificate import own_certificate
from tieline.wire.address import with_pin

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "network.md"
NAME = "hub.example.org"


def _nginx(folder: Path) -> str:
    """Return the path of nginx. Fetch it in a soak, and skip the test if there is none."""
    known = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if known is None and SOAK:
        subprocess.run(["apt-get", "download", "-qq", "nginx"], check=True, cwd=folder)
        (package,) = folder.glob("nginx_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True)
        known = str(folder / "unpacked" / "usr" / "sbin" / "nginx")
    if known is None:
        pytest.skip("there is no nginx; 'make soak' fetches one")
    return known


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _proxy(folder: Path, hub: str) -> Iterator[str]:
    """Run nginx before the hub at the URL `hub`. Yield its address, with the fingerprint of its certificate."""
    program, port = _nginx(folder), _free_port()
    certificate = own_certificate(folder, (NAME,))
    shown = DOCUMENT.read_text(encoding="utf-8").partition("<!-- nginx -->\n```nginx\n")[2].partition("```")[0]
    for documented, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/hub.crt", str(folder / "tls.crt")),
        ("/etc/ssl/hub.key", str(folder / "tls.key")),
        ("http://127.0.0.1:7117", hub),
    ):
        assert documented in shown
        shown = shown.replace(documented, here)
    paths = "".join(
        f"{kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # nginx would otherwise change to a user of its own, who cannot read the folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    main = f"{user}daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
    (folder / "nginx.conf").write_text(f"{main}http {{\naccess_log off;\n{paths}{shown}}}\n")
    with subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"]) as process:
        try:
            wait_until(lambda: _answers(port), "nginx")
            yield with_pin(f"https://127.0.0.1:{port}", certificate.fingerprint)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_hub_behind_nginx_serves_sessions_and_streams(folder: Path) -> None:
    _nginx(folder)
    with (
        HubProcess("--base-url", f"https://{NAME}", "--trusted-proxy", "127.0.0.0/8") as hub,
        _proxy(folder, hub.running.http) as address,
    ):
        assert f"https://{NAME}" in hub.stdout
        asyncio.run(_talk(hub, address))


async def _talk(hub: HubProcess, address: str) -> None:
    async with await connect(home=hub.home) as operator:
        tokens = [(await operator.add_member(name)).token for name in ("alice", "bob")]
    async with (
        asyncio.timeout(30),
        await connect(url=address, token=tokens[0]) as alice,
        await connect(url=address, token=tokens[1], receive=True) as bob,
    ):
        await alice.send("@bob", "through a proxy")
        assert (await anext(aiter(bob))).message.body == "through a proxy"
        # A stream of server-sent events passes too, event by event.
        with contextlib.closing(RelayClient(address, tokens[1]).events("bob")) as events:
            assert (await asyncio.to_thread(next, events)).body == "through a proxy"
            await alice.send("@bob", "and once more")
            assert (await asyncio.to_thread(next, events)).body == "and once more"
