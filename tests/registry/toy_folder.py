"""The folder of the toy protocol, and the way in which a test adds it to the folders of protocols."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tieline.protocols
from tieline.protocols import protocols

FOLDER = Path(__file__).parent / "folder"
TOY = "toy"


@contextlib.contextmanager
def toy_protocol() -> Iterator[None]:
    """Add the folder with the toy protocol to the folders in which protocols are found, until the context ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tieline.protocols, "__path__", [*tieline.protocols.__path__, str(FOLDER)])
        protocols.cache_clear()
        yield
    protocols.cache_clear()
    for name in [name for name in sys.modules if name.startswith("tieline.protocols.toy")]:
        del sys.modules[name]
