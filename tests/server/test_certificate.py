"""Tests of the hub's certificate: made once, kept private, and read again when it changes."""

import contextlib
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tieline.server.certificate import Certificate, own_certificate
from tieline.server.config import ConfigError
from tieline.server.x509 import host_names
from tieline.wire.tls import fingerprint_of


def shown(certificate: Certificate) -> str:
    """Return the fingerprint of the certificate that a client is shown."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(incoming, outgoing),
        certificate.context().wrap_bio(outgoing, incoming, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return fingerprint_of(ends[0].getpeercert(binary_form=True) or b"")


def test_a_certificate_is_made_once_for_a_home_and_only_its_owner_can_read_the_key(tmp_path: Path) -> None:
    made = own_certificate(tmp_path, ("192.0.2.7", "hub.example.org"))
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    assert {"hub.example.org", "localhost", socket.gethostname()} <= set(
        host_names((tmp_path / "tls.crt").read_bytes())
    )
    again = own_certificate(tmp_path, ())
    assert again.fingerprint == made.fingerprint == shown(made)


def test_a_host_whose_name_has_other_letters_is_named_as_clients_send_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write it in ASCII"):
        own_certificate(tmp_path, ("straße.example",))
    own_certificate(tmp_path, ("hüb.example",))
    assert "xn--hb-xka.example" in host_names((tmp_path / "tls.crt").read_bytes())


def test_a_changed_certificate_is_used_by_the_next_connection(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        own_certificate(tmp_path / name, ())
    certificate = Certificate(tmp_path / "old" / "tls.crt", tmp_path / "old" / "tls.key")
    before = shown(certificate)
    # Only one of the files is new: nothing fits, and the old certificate stays in use.
    shutil.copy(tmp_path / "new" / "tls.crt", tmp_path / "old" / "tls.crt")
    with capture_logs() as lines:
        assert shown(certificate) == before
    assert [line["log_level"] for line in lines] == ["warning"]
    shutil.copy(tmp_path / "new" / "tls.key", tmp_path / "old" / "tls.key")
    assert shown(certificate) not in ("", before)
    assert shown(certificate) == certificate.fingerprint


def test_a_certificate_that_could_not_be_read_is_tried_again_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        own_certificate(tmp_path / name, ())
    certificate = Certificate(tmp_path / "old" / "tls.crt", tmp_path / "old" / "tls.key")
    for name in ("tls.crt", "tls.key"):
        shutil.copy(tmp_path / "new" / name, tmp_path / "old" / name)

    def refuse(*_: object, **__: object) -> None:
        # As for a key that the hub may not read. Its owner then changes only the permissions, not the file.
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(ssl.SSLContext, "load_cert_chain", refuse)
        before = {certificate.context() for _ in range(3)}
    assert len(before) == 1
    assert [line["log_level"] for line in lines] == ["warning"]
    with capture_logs() as lines:
        assert shown(certificate) == certificate.fingerprint
    assert [line["log_level"] for line in lines] == ["info"]
    assert certificate.context() not in before


def test_a_certificate_names_the_host_that_it_was_made_for(tmp_path: Path) -> None:
    assert own_certificate(tmp_path, ("*.example.org",)).host in {"localhost", socket.gethostname()}


def test_files_that_are_no_certificate_are_refused_by_name(tmp_path: Path) -> None:
    own_certificate(tmp_path, ())
    (tmp_path / "wrong.key").write_text("no key")
    for key in ("wrong.key", "missing.key"):
        with pytest.raises(ConfigError, match=key):
            Certificate(tmp_path / "tls.crt", tmp_path / key)
