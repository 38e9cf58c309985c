"""Tests of the formulas of the audit chain. Stored logs depend on them, so the expected values here never change."""

from typing import Any

import pytest
from blake3 import blake3

from tieline.contract.chain import (
    GENESIS,
    GENESIS_DIGEST,
    Link,
    check_link,
    digest,
    follows,
    link,
    link_digest,
    seal,
    seal_message,
    seal_stored,
)
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message, Signature
from tieline.contract.target import to_member

OLDER = bytes.fromhex("2f59f796b48c7d70671b7886eec661b484f665b8dd48463bf8ea56278ac9e959")
"""Hash of the first row of a log from a version in which hashes did not cover the times of rows."""
FIRST = "1f9c3ea66113df76948c167037e6309912741183b85fda7188dbde6a195974b1"
AT_MS = 1_700_000_000_000


def test_a_link_is_the_same_in_hexadecimal_and_in_bytes() -> None:
    assert link(GENESIS, AT_MS, b"event") == FIRST
    assert link_digest(GENESIS_DIGEST, AT_MS, b"event").hex() == FIRST


def test_a_row_shows_by_its_hash_if_its_time_is_covered() -> None:
    first = bytes.fromhex(FIRST)
    assert check_link(GENESIS_DIGEST, AT_MS, b"event", first) is Link.TIMED
    assert check_link(GENESIS_DIGEST, AT_MS + 1, b"event", first) is Link.BROKEN
    assert check_link(GENESIS_DIGEST, AT_MS, b"other", first) is Link.BROKEN
    assert check_link(first, AT_MS, b"event", first) is Link.BROKEN
    for at_ms in (AT_MS, AT_MS + 1):
        assert check_link(GENESIS_DIGEST, at_ms, b"event", OLDER) is Link.UNTIMED
    assert check_link(GENESIS_DIGEST, AT_MS, b"other", OLDER) is Link.BROKEN


def test_digits_of_the_time_that_were_moved_into_the_event_break_the_link() -> None:
    first = link_digest(GENESIS_DIGEST, AT_MS + 7, b'{"event":"x"}')
    assert check_link(GENESIS_DIGEST, AT_MS + 7, b'{"event":"x"}', first) is Link.TIMED
    assert check_link(GENESIS_DIGEST, AT_MS // 10, b'7{"event":"x"}', first) is Link.BROKEN
    assert check_link(GENESIS_DIGEST, 1, b'1700000000007{"event":"x"}', first) is Link.BROKEN


def test_a_row_without_its_time_never_follows_one_with_it() -> None:
    allowed = {(before, own) for before in (None, *Link) for own in Link if follows(before, own)}
    timed = {(before, Link.TIMED) for before in (None, *Link)}
    assert allowed == timed | {(before, Link.UNTIMED) for before in (None, Link.BROKEN, Link.UNTIMED)}


def test_content_and_changes_have_the_digests_that_they_always_had() -> None:
    assert digest(b"x") == "3ae7d805f6789a6402acb70ad4096a85a56bf6804eaf25c0493ac697548d30b5"
    assert seal(b"c", b"", "obj-1", "ada", 5) == "d0c8d8d2aa18a99d2866c9ab27db0c880b61b6571814523bf7a55115238fdb26"


@pytest.mark.parametrize("size", [0, 2047, 2048, 4094, 4095, 32 * 1024 - 1, 32 * 1024])
def test_a_digest_does_not_depend_on_the_pieces_in_which_it_is_made(size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    assert digest(data) == blake3(data).hexdigest()


@pytest.mark.parametrize(
    ("stamped", "sealed"),
    [
        ({}, "0e18cf2ce3a294b8475cdc658f36d010650c6ba309d370f3247b45e8d01e09ff"),
        ({"verified": False}, "4ea63bc883715b9a00c1df240d60c54f90a38a8b155740bed088f536b7a437dc"),
        (
            {"signature": Signature.VERIFIED, "wire_id": "w"},
            "3148d231d2817aed2635756106769a863f8f598a43c4978296fe350e86966b03",
        ),
        ({"signature": Signature.FAILED}, "e99a9fda20d3e23b7c230e6d3a6981b187ce13c29791e9bbe6d0f3e896fbe8a9"),
    ],
)
def test_a_message_has_one_seal_before_it_is_stored_and_from_its_columns(stamped: dict[str, Any], sealed: str) -> None:
    content = Content(target=to_member(MemberName("bob")), body="hi")
    message = Message(
        id=MessageId("m-1"), offset=0, sender="ada", protocol="hub", sent_at_ms=1_700_000_000_000, content=content,
        **stamped,
    )  # fmt: skip
    assert seal_message(message, b"content", b"route") == sealed
    stamps = ("m-1", "ada", "hub", int(message.verified), 1_700_000_000_000)
    assert seal_stored(b"content", b"route", stamps, message.signature.value, message.wire_id) == sealed
