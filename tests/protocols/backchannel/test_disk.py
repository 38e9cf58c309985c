"""Tests of the disk: a system without `fdatasync` syncs the whole file."""

import os
from pathlib import Path

import pytest

from tieline.protocols.backchannel import disk


@pytest.mark.parametrize("has_fdatasync", [True, False])
def test_data_are_synced_and_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_fdatasync: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    if has_fdatasync:
        monkeypatch.setattr(os, "fdatasync", synced.append, raising=False)
    else:
        monkeypatch.delattr(os, "fdatasync", raising=False)
    descriptor = disk.create(tmp_path / "file", b"content")
    disk.sync_data(descriptor)
    assert synced == [descriptor]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
