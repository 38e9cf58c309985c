"""Tests of deliveries after sending: their states, claims, expiry, receipts, and following."""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import START_MS, BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State, Step
from tieline.contract.event import Acknowledged, Claimed, Delivered, Expired, Seen
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched, History, Progress, Receipts
from tieline.contract.reply import Claimed as ClaimedReply

# The ladder


def test_a_delivery_moves_up_the_ladder_and_the_sender_sees_each_rung_with_its_evidence(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    bob = harness.attach_by_token(harness.add("bob"), "backchannel")
    sent = harness.send(ada, "@bob")
    harness.clock_and_ids.time_ms += 10
    harness.offered(bob, 1)
    harness.clock_and_ids.time_ms += 10
    harness.advance(bob, 1, State.SEEN, "a tool call")
    harness.clock_and_ids.time_ms += 10
    harness.advance(bob, 1, State.ACKED, "ack")
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert (receipt.key, receipt.state) == (1, State.ACKED)
    assert receipt.steps == (
        Step(State.PENDING, START_MS, protocol="hub"),
        Step(State.OFFERED, START_MS + 10, bob, "backchannel"),
        Step(State.SEEN, START_MS + 20, bob, "backchannel", "a tool call"),
        Step(State.ACKED, START_MS + 30, bob, "backchannel", "ack"),
    )
    kinds = [type(event) for event in harness.events() if isinstance(event, Delivered | Seen | Acknowledged)]
    assert kinds == [Delivered, Seen, Acknowledged]


def test_receipts_say_what_was_decided_before_it_is_committed(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    advance = c.Advance(bob, ranges=((1, 1),), state=State.SEEN)
    _, receipts = harness.decide(advance, c.ReadReceipts(ada, message_id=sent.message_id))
    assert isinstance(receipts, Receipts)
    assert receipts.receipts[0].state is State.SEEN


def test_moving_twice_is_moving_once(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.advance(bob, 1, evidence="first")
    rows = len(harness.log())
    harness.advance(bob, 1, evidence="second")
    harness.offered(bob, 1)
    assert len(harness.log()) == rows
    assert harness.receipts(ada, sent.message_id)["bob"].steps[-1].evidence == "first"


def test_unknown_keys_are_ignored(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.ask(c.Advance(bob, ranges=((-5, 0), (2, 10**12))))
    assert harness.state(sent.message_id, "bob") is State.PENDING
    harness.ask(c.Advance(bob, ranges=((-5, 10**12),)))
    assert harness.state(sent.message_id, "bob") is State.ACKED


def test_one_row_of_the_log_covers_a_range_of_acknowledgements(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for _ in range(10):
        harness.send(ada, "@bob")
    before = len(harness.log())
    harness.ask_all(*(c.Advance(bob, ranges=((key, key),)) for key in range(1, 11)))
    rows = harness.events()[before:]
    assert [event.keys for event in rows if isinstance(event, Acknowledged)] == [((1, 10),)]


def test_a_member_moves_its_own_deliveries_only(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "@bob")
    harness.advance(cy, 1)
    harness.advance(ada, 1)
    assert harness.state(sent.message_id, "bob") is State.PENDING
    assert len(harness.fetch(bob)) == 1


@pytest.mark.parametrize("state", [State.PENDING, State.OFFERED, State.EXPIRED])
def test_a_session_cannot_declare_what_only_the_hub_knows(harness: BrokerHarness, state: State) -> None:
    bob = harness.join("bob")
    assert harness.refused(c.Advance(bob, ranges=((1, 1),), state=state)).code is Code.INVALID_REQUEST


@pytest.mark.parametrize(("state", "evidence"), [(State.SEEN, "claim"), (State.DEAD, "claim"), (State.ACKED, "claim")])
def test_whatever_the_evidence_is_called_the_rung_is_the_same_after_a_crash(
    harness: BrokerHarness, state: State, evidence: str
) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.advance(bob, 1, state, evidence)
    assert harness.state(sent.message_id, "bob") is state
    waiting = len(harness.fetch(bob))
    harness.crash()
    assert harness.state(sent.message_id, "bob") is state
    assert len(harness.fetch(harness.attach("bob"))) == waiting


def test_a_delivery_that_cannot_fit_its_wire_is_dead_with_the_reason(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.advance(bob, 1, State.DEAD, "too_large")
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "too_large")
    assert harness.fetch(bob) == ()


def test_deliveries_belong_to_the_member_and_not_to_one_session(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.offered(bob, 1)
    harness.ask(c.Detach(bob))
    other = harness.attach("bob", "peerbus")
    assert [delivery.state for delivery in harness.fetch(other)] == [State.OFFERED]
    harness.advance(other, 1)
    assert harness.fetch(harness.attach("bob")) == ()


# Reading


def test_fetching_goes_page_by_page_and_says_when_it_is_complete(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for number in range(5):
        harness.send(ada, "@bob", str(number))
    harness.advance(bob, 2)
    pages = []
    after, complete = 0, False
    while not complete:
        page = harness.expect(Fetched, c.Fetch(bob, after=after, limit=2))
        pages.append([delivery.message.content.body for delivery in page.deliveries])
        after, complete = page.through, page.complete
    assert pages == [["0", "2"], ["3", "4"]]
    assert after == 5


def test_a_reader_may_ask_for_less_than_a_page(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for _ in range(4):
        harness.send(ada, "@bob", "x" * 1000)
    page = harness.expect(Fetched, c.Fetch(bob, bytes_max=2500))
    assert (len(page.deliveries), page.through, page.complete) == (2, 2, False)
    assert len(harness.fetch(bob, bytes_max=10**9)) == 4


def test_an_empty_inbox_is_complete(harness: BrokerHarness) -> None:
    assert harness.expect(Fetched, c.Fetch(harness.join("ada"))) == Fetched(deliveries=(), through=0, complete=True)


def test_only_what_was_not_offered_yet_is_read_when_asked_so(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for body in ("one", "two", "three"):
        harness.send(ada, "@bob", body)
    harness.offered(bob, 1, 2)
    assert [item.message.content.body for item in harness.fetch(bob, unoffered_until=4)] == ["three"]


def test_a_page_is_never_larger_than_the_limit(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(read_max=2))
    ada, bob = harness.join("ada"), harness.join("bob")
    for _ in range(3):
        harness.send(ada, "@bob")
    assert len(harness.fetch(bob, limit=100)) == 2
    assert len(harness.fetch(bob, limit=0)) == 1


# Claims


def test_exactly_one_session_wins_a_claim(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.add("bob")
    sessions = [harness.attach("bob") for _ in range(4)]
    sent = harness.send(ada, "@bob", "take me")
    replies = harness.ask_all(*(c.Claim(session, message_id=sent.message_id) for session in sessions))
    won = [reply.delivery for reply in replies if isinstance(reply, ClaimedReply) and reply.delivery]
    assert len(won) == 1
    assert won[0].message.content.body == "take me"
    assert [reply for reply in replies if reply == ClaimedReply(None)] == replies[1:]
    assert harness.outcome.urgent, "a claim is answered once it is durable"


def test_a_claim_settles_the_delivery_and_the_log_calls_it_a_claim(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    assert harness.claim(bob, sent.message_id) is not None
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].session) == (State.ACKED, bob)
    assert [event.keys for event in harness.events() if isinstance(event, Claimed)] == [((1, 1),)]
    assert harness.roster()["bob"].backlog == 0


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_claimed_delivery_stays_claimed_when_the_hub_comes_back(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    harness.add("bob")
    sent = harness.send(harness.attach("ada"), "@bob")
    assert harness.claim(harness.attach("bob"), sent.message_id) is not None
    getattr(harness, how)()
    assert harness.claim(harness.attach("bob"), sent.message_id) is None


def test_a_claim_that_was_never_committed_can_be_made_again(harness: BrokerHarness) -> None:
    harness.add("ada")
    harness.add("bob")
    sent = harness.send(harness.attach("ada"), "@bob")
    harness.decide(c.Claim(harness.attach("bob"), message_id=sent.message_id))
    harness.crash()
    assert harness.claim(harness.attach("bob"), sent.message_id) is not None


def test_what_is_acknowledged_cannot_be_claimed(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.advance(bob, 1)
    assert harness.claim(bob, sent.message_id) is None


def test_what_was_offered_or_seen_can_still_be_claimed(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.offered(bob, 1)
    harness.advance(bob, 1, State.SEEN)
    delivery = harness.claim(bob, sent.message_id)
    assert delivery is not None
    assert delivery.key == 1


def test_a_member_cannot_claim_what_was_sent_to_another(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "@bob")
    harness.send(ada, "@cy")
    assert harness.claim(cy, sent.message_id) is None
    assert harness.claim(ada, sent.message_id) is None
    assert harness.claim(bob, sent.message_id) is not None


def test_each_recipient_claims_its_own_delivery_of_a_broadcast(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "*")
    assert harness.claim(bob, sent.message_id) is not None
    assert harness.claim(cy, sent.message_id) is not None


def test_a_message_that_never_was_cannot_be_claimed(harness: BrokerHarness) -> None:
    assert harness.claim(harness.join("ada"), MessageId("no such message")) is None


def test_one_without_an_identity_has_no_inbox_to_read_or_to_claim_from(harness: BrokerHarness) -> None:
    client = harness.expect(
        Attached, c.Attach(protocol="agent-channels", credential=Unnamed("client-1", "dev"))
    ).session
    for command in (c.Claim(client, message_id=MessageId("m")), c.Fetch(client), c.Advance(client, ranges=((1, 1),))):
        assert harness.refused(command).code is Code.INVALID_REQUEST


# Time to live


def test_a_delivery_expires_at_its_deadline_and_not_before(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", ttl_ms=1000)
    harness.pass_ms(999)
    assert harness.state(sent.message_id, "bob") is State.PENDING
    harness.pass_ms(1)
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert receipt.state is State.EXPIRED
    assert receipt.steps[-1].at_ms == START_MS + 1000
    assert receipt.steps[-1].evidence
    assert harness.fetch(bob) == ()
    assert harness.roster()["bob"].backlog == 0
    assert [event.keys for event in harness.events() if isinstance(event, Expired)] == [((1, 1),)]


def test_no_command_of_the_same_instant_finds_what_expires_in_it(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", ttl_ms=1000)
    harness.clock_and_ids.time_ms += 1000
    assert harness.claim(bob, sent.message_id) is None


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_deadlines_are_kept_when_the_hub_comes_back(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    harness.add("bob")
    short = harness.send(harness.attach("ada"), "@bob", ttl_ms=1000)
    long = harness.send(harness.attach("ada"), "@bob", ttl_ms=5000)
    harness.clock_and_ids.time_ms += 500
    getattr(harness, how)()
    harness.pass_ms(499)
    assert harness.state(short.message_id, "bob") is State.PENDING
    harness.pass_ms(1)
    assert harness.state(short.message_id, "bob") is State.EXPIRED
    assert harness.state(long.message_id, "bob") is State.PENDING


def test_a_deadline_that_passed_while_the_hub_was_down_is_honoured_at_once(harness: BrokerHarness) -> None:
    harness.add("ada")
    harness.add("bob")
    harness.send(harness.attach("ada"), "@bob", ttl_ms=1000)
    harness.broker.close()
    harness.clock_and_ids.time_ms += 2000
    harness.open()
    assert harness.fetch(harness.attach("bob")) == ()


def test_what_was_acknowledged_in_time_does_not_expire(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", ttl_ms=1000)
    harness.advance(bob, 1)
    harness.pass_ms(1000)
    assert harness.state(sent.message_id, "bob") is State.ACKED


def test_a_broadcast_expires_for_those_who_did_not_settle_it(harness: BrokerHarness) -> None:
    ada, bob, _ = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "*", ttl_ms=1000)
    harness.advance(bob, 1)
    harness.pass_ms(1000)
    assert harness.state(sent.message_id, "bob") is State.ACKED
    assert harness.state(sent.message_id, "cy") is State.EXPIRED


# Wires without acknowledgement


def test_what_a_member_without_acknowledgements_reads_in_its_history_waits_no_more(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    ackless = harness.attach("bob", "agent-channels", acknowledges=False)
    harness.send(ada, "@bob", "first")
    harness.send(ada, "@bob", "second")
    before = harness.roster()["bob"]
    assert (before.backlog, before.unoffered) == (2, 2)
    harness.expect(History, c.ReadHistory(ackless, limit=1))
    assert harness.roster()["bob"].backlog == 2, "to look something up is not to be shown it"
    for _ in range(2):
        harness.expect(History, c.ReadHistory(ackless, limit=1, offers=True))
        after = harness.roster()["bob"]
        assert (after.backlog, after.unoffered) == (1, 1)
    harness.restart()
    assert harness.roster()["bob"].backlog == 1
    assert harness.bodies(harness.attach("bob")) == ["first", "second"], "it can be read by all"


def test_what_went_out_on_a_wire_without_acknowledgement_is_readable_but_no_backlog(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    ackless = harness.attach("bob", "agent-channels", acknowledges=False)
    harness.send(ada, "@bob")
    assert harness.roster()["bob"].backlog == 1
    harness.offered(ackless, 1)
    for _ in range(2):
        assert harness.roster()["bob"].backlog == 0
        assert harness.bodies(harness.attach("bob")) == ["hello"]
        harness.crash()


# Receipts and following


def test_receipts_are_for_the_sender_and_the_recipients_alone(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "@bob")
    assert harness.receipts(ada, sent.message_id).keys() == {"bob"}
    assert harness.receipts(bob, sent.message_id).keys() == {"bob"}
    for command in (c.ReadReceipts(cy, message_id=sent.message_id), c.Follow(cy, message_id=sent.message_id)):
        stranger = harness.refused(command)
        assert stranger.code is Code.UNKNOWN_MESSAGE
    unknown = harness.refused(c.ReadReceipts(cy, message_id=MessageId("nothing")))
    known = harness.refused(c.ReadReceipts(cy, message_id=sent.message_id))
    assert unknown.message == known.message.replace(sent.message_id, "nothing"), "a stranger cannot tell them apart"


def test_receipts_are_in_order_of_the_recipients_names(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for name in ("zoe", "bob", "max"):
        harness.add(name)
    sent = harness.send(ada, "*")
    reply = harness.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id))
    assert [receipt.member for receipt in reply.receipts] == ["bob", "max", "zoe"]


def progress(harness: BrokerHarness) -> list[tuple[str, str, State]]:
    return [(session, step.member, step.state) for session, step in harness.outcome.progress]


def test_a_follower_hears_of_each_step_as_it_happens(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    sent = harness.send(ada, "*")
    now = harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert [receipt.state for receipt in now.receipts] == [State.PENDING, State.PENDING]
    harness.offered(bob, 1)
    assert progress(harness) == [(ada, "bob", State.OFFERED)]
    harness.advance(bob, 1)
    step = Progress(message_id=sent.message_id, member=MemberName("bob"), state=State.ACKED, at_ms=START_MS)
    assert harness.outcome.progress == [(ada, step)]
    harness.advance(bob, 1)
    assert progress(harness) == []
    assert harness.claim(cy, sent.message_id) is not None
    assert progress(harness) == [(ada, "cy", State.ACKED)]


def test_a_follower_hears_of_expiry_and_removal(harness: BrokerHarness) -> None:
    ada, _, _ = harness.join("ada"), harness.add("bob"), harness.add("cy")
    sent = harness.send(ada, "*", ttl_ms=1000)
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.remove("bob")
    assert progress(harness) == [(ada, "bob", State.DEAD)]
    harness.pass_ms(1000)
    assert progress(harness) == [(ada, "cy", State.EXPIRED)]


def test_other_messages_are_not_told_to_a_follower(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.expect(Receipts, c.Follow(ada, message_id=harness.send(ada, "@bob", "followed").message_id))
    harness.send(ada, "@bob", "not followed")
    harness.advance(bob, 2)
    assert progress(harness) == []


def test_following_twice_is_following_once(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.advance(bob, 1)
    assert progress(harness) == [(ada, "bob", State.ACKED)]


@pytest.mark.parametrize("times", [1, 2])
def test_an_ended_session_is_told_nothing_more(harness: BrokerHarness, times: int) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    for _ in range(times):
        harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.ask(c.Detach(ada))
    harness.advance(bob, 1)
    assert progress(harness) == []


def test_a_removed_members_session_is_told_nothing_more(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.remove("ada")
    harness.advance(bob, 1)
    assert progress(harness) == []


@pytest.mark.parametrize("until", [State.SEEN, State.ACKED])
def test_waiting_for_what_can_never_come_is_refused_at_once_with_the_reason(
    harness: BrokerHarness, until: State
) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.attach("bob", "agent-channels", acknowledges=False)
    sent = harness.send(ada, "@bob")
    refusal = harness.refused(c.Follow(ada, message_id=sent.message_id, until=until))
    assert refusal.code is Code.NEVER_ACKNOWLEDGED
    assert "bob" in refusal.message
    assert "agent-channels" in refusal.message


def test_one_session_that_acknowledges_is_enough_to_wait_for(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.attach("bob", "agent-channels", acknowledges=False)
    harness.attach("bob", "peerbus")
    harness.expect(Receipts, c.Follow(ada, message_id=harness.send(ada, "@bob").message_id))


def test_a_member_that_is_away_may_come_back_with_acknowledgements(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.expect(Receipts, c.Follow(ada, message_id=harness.send(ada, "@bob").message_id))


def test_waiting_for_an_offer_is_possible_on_any_wire(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.attach("bob", "agent-channels", acknowledges=False)
    harness.expect(Receipts, c.Follow(ada, message_id=harness.send(ada, "@bob").message_id, until=State.OFFERED))


def test_what_was_acknowledged_before_can_be_followed_whatever_wire_is_left(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.advance(bob, 1)
    harness.ask(c.Detach(bob))
    harness.attach("bob", "agent-channels", acknowledges=False)
    reply = harness.ask(c.Follow(ada, message_id=sent.message_id, until=State.ACKED))
    assert not isinstance(reply, Refusal), reply


def test_an_accepted_message_asks_for_a_commit_and_an_acknowledgement_does_not_hurry_it(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    assert not harness.broker.dirty
    harness.decide(c.Send(ada, content=content("@bob")))
    assert harness.broker.dirty
    assert harness.outcome.urgent
    harness.broker.commit()
    assert not harness.broker.dirty
    harness.decide(c.Advance(bob, ranges=((1, 1),)))
    assert harness.broker.dirty
    assert not harness.outcome.urgent


def test_receipts_of_many_recipients_come_in_pages_by_name(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(receipts_max=2))
    ada = harness.join("ada")
    for name in ("eve", "bob", "cy", "dan", "flo"):
        harness.join(name)
    sent = harness.send(ada, "*")
    harness.remove("cy")
    seen: list[str] = []
    more = True
    while more:
        page = harness.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id, after=seen[-1] if seen else ""))
        assert len(page.receipts) <= 2
        seen += [receipt.member for receipt in page.receipts]
        more = page.more
    assert seen == ["bob", "cy", "dan", "eve", "flo"]
    only = harness.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id, members=("flo", "nobody"))).receipts
    assert [receipt.member for receipt in only] == ["flo"]
