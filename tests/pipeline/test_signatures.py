"""Tests that the audit checks the signatures of stored peerbus messages again, if the secret is given."""

from pathlib import Path

import pytest

from tests.pipeline.audits import pages_of, rows
from tests.protocols.peerbus.peers import CONFIG, SECRET, bus, envelope
from tieline.pipeline.verify import tell
from tieline.pipeline.verify_report import VerifyFinding
from tieline.protocols.peerbus.settings import SECRET_VARIABLE

KNOWS_NO_SECRET = CONFIG.replace("hmac_secret", "# hmac_secret")


async def signed_home(home: Path) -> dict[str, int]:
    """Make a home with right and forged signatures, which the hub cannot check because it has no secret.

    Return the log offset of each message, by body.
    """
    async with bus(home, config=KNOWS_NO_SECRET) as hub:
        ada, bob = await hub.several("ada", "bob")
        await ada.say("bob", "right")
        await ada.say("*", "right, to all")
        await ada.raw(envelope("ada", "bob", "forged", secret="x" * 32))
        await bob.deliveries(3)
        await hub.add("carol")
        await (await hub.join("carol")).send("@carol", "by another protocol")
    with rows(home) as database:
        found = database.execute("SELECT json_extract(content, '$.body'), offset FROM message").fetchall()
    return dict(found)


def signatures(home: Path) -> list[VerifyFinding]:
    """Audit a home. Return the findings about signatures."""
    options = {"home": str(home), "logs": "main", "audit": "true"}
    return [one for one in tell(options, pages_of(home)) if one.kind == "signature"]


async def test_a_signature_that_is_wrong_is_found_by_whoever_has_the_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / "h"
    places = await signed_home(home)
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    assert sum(page.signed for page in pages_of(home)) == 3
    assert signatures(home) == []
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert [(one.offset, one.what) for one in signatures(home)] == [
        (places["forged"], f"the signature of the message at row {places['forged']} is wrong")
    ]
    with rows(home) as database:
        # The signed original is stored as it came; without it, the signature cannot be right.
        database.execute(
            "UPDATE message SET content = CAST(json_replace(content, '$.original', NULL) AS BLOB) WHERE offset = ?",
            (places["right"],),
        )
    assert {one.offset for one in signatures(home)} == {places["right"], places["forged"]}
    monkeypatch.setenv(SECRET_VARIABLE, "y" * 32)
    assert {one.offset for one in signatures(home)} == {places[name] for name in places if "another" not in name}
