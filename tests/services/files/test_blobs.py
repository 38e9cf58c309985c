"""Tests of blobs (stored contents): equal bytes are stored once, no incomplete file stays, no link is followed."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.services.files.blobs import Blob, Blobs, MissingBlob


def put(blobs: Blobs, *pieces: bytes) -> Blob:
    upload = blobs.begin()
    for piece in pieces:
        upload.write(piece)
    return blobs.keep(upload)


def content(blobs: Blobs, digest: str) -> bytes:
    with blobs.open(digest) as file:
        return file.read()


def all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=6))
def test_bytes_are_kept_under_their_digest_however_they_came_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    blobs = Blobs(tmp_path_factory.mktemp("blobs"))
    whole = b"".join(pieces)
    blob = put(blobs, *pieces)
    assert blob == Blob(hashlib.sha256(whole).hexdigest(), len(whole))
    assert content(blobs, blob.digest) == whole


def test_the_same_bytes_are_there_once_and_only_for_the_owner(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert put(blobs, b"same") == put(blobs, b"sa", b"me")
    (only,) = all_files(tmp_path)
    assert only.stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_an_upload_that_is_abandoned_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    upload = blobs.begin()
    upload.abandon()
    upload.write(b"half")
    assert len(all_files(tmp_path)) == 1
    upload.abandon()
    upload.abandon()
    assert all_files(tmp_path) == []


def test_what_is_open_is_read_to_its_end_though_it_is_discarded(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blob = put(blobs, b"last words")
    with blobs.open(blob.digest) as file:
        blobs.discard(blob.digest)
        blobs.discard(blob.digest)
        assert file.read() == b"last words"
    with pytest.raises(MissingBlob):
        blobs.open(blob.digest)


def test_a_link_in_the_place_of_content_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    blobs = Blobs(tmp_path / "blobs")
    blob = put(blobs, b"public")
    place = tmp_path / "blobs" / blob.digest[:2] / blob.digest
    place.unlink()
    place.symlink_to(secret)
    with pytest.raises(MissingBlob):
        blobs.open(blob.digest)
    assert put(blobs, b"public") == blob
    assert content(blobs, blob.digest) == b"public"
    assert secret.read_bytes() == b"secret"


def test_content_that_lost_bytes_is_replaced_by_the_next_upload_of_it(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blob = put(blobs, b"whole")
    (tmp_path / blob.digest[:2] / blob.digest).write_bytes(b"wh")
    put(blobs, b"whole")
    assert content(blobs, blob.digest) == b"whole"


def test_a_sweep_removes_what_nobody_refers_to(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    kept, orphan = put(blobs, b"kept"), put(blobs, b"orphan")
    dying = blobs.begin()
    dying.write(b"half")
    dying.finish()
    assert Blobs(tmp_path).sweep(lambda digest: digest == kept.digest) == 2
    assert blobs.digests() == {kept.digest}
    assert orphan.digest not in blobs.digests()
    assert len(all_files(tmp_path)) == 1
