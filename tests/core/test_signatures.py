"""Tests of messages that senders sign: the hub records its check, and only some recipients see a wrong signature."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.core.doubles import HOME_KEY, BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByHomeKey, ByShared
from tieline.contract.message import Signature
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Attached, History, Issued
from tieline.core.audit import verify
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.inspection import open_inspection

P = "peerbus"
CONFINED = [Signature.FAILED, Signature.MISNAMED]


def send(harness: BrokerHarness, session: SessionId, target: str, body: str, signature: Signature) -> Accepted:
    return harness.expect(Accepted, c.Send(session, content=content(target, body, original=b"{}"), signature=signature))


def register(harness: BrokerHarness, name: str) -> SessionId:
    attach = c.Attach(protocol=P, credential=ByShared("token"), member=MemberName(name), exclusive=True)
    return harness.expect(Attached, attach).session


@pytest.mark.parametrize("signature", list(Signature))
@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_a_message_keeps_its_mark_and_receipts_show_it(
    harness: BrokerHarness, signature: Signature, how: str | None
) -> None:
    ada, _ = register(harness, "ada"), register(harness, "bob")
    sent = send(harness, ada, "@bob", "x", signature)
    if how is not None:
        getattr(harness, how)()
    (delivery,) = harness.fetch(register(harness, "bob"))
    assert delivery.message.signature is signature
    evidence = harness.receipts(harness.operator, sent.message_id)["bob"].steps[0].evidence
    assert evidence == (f"signature {signature}" if signature else "")


@pytest.mark.parametrize("signature", CONFINED)
def test_what_is_signed_badly_is_given_to_sessions_of_its_own_protocol_alone(
    harness: BrokerHarness, signature: Signature
) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    bad = send(harness, ada, "@bob", "bad", signature)
    good = send(harness, ada, "@bob", "good", Signature.VERIFIED)
    elsewhere, peer = harness.attach("bob", "hub"), harness.attach("bob", P)
    assert harness.bodies(elsewhere) == ["good"]
    assert harness.bodies(peer) == ["bad", "good"]
    assert harness.claim(elsewhere, bad.message_id) is None
    assert harness.claim(elsewhere, good.message_id) is not None
    assert harness.claim(peer, bad.message_id) is not None


def test_a_badly_signed_message_waits_for_a_session_of_its_protocol(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    sent = send(harness, ada, "@bob", "bad", Signature.FAILED)
    assert harness.bodies(harness.attach("bob", "hub")) == []
    assert harness.state(sent.message_id, "bob") is State.PENDING
    assert harness.roster()["bob"].backlog == 1


def test_history_shows_it_to_its_sender_to_peers_and_to_the_operator_with_its_mark(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    send(harness, ada, "@bob", "bad", Signature.FAILED)
    for reader in (harness.operator, ada, harness.attach("ada", "hub"), harness.attach("bob", P)):
        (message,) = harness.expect(History, c.ReadHistory(reader)).messages
        assert (message.sender, message.signature) == ("ada", Signature.FAILED)
    assert harness.expect(History, c.ReadHistory(harness.attach("bob", "hub"))).messages == ()


def test_an_operator_that_speaks_as_a_member_sees_what_that_member_sees(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    send(harness, ada, "@bob", "bad", Signature.FAILED)
    send(harness, ada, "@bob", "good", Signature.VERIFIED)
    attach = c.Attach(protocol="hub", credential=ByHomeKey(HOME_KEY), member=MemberName("bob"))
    page = harness.expect(History, c.ReadHistory(harness.expect(Attached, attach).session)).messages
    assert [message.content.body for message in page] == ["good"]


def test_badly_signed_messages_do_not_hide_what_was_said_before_them(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    for number in range(4):
        send(harness, ada, "@bob", f"good {number}", Signature.VERIFIED)
        for _ in range(5):
            send(harness, ada, "@bob", "bad", Signature.FAILED)
    page = harness.expect(History, c.ReadHistory(harness.attach("bob", "hub"), limit=3)).messages
    assert [message.content.body for message in page] == ["good 3", "good 2", "good 1"]


def test_badly_signed_messages_do_not_hide_what_was_said_after_them(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    for number in range(4):
        for _ in range(5):
            send(harness, ada, "@bob", "bad", Signature.FAILED)
        send(harness, ada, "@bob", f"good {number}", Signature.VERIFIED)
    page = harness.expect(History, c.ReadHistory(harness.attach("bob", "hub"), limit=3, forward=True)).messages
    assert [message.content.body for message in page] == ["good 0", "good 1", "good 2"]


def test_one_read_passes_over_a_bounded_number_of_badly_signed_messages(harness: BrokerHarness) -> None:
    ada, _ = register(harness, "ada"), harness.add("bob")
    send(harness, ada, "@bob", "good", Signature.VERIFIED)
    for _ in range(16):
        send(harness, ada, "@bob", "bad", Signature.FAILED)
    bob = harness.attach("bob", "hub")
    assert harness.expect(History, c.ReadHistory(bob, limit=1)).messages == ()
    assert len(harness.expect(History, c.ReadHistory(bob, limit=2)).messages) == 1


def test_a_mark_that_was_changed_in_the_store_breaks_the_audit(tmp_path: Path) -> None:
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"))
    ada, _ = register(harness, "ada"), register(harness, "bob")
    offset = send(harness, ada, "@bob", "bad", Signature.FAILED).offset
    harness.broker.close()
    for mark, intact in (("failed", True), ("verified", False), ("", False)):
        with apsw.Connection(str(tmp_path / "tieline.db")) as database:
            database.execute("UPDATE message SET signature = ?", (mark,))
        inspection = open_inspection(tmp_path)
        report = verify(inspection)
        inspection.close()
        assert report.intact is intact
        assert intact or [finding.offset for finding in report.findings] == [offset]


# Signing by the hub


@pytest.fixture
def secretless(open_store: Callable[[], Store]) -> BrokerHarness:
    """Fixture: a harness whose hub has no secret, so that it cannot sign messages."""
    harness = BrokerHarness(open_store)
    harness.broker = Broker(
        harness.store, harness.clock_and_ids, harness.limits, home_key=token_digest(HOME_KEY), signs=False
    )
    harness.operator = harness.attach(None)
    return harness


def test_with_no_secret_a_message_to_a_peer_is_refused_not_faked(secretless: BrokerHarness) -> None:
    register(secretless, "peer")
    ada = secretless.join("ada")
    assert secretless.refused(c.Send(ada, content=content("@peer"))).code is Code.CANNOT_SIGN


def test_with_no_secret_the_copies_of_peers_are_dead_with_that_reason(secretless: BrokerHarness) -> None:
    peer = register(secretless, "peer")
    ada, _ = secretless.join("ada"), secretless.add("bob")
    sent = secretless.send(ada, "*")
    found = secretless.receipts(ada, sent.message_id)
    assert {name: (one.state, one.steps[-1].evidence) for name, one in found.items()} == {
        "bob": (State.PENDING, ""),
        "peer": (State.DEAD, "cannot_sign"),
    }
    assert secretless.fetch(peer) == ()


def test_with_no_secret_peers_reach_each_other_and_everybody_else(secretless: BrokerHarness) -> None:
    ada, bob = register(secretless, "ada"), register(secretless, "bob")
    secretless.add("cy")
    send(secretless, ada, "*", "signed by ada", Signature.UNVERIFIED)
    assert secretless.bodies(bob) == secretless.bodies(secretless.attach("cy")) == ["signed by ada"]


def test_with_no_secret_a_peer_that_has_a_token_of_its_own_can_be_reached_through_other_wires(
    secretless: BrokerHarness,
) -> None:
    register(secretless, "peer")
    token = secretless.expect(Issued, c.RotateToken(secretless.operator, name=MemberName("peer"))).token
    secretless.send(secretless.join("ada"), "@peer", "hello")
    assert secretless.bodies(secretless.attach_by_token(token)) == ["hello"]
