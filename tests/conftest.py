"""What tests share: a folder whose path is short enough for a Unix address, and a clean environment."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

VARIABLES = (
    "TIELINE_HOME",
    "TIELINE_URL",
    "TIELINE_TOKEN",
    "TIELINE_AGENT",
    "TIELINE_HTTP",
    "TIELINE_STORE",
    "BACKCHANNEL_HOME",
    "BACKCHANNEL_AGENT",
    "BACKCHANNEL_URL",
    "BACKCHANNEL_TOKEN",
    "PEERBUS_TOKENS",
    "PEERBUS_HMAC_SECRET",
    "TIELINE_PEERBUS",
)

# Who runs the tests in the background may have told them to ignore these, and processes hand that on to theirs.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder with a short path: pytest's own are often longer than a Unix address."""
    path = Path(tempfile.mkdtemp(prefix="tieline-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
