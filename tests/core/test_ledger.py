"""Tests of the ledger, which makes the rows of the main log: offsets without gaps, and a chain of hashes.

A row that was changed, removed or moved breaks the chain.
"""

from blake3 import blake3

from tests.core.doubles import BrokerHarness
from tieline.contract.chain import GENESIS, link, seal
from tieline.contract.event import Sent, Subscribed
from tieline.core.ledger import Ledger, decode_event, encode_content
from tieline.core.store import DeliveryRoute


def test_the_hash_before_the_first_row_is_blake3_of_nothing() -> None:
    assert blake3(b"").hexdigest() == GENESIS
    assert Ledger().head == GENESIS


def test_a_hash_is_blake3_of_the_previous_hash_in_ascii_hex_the_time_and_the_event() -> None:
    ledger = Ledger()
    previous = GENESIS
    for channel in ("a", "b", "c"):
        row = ledger.append(Subscribed("ada", channel), at_ms=7)
        assert row.hash == blake3(previous.encode("ascii") + b"7" + row.event).hexdigest()
        assert row.hash == link(previous, 7, row.event)
        previous = row.hash
    assert ledger.head == previous


def test_offsets_are_dense_from_zero() -> None:
    ledger = Ledger()
    assert [ledger.append(Subscribed("ada", "x"), at_ms=0).offset for _ in range(4)] == [0, 1, 2, 3]
    assert ledger.end == 4


def test_a_ledger_goes_on_where_it_was_left() -> None:
    whole, first = Ledger(), Ledger()
    for ledger in (whole, first):
        ledger.append(Subscribed("ada", "x"), at_ms=0)
    second = Ledger(first.end, first.head)
    assert second.append(Subscribed("bob", "y"), 1) == whole.append(Subscribed("bob", "y"), 1)


def test_an_event_is_read_back_from_its_bytes() -> None:
    event = Sent(id="m-1", sender="ada", target="@bob", recipients=1, digest="00" * 32)
    assert decode_event(Ledger().append(event, 0).event) == event


def test_the_log_of_a_broker_is_one_unbroken_chain_over_restarts(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.offered(bob, 1)
    harness.crash()
    harness.send(harness.attach("bob"), "@ada")
    harness.restart()
    harness.subscribe(harness.attach("ada"), "dev")
    rows = harness.log()
    assert [row.offset for row in rows] == list(range(len(rows)))
    previous = GENESIS
    for row in rows:
        assert row.hash == link(previous, row.at_ms, row.event)
        previous = row.hash
    assert len(rows) >= 6


def test_the_chain_holds_the_digest_of_all_that_is_stored_of_a_message(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    accepted = harness.send(ada, "@bob", "hold this", data={"n": 1})
    event = decode_event(harness.log()[accepted.offset].event)
    assert isinstance(event, Sent)
    assert event.id == accepted.message_id
    assert (event.sender, event.target, event.recipients) == ("ada", "@bob", 1)
    (delivery,) = harness.fetch(bob)
    message, route = delivery.message, DeliveryRoute([2], [delivery.key], [delivery.stream_seq]).pack()
    stamps = (message.id, "ada", message.protocol, 1, message.sent_at_ms)
    assert event.digest == seal(encode_content(message.content), route, *stamps)
