"""`make image`: builds the image of `deploy/` with buildah, and starts it in a chroot as a container would.

Used by: a person, or CI, as root, on a machine without a container engine. Uses: `bare_debian`, buildah, chroot.

The base is a bare Debian that debootstrap makes here, with this machine's settings for apt and pip. So the image proves
the Containerfile; build the one to publish on a base of your own. The start takes user, environment, command and health
check from the image itself. Its root file system is read-only, and all it can write to is its volume and /tmp.
"""

import argparse
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.bare_debian import BareDebian, run

ROOT = Path(__file__).resolve().parent.parent
BASE = "localhost/debian:bookworm-slim"
IMAGE = "localhost/tieline"
SECONDS_MAX = 60
READ_ONLY = 'set -e; mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; mount --bind "$2" "$1/data"'
"""Shell commands that make a root file system read-only, except for a volume, /tmp and what the kernel provides."""
START = (
    f'{READ_ONLY}; mount -t tmpfs tmpfs "$1/tmp"; mount -t proc proc "$1/proc"; user=$3; shift 3; '
    'exec chroot --userspec="$user" "$@"'
)


class ImageFailed(Exception):
    """The image was built or started, and is not as it should be."""


class Buildah:
    """Buildah with its storage in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            f"{folder}/storage",
            "--runroot",
            f"{folder}/run",
        ]

    def tell(self, *arguments: str) -> None:
        run(*self._command, *arguments)

    def ask(self, *arguments: str) -> str:
        found = subprocess.run([*self._command, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        return found.stdout.strip()

    def has(self, image: str) -> bool:
        known = subprocess.run([*self._command, "inspect", "--type", "image", image], check=False, capture_output=True)
        return known.returncode == 0


def make_base(buildah: Buildah, folder: Path) -> None:
    """Make the image that the Containerfile begins with, unless it is there."""
    if buildah.has(BASE):
        return
    debian = BareDebian(folder)
    debian.install(None, packages=("ca-certificates",))
    debian.lend_configuration()
    container = buildah.ask("from", "scratch")
    buildah.tell("copy", "--quiet", container, str(debian.root), "/")
    buildah.tell("commit", "--quiet", container, BASE)
    buildah.tell("rm", container)
    shutil.rmtree(debian.root)


def build(buildah: Buildah, folder: Path) -> None:
    registries = [f"--volume={path}:{path}:ro" for path in BareDebian(folder).registries()]
    buildah.tell(
        "build",
        "--isolation=chroot",
        "--format=docker",
        "--quiet",
        f"--build-arg=BASE={BASE}",
        *registries,
        f"--tag={IMAGE}",
        f"--file={ROOT}/deploy/Containerfile",
        f"{ROOT}/dist",
    )


@contextmanager
def mounted(buildah: Buildah) -> Iterator[Path]:
    """Yield the root file system of a container of the image."""
    container = buildah.ask("from", "--pull-never", IMAGE)
    try:
        yield Path(buildah.ask("mount", container))
    finally:
        buildah.tell("umount", container)
        buildah.tell("rm", container)


def start(root: Path, volume: Path, config: dict[str, Any], command: Sequence[str]) -> "subprocess.Popen[str]":
    """Start a command of the image as a container engine does: its user, its environment, a read-only root."""
    words = [str(root), "env", "-i", *config["Env"], *command]
    shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", START, "sh"]
    return subprocess.Popen([*shell, str(root), str(volume), config["User"], *words], stdout=subprocess.PIPE, text=True)


def try_out(root: Path, volume: Path, config: dict[str, Any]) -> None:
    """Start the hub, ask for its health as the image does, look at its rights, and stop it."""
    uid, gid = map(int, config["User"].split(":"))
    volume.mkdir(mode=0o700, exist_ok=True)
    os.chown(volume, uid, gid)
    # Another hub may have the port of the image, because the network is the host's.
    inside = {**config, "Env": [*config["Env"], "TIELINE_HTTP=127.0.0.1:0"]}
    hub = start(root, volume, inside, [*config["Entrypoint"], *config["Cmd"]])
    try:
        address = wait_for_address(volume / "run.json", hub)
        print(f"{address}/healthz answers {fetch(f'{address}/healthz')}")
        expect("assets/" in fetch(address), "the console is served")
        health = start(root, volume, inside, config["Healthcheck"]["Test"][1:])
        health.communicate(timeout=SECONDS_MAX)
        expect(health.returncode == 0, "the health check of the image succeeds")
        expect(owner_of(hub.pid) == uid, f"the hub runs as user {uid}")
        written = start(root, volume, inside, ["sh", "-c", "touch /opt/x || touch /data/x && test ! -e /opt/x"])
        written.communicate(timeout=SECONDS_MAX)
        expect(written.returncode == 0, "only the volume can be written to")
    finally:
        hub.terminate()
        said, _ = hub.communicate(timeout=SECONDS_MAX)
    expect(hub.returncode == 0 and "has stopped" in said, "SIGTERM stops the hub cleanly")


def fetch(address: str) -> str:
    # A hub with TLS made its certificate itself a moment ago, on this machine.
    trusting = ssl._create_unverified_context() if address.startswith("https") else None
    with urllib.request.urlopen(address, timeout=SECONDS_MAX, context=trusting) as answer:
        text: str = answer.read().decode()
    return text


def wait_for_address(path: Path, hub: "subprocess.Popen[str]") -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while not path.exists():
        if hub.poll() is not None or time.monotonic() > deadline:
            raise ImageFailed("the hub of the image did not start")
        time.sleep(0.1)
    return str(json.loads(path.read_text())["http"])


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise ImageFailed(f"not so: {what}")
    print(what)


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make image", description="Build the image of deploy/ and start it in a chroot."
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="keep base and image there, and use them if they are there"
    )
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("buildah and chroot need root here")
    if not shutil.which("buildah"):
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "buildah")
    folder = options.work.resolve() if options.work else Path(tempfile.mkdtemp(prefix="tieline-image-"))
    folder.mkdir(exist_ok=True)
    buildah = Buildah(folder)
    try:
        make_base(buildah, folder)
        build(buildah, folder)
        config = json.loads(buildah.ask("inspect", "--type", "image", IMAGE))["Docker"]["config"]
        with mounted(buildah) as root:
            print(f"{IMAGE} was built: {size_of(root) >> 20} MiB")
            try_out(root, folder / "data", config)
    except ImageFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder / "data", ignore_errors=True)
        if not options.work:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
