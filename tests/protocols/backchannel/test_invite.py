"""Tests of invites: the texts that are none are refused with the reason."""

import pytest

from tieline.protocols.backchannel.invite import BadInvite, Invite, decode_invite, encode_invite

FINGERPRINT = "1f" * 32


def test_an_invite_is_read_as_it_was_written() -> None:
    invite = Invite("https://hub:7117", "tie_x", None, ("#dev",), FINGERPRINT, "bob")
    assert decode_invite(encode_invite(invite)) == invite


@pytest.mark.parametrize(
    ("invite", "reason"),
    [
        (Invite(""), "names no relay"),
        (Invite("https://hub", fingerprint="1f"), "64 digits"),
        (Invite("http://hub", fingerprint=FINGERPRINT), "needs https://"),
    ],
)
def test_an_invite_that_cannot_be_used_says_why(invite: Invite, reason: str) -> None:
    with pytest.raises(BadInvite, match=reason):
        decode_invite(encode_invite(invite))
