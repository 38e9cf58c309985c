"""Test helper that starts an object store with S3's interface on this machine: moto's server, as a process."""

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from tieline.pipeline.lake import Lake

START_SECONDS = 120
BUCKET = "lakes"
_ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")


class ObjectStore:
    """A running object store with one bucket."""

    def __init__(self, endpoint: str) -> None:
        self.options = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def lake(self, name: str) -> Lake:
        """Return the lake at `s3://<bucket>/<name>`."""
        return Lake(f"s3://{BUCKET}/{name}", self.options)

    def copied(self, lake: Lake, name: str) -> Lake:
        """Copy a lake, which is a folder, into the store. Return the copy."""
        copy = self.lake(name)
        fs.copy_files(str(lake.path), "", fs.LocalFileSystem(), copy.storage.filesystem())
        return copy


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start an object store on a free port of this machine, with an empty bucket. Stop it at the end."""
    folder.mkdir(parents=True)
    log = folder / "moto.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        endpoint = _wait_for_address(process, log)
        asked = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(asked, timeout=START_SECONDS).close()
        yield ObjectStore(endpoint)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_for_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        if found := _ADDRESS.search(text):
            return found[1]
        assert process.poll() is None, text[-2000:]
        assert time.monotonic() < deadline, text[-2000:]
        time.sleep(0.1)
