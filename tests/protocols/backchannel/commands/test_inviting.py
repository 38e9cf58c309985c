"""Tests of the address in an invite: it has the fingerprint of the certificate that newcomers find there."""

import os
from pathlib import Path

import pytest

from tieline.cli.failure import Exit, Failure
from tieline.cli.session import Link
from tieline.contract.member import MemberKind
from tieline.protocols.backchannel.commands.inviting import _find_hub, _invite
from tieline.wire.address import with_pin
from tieline.wire.home import RUN_FILE, Running

OWN, OTHER = "aa" * 32, "bb" * 32
HTTP = "https://10.0.0.5:7117"
NAMED = "https://hub.example.org:7117"


@pytest.mark.parametrize(
    ("public", "fingerprint", "named", "invited_to"),
    [
        ("", OWN, None, with_pin(HTTP, OWN)),
        ("", OWN, NAMED, with_pin(NAMED, OWN)),
        ("", OWN, "hub.example.org:7117", with_pin(NAMED, OWN)),
        ("", OWN, with_pin(NAMED, OTHER), with_pin(NAMED, OTHER)),
        # A tunnel, for example.
        ("", OWN, "http://127.0.0.1:1", "http://127.0.0.1:1"),
        # The base URL of a proxy with a certificate of its own, and one of the hub itself.
        ("https://proxy.example.org", OWN, NAMED, NAMED),
        (with_pin("https://name.example.org", OWN), OWN, NAMED, with_pin(NAMED, OWN)),
        # A certificate of the owner.
        ("", "", NAMED, NAMED),
    ],
)
def test_an_address_with_tls_gets_the_fingerprint_of_the_hubs_own_certificate(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    public: str,
    fingerprint: str,
    named: str | None,
    invited_to: str,
) -> None:
    running = Running(os.getpid(), "0", HTTP, "hub.sock", "sqlite", url=public, fingerprint=fingerprint)
    (folder / RUN_FILE).write_bytes(running.encode())
    assert _find_hub(Link(home=folder, url=named)) == (invited_to, Link(home=folder))
    monkeypatch.setenv("TIELINE_HOME", str(folder))
    if named is not None:
        monkeypatch.setenv("TIELINE_URL", named)
    assert _find_hub(Link()) == (invited_to, Link(home=folder))


@pytest.mark.parametrize(
    "named", ["ftp://hub.example.org", "https://ada:secret@hub.example.org", "https://", "https://h:x"]
)
def test_an_address_that_nobody_can_join_makes_no_invitation(folder: Path, named: str) -> None:
    (folder / RUN_FILE).write_bytes(Running(os.getpid(), "0", HTTP, "hub.sock", "sqlite").encode())
    wanted = {"member": None, "expires": "1d", "uses": 1, "kind": MemberKind.AGENT}
    with pytest.raises(Failure) as refused:
        _invite(Link(home=folder, url=named), None, [], wanted, json=False)
    assert (refused.value.code, refused.value.hint) == (Exit.USAGE, "no invitation was made")
